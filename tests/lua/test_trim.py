"""trim.lua: streams keep what somebody may still want, and no more."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.partition import EVENT, Partition
from timerq.commands import edit
from timerq.commands.dispatch import Trimmed, trim

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NODE = (
    100  # entries a stream's node holds (stream-node-max-entries): what is trimmed, is trimmed by whole nodes
)


def fill(partition: Partition, ages_ms: list[int], stream: str = "events") -> list[bytes]:
    """Entries of these ages, oldest first; the stream was never trimmed."""
    now_ms = int(time.time() * 1000)
    pipeline = partition.client.pipeline(transaction=False)
    for i, age in enumerate(ages_ms):
        pipeline.xadd(partition.key(f"s:{stream}"), {"a": "b"}, id=f"{now_ms - age}-{i}")
    pipeline.zadd(partition.key("streams"), {stream: 1})
    return list(pipeline.execute()[:-1])


def old(count: int, age_ms: int = 2 * DAY_MS) -> list[int]:
    return list(range(age_ms + count, age_ms, -1))


def run(partition: Partition, **words: Any) -> Trimmed:
    partition.now += 20_000
    trimmed: Trimmed = partition.ask(trim(partition.namespace, 0, **words))
    return trimmed


def left(partition: Partition, stream: str = "events") -> int:
    return int(partition.client.xlen(partition.key(f"s:{stream}")))


def test_entries_nobody_reads_stay_for_the_retention(real_client: Any, partition: Partition) -> None:
    fill(partition, old(3 * NODE) + old(3 * NODE, HOUR_MS))
    assert run(partition) == Trimmed("events", 3 * NODE, 0)
    assert run(partition) == Trimmed("events", 0, 0)
    assert left(partition) == 3 * NODE


def test_the_retention_is_a_setting(real_client: Any) -> None:
    partition = Partition(real_client, retention="30m")
    fill(partition, old(3 * NODE) + old(3 * NODE, HOUR_MS) + old(NODE, 60_000))
    assert run(partition).read == 6 * NODE


def test_what_a_group_has_not_been_given_stays_however_old(real_client: Any, partition: Partition) -> None:
    ids = fill(partition, old(5 * NODE))
    key = partition.key("s:events")
    partition.client.xgroup_create(key, "slow", id="0")
    partition.client.xgroup_create(key, "fast", id="0")
    assert run(partition).read == 0
    partition.client.xgroup_setid(key, "fast", ids[-1])
    assert run(partition).read == 0
    partition.client.xgroup_setid(key, "slow", ids[2 * NODE - 1])
    assert run(partition).read == 2 * NODE
    assert partition.client.xrange(key, count=1)[0][0] == ids[2 * NODE]
    partition.client.xgroup_setid(key, "slow", ids[-1])
    assert run(partition).read == 3 * NODE


def test_what_a_group_has_not_acknowledged_stays_however_old(real_client: Any, partition: Partition) -> None:
    ids = fill(partition, old(5 * NODE))
    key = partition.key("s:events")
    partition.client.xgroup_create(key, "g", id="0")
    partition.client.xreadgroup("g", "c", {key: ">"}, count=5 * NODE)
    partition.client.xack(key, "g", *ids[: 3 * NODE], *ids[3 * NODE + 1 :])
    assert run(partition).read == 3 * NODE
    assert partition.client.xpending(key, "g")["min"] == ids[3 * NODE]
    partition.client.xack(key, "g", ids[3 * NODE])
    assert run(partition).read == 2 * NODE


@pytest.mark.parametrize("setting", ["max_age", "max_length"])
def test_unread_ones_go_beyond_a_bound_that_was_set_and_are_told(real_client: Any, setting: str) -> None:
    bound: dict[str, Any] = {"max_age": "3d"} if setting == "max_age" else {"max_length": 4 * NODE}
    partition = Partition(real_client, **bound)
    fill(partition, old(3 * NODE, 4 * DAY_MS) + old(4 * NODE))
    partition.client.xgroup_create(partition.key("s:events"), "g", id="0")
    assert run(partition) == Trimmed("events", 0, 3 * NODE)
    assert run(partition) == Trimmed("events", 0, 0)
    assert left(partition) == 4 * NODE
    assert partition.log() == [("trimmed", f"{3 * NODE} entries that a group may not have read")]
    assert partition.client.hget(partition.key("meta"), "trimmed_unread") == b"%d" % (3 * NODE)


def test_max_age_never_undercuts_the_retention(real_client: Any) -> None:
    partition = Partition(real_client, max_age="1h")
    fill(partition, old(3 * NODE, 2 * HOUR_MS))
    partition.client.xgroup_create(partition.key("s:events"), "g", id="0")
    assert run(partition) == Trimmed("events", 0, 0)


def test_a_call_removes_a_bounded_number_and_the_stream_keeps_its_place(
    real_client: Any, partition: Partition
) -> None:
    fill(partition, old(10 * NODE))
    fill(partition, old(NODE), "other")
    counts = [run(partition, limit=3 * NODE) for _ in range(6)]
    assert max(trimmed.read for trimmed in counts) <= 3 * NODE
    assert {trimmed.stream for trimmed in counts} == {"events", "other"}
    assert left(partition) + left(partition, "other") == 0


def test_the_stream_that_waited_longest_comes_first_and_none_comes_too_often(partition: Partition) -> None:
    for stream in ("a", "b", "c"):
        fill(partition, [5], stream)
        partition.client.zadd(partition.key("streams"), {stream: partition.now - 100_000 + ord(stream)})
    assert [partition.ask(trim(partition.namespace, 0)).stream for _ in range(4)] == ["a", "b", "c", None]
    partition.now += 9_999
    assert partition.ask(trim(partition.namespace, 0)).stream is None
    partition.now += 1
    assert partition.ask(trim(partition.namespace, 0)).stream == "a"


def test_a_stream_that_is_none_stops_no_other(partition: Partition) -> None:
    partition.client.set(partition.key("s:a"), "not a stream")
    partition.client.zadd(partition.key("streams"), {"a": 1, "b": 2, "gone": 3})
    fill(partition, [5], "b")
    first, second, third = (partition.ask(trim(partition.namespace, 0)) for _ in range(3))
    assert (first.stream, second.stream, third.stream) == ("a", "b", "gone")
    assert "WRONGTYPE" in first.broken
    assert (second.broken, third.broken) == (None, None)
    assert partition.ask(trim(partition.namespace, 0)).stream is None


def test_a_published_event_makes_its_stream_known(partition: Partition) -> None:
    partition.do(edit.publish_item(partition.scope, EVENT, "k"))
    assert run(partition).stream == "events"
    assert left(partition) == 1
