"""trim.lua: streams keep what somebody may still want, and no more."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.group import Group
from tests.support.partition import EVENT, Partition
from timerq import Event
from timerq.commands import edit, owner
from timerq.commands.command import MAX_ITEMS
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


def grow_old(partition: Partition, age_ms: int, stream: str = "events") -> None:
    """All that is there, by the server's clock: a stream's entries, and what floors and trimming have noted."""
    client, key = partition.client, partition.key(f"s:{stream}")
    entries = client.xrange(key)
    client.delete(key)
    for entry, fields in entries:
        ms, seq = entry.split(b"-")
        client.xadd(key, fields, id=f"{int(ms) - age_ms}-{int(seq)}")
    for name in ("floors", "oldest"):
        for member, score in client.zrange(partition.key(name), 0, -1, withscores=True):
            client.zadd(partition.key(name), {member: score - age_ms})
    if client.hexists(partition.key("meta"), "fired_since_ms"):
        client.hincrby(partition.key("meta"), "fired_since_ms", -age_ms)


def floors(partition: Partition) -> set[bytes]:
    front = partition.key("floor:")
    found = {key[len(front) :] for key in partition.client.keys(front + b"*")}
    assert set(partition.client.zrange(partition.key("floors"), 0, -1)) == found
    return found


def run(partition: Partition, **words: Any) -> Trimmed:
    partition.now += 20_000
    trimmed: Trimmed = partition.ask(trim(partition.namespace, 0, **words))
    return trimmed


def left(partition: Partition, stream: str = "events") -> int:
    return int(partition.client.xlen(partition.key(f"s:{stream}")))


@pytest.mark.parametrize("setting", ["retention_ms", "max_age_ms"])
def test_longer_than_since_1970_is_for_ever(partition: Partition, setting: str) -> None:
    fill(partition, old(3))
    if setting == "max_age_ms":
        partition.client.xgroup_create(partition.key("s:events"), "late", "0")
    partition.client.hset(partition.key("meta"), setting, 100 * 366 * DAY_MS)
    assert run(partition) == Trimmed("events", 0, 0)
    assert left(partition) == 3


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


# ------------------------------------------------------------------------------------------------ floors


@pytest.fixture(params=["manual", "redis"])
def clocked(client: Any, request: pytest.FixtureRequest) -> Partition:
    return Partition(client, manual=request.param == "manual")


def cancelled(partition: Partition, *keys: str) -> None:
    """Fired, and then cancelled."""
    for key in keys:
        partition.upsert(key, delay=0)
    partition.drain()
    for key in keys:
        partition.cancel(key)


def look(partition: Partition, **words: Any) -> Trimmed:
    partition.now += 1
    trimmed: Trimmed = partition.ask(trim(partition.namespace, 0, every_ms=-1, **words))
    return trimmed


@pytest.mark.parametrize("state", ["unread", "retried", "held"])
def test_what_was_cancelled_is_known_while_its_event_is_there_however_long(
    clocked: Partition, state: str
) -> None:
    p, group = clocked, Group(clocked)
    cancelled(p, "k")
    p.run(owner.destroy(p.scope, owner.Owned(b"acme", b"o", 0)))
    grow_old(p, 5 * DAY_MS)
    p.client.xgroup_create(group.stream_key, "g", id="0")
    if state != "unread":  # as if it had been handed out before it was cancelled
        p.client.xreadgroup("g", "c1", {group.stream_key: ">"})
        (entry,) = group.pending()
        p.client.zadd(group.key("lease" if state == "held" else "retry"), {entry: 1})
    assert look(p) == Trimmed("events", 0, 0)
    assert look(p).floors == 0
    assert floors(p) == {b"acme\0k\0", b"acme\0o"}
    assert group.read().stale == 1
    assert look(p).read == 1
    assert (look(p).stream, floors(p)) == ("events", set())


def test_a_floor_goes_when_nothing_is_left_that_it_is_for(clocked: Partition) -> None:
    p, group = clocked, Group(clocked)
    cancelled(p, "a", "b")
    assert group.read().stale == 2
    grow_old(p, 2 * DAY_MS - 10_000)
    assert (look(p), look(p)) == (Trimmed("events", 2, 0), Trimmed("events"))
    assert len(floors(p)) == 2
    grow_old(p, 20_000)
    assert look(p) == Trimmed("events", floors=2)
    assert floors(p) == set()
    assert not p.client.exists(p.key("floors"))


def test_floors_go_where_nothing_was_ever_published(partition: Partition) -> None:
    for i in range(5):
        partition.cancel(f"k{i}")
    grow_old(partition, 3 * DAY_MS)
    assert look(partition, limit=2) == Trimmed(None, floors=2, more=True)
    assert [look(partition, limit=2).floors for _ in range(3)] == [2, 1, 0]
    assert floors(partition) == set()


def test_a_group_that_is_made_later_is_not_handed_what_was_cancelled(partition: Partition) -> None:
    cancelled(partition, "k")
    assert Group(partition, "first").read().stale == 1
    grow_old(partition, DAY_MS - 10_000)
    for key in ("floors", "oldest"):
        for member, score in partition.client.zrange(partition.key(key), 0, -1, withscores=True):
            partition.client.zadd(partition.key(key), {member: score - 4 * DAY_MS})  # it was left long before
    assert look(partition).floors == 1
    cancelled(partition, "l")
    grow_old(partition, DAY_MS - 10_000)
    assert look(partition).floors == 0
    assert Group(partition, "late").read().stale == 1


def test_a_clock_that_is_set_back_makes_no_floor_go_too_early(partition: Partition) -> None:
    cancelled(partition, "k")
    grow_old(partition, 5 * DAY_MS)
    key = partition.key("s:events")
    ((entry, fields),) = partition.client.xrange(key)
    partition.client.delete(key)
    ahead_ms = int(entry.split(b"-")[0]) + DAY_MS - 10_000  # its id, of when the clock was ahead
    partition.client.xadd(key, fields, id=f"{ahead_ms}-0")
    partition.client.xgroup_create(key, "g", id="0")
    assert (look(partition).floors, look(partition).floors) == (0, 0)
    assert Group(partition).read().stale == 1


def test_no_floor_goes_while_an_owner_that_was_destroyed_has_schedules_left(partition: Partition) -> None:
    p, owned = partition, owner.Owned(b"acme", b"o", 0)
    for n in range(MAX_ITEMS + 1):
        p.upsert(f"k{n}", owner="o", delay="40d")
    piece = p.ask(owner.destroy_piece(p.namespace, owned))
    assert piece.after is not None
    grow_old(p, 30 * DAY_MS)  # who destroyed it is gone, and no dispatcher ran
    assert [look(p).floors for _ in range(2)] == [0, 0]
    p.now += 40 * DAY_MS
    assert p.drain() == (0, 0)
    p.ask(owner.destroy_piece(p.namespace, owned, ceiling=piece.ceiling, after=piece.after))
    assert look(p).floors == 1
    assert floors(p) == set()


def test_no_floor_goes_before_every_stream_has_been_looked_at(partition: Partition) -> None:
    cancelled(partition, "k")
    assert look(partition).stream == "events"
    partition.upsert("k", Event("t", stream="other"), delay=0)
    partition.drain()
    partition.cancel("k")
    partition.client.delete(partition.key("s:events"))
    grow_old(partition, 5 * DAY_MS, "other")
    partition.client.xgroup_create(partition.key("s:other"), "g", id="0")
    partition.client.zadd(partition.key("streams"), {"events": 1, "other": 2})
    assert (look(partition).stream, look(partition).stream) == ("events", "other")
    assert look(partition).floors == 0
    assert Group(partition, "g", "other").read().stale == 1
    partition.client.zrem(partition.key("streams"), "events")  # by hand
    assert [look(partition).floors for _ in range(3)] == [0, 1, 0]


def test_reports_keep_no_floor(partition: Partition) -> None:
    cancelled(partition, "k")
    partition.client.delete(partition.key("s:events"))
    partition.client.xadd(partition.key("s:errors"), {"a": "b"})
    partition.client.zadd(partition.key("streams"), {"errors": 1})
    grow_old(partition, 5 * DAY_MS, "errors")
    partition.client.xgroup_create(partition.key("s:errors"), "ops", id="0")
    assert sum(look(partition).floors for _ in range(3)) == 1
    assert left(partition, "errors") == 1


def test_what_has_fired_is_remembered_while_its_event_is_there_and_no_longer(partition: Partition) -> None:
    p, group = partition, Group(partition)
    p.upsert(delay=0)
    p.drain()
    grow_old(p, 9 * DAY_MS)
    p.client.xgroup_create(group.stream_key, "g", id="0")
    for _ in range(5):
        look(p)
        grow_old(p, 3 * DAY_MS)
        p.client.xgroup_create(group.stream_key, "g", id="0")
    p.upsert(delay=1000)
    p.cancel()
    assert len(floors(p)) == 1
    assert group.read().stale == 1
    for _ in range(5):
        look(p)
        grow_old(p, 3 * DAY_MS)
    p.upsert(delay=1000)
    p.cancel()
    assert floors(p) == set()
    assert not p.client.exists(p.key("fired"), p.key("fired_before"), p.key("fired_new"))


def test_a_bitmap_that_was_too_full_is_followed_by_a_larger_one(partition: Partition) -> None:
    key = partition.key("fired")
    partition.client.set(key, b"\xff" * 20_000 + b"\0" * (131_072 - 20_000))
    look(partition)
    assert partition.client.strlen(key) == 2_097_152
    assert partition.client.strlen(partition.key("fired_before")) == 131_072
    partition.client.setbit(key, 5, 1)
    grow_old(partition, 3 * DAY_MS)
    look(partition)
    assert partition.client.strlen(key) == partition.client.strlen(partition.key("fired_before")) == 2_097_152


def test_a_published_event_makes_its_stream_known(partition: Partition) -> None:
    partition.do(edit.publish_item(partition.scope, EVENT, "k"))
    assert run(partition).stream == "events"
    assert left(partition) == 1
