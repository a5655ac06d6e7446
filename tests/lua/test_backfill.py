"""backfill.lua: occurrences of the past, published once more, marked, and without touching the schedule."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lua.test_policies import both_kinds, fire_at, ids, told
from tests.support.partition import NOW, Partition
from timerq import Event, InvalidSchedule, QueueUnavailable
from timerq.commands import recurring


def backfill(
    partition: Partition,
    start: Any,
    end: Any,
    key: str = "k",
    owner: str | None = None,
    by: str | None = None,
) -> Any:
    return partition.run(recurring.backfill(partition.scope, key, owner, start, end, by, partition.now))


@both_kinds
def test_the_occurrences_of_a_past_range_are_published_both_ends_included(
    partition: Partition, kind: dict[str, Any]
) -> None:
    event = Event("t", {"n": 1}, stream="s", correlation={"a": "b"})
    version = partition.upsert("k", event, owner="o", **kind).version
    before = partition.record("k", "o")
    done = backfill(partition, NOW - 4000, NOW - 2000, owner="o", by="ops")
    assert (done.outcome, done.version, done.published, done.key, done.owner) == (
        "PUBLISHED", version, 3, "k", "o",
    )  # fmt: skip
    assert done
    events = partition.events("s")
    assert [(int(e["at"]) - NOW, e["id"]) for e in events] == [
        (at, f"0-{version}-b{NOW + at}") for at in (-4000, -3000, -2000)
    ]
    assert {(e["n"], e["missed"], e["backfill"], e["fired_ms"], e["correlation"]) for e in events} == {
        ("0", "0", "1", str(NOW), '{"a":"b"}')
    }
    assert partition.record("k", "o") == before
    (entry,) = partition.entries()
    assert (entry["what"], entry["note"], entry["by"]) == ("backfilled", f"3 from {NOW - 4000}", "ops")
    assert partition.client.zrange(partition.key("streams"), 0, -1) == [b"s"]
    assert partition.client.hget(partition.key("meta"), "fired") is None
    partition.check()


def test_nothing_else_is_marked(partition: Partition) -> None:
    partition.upsert(every=1000)
    fire_at(partition, 1000)
    partition.edit("trigger")
    assert [event for event in partition.events() if "backfill" in event] == []


def test_what_is_asked_for_twice_has_the_same_ids(partition: Partition) -> None:
    partition.upsert(cron="* * * * *")
    backfill(partition, NOW - 600_000, NOW)
    first = ids(partition)
    backfill(partition, NOW - 600_000, NOW)
    assert len(first) == 10
    assert ids(partition) == first + first


def test_a_backfill_counts_neither_for_limit_nor_as_a_fire(partition: Partition) -> None:
    partition.upsert(every=1000, limit=1, overlap="skip", pause_after=1)
    backfill(partition, NOW - 5000, NOW)
    assert fire_at(partition, 1000) == 1
    events = partition.events()
    assert (events[-1]["n"], len(events)) == ("1", 7)
    assert partition.record() == {}


def test_a_backfilled_event_is_waited_for_by_nobody(partition: Partition) -> None:
    partition.upsert(every=1000, overlap="skip", pause_after=1)
    backfill(partition, NOW - 1000, NOW)
    assert not partition.client.keys(partition.key("run:*"))
    assert [partition.done(event_id, "no").outcome for event_id in ids(partition)] == ["NOT_PENDING"] * 2
    assert fire_at(partition, 1000) == 1


@pytest.mark.parametrize("state", ["paused", "held", "claimed"])
def test_whatever_its_state_a_schedule_can_be_backfilled(partition: Partition, state: str) -> None:
    partition.upsert(cron="* * * * *")
    record = partition.record()[b"s"].split(b" ")
    partition.client.hset(partition.record_key(), "s", b" ".join([state[:1].encode(), *record[1:]]))
    assert backfill(partition, NOW - 60_000, NOW).published == 1


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201, 450])
def test_a_long_range_goes_in_bounded_pieces(partition: Partition, count: int) -> None:
    partition.upsert(every=1000)
    before = partition.seq
    assert backfill(partition, NOW - 1000 * count - 400, NOW - 100).published == count
    assert partition.seq - before == 1 + -(-count // 200)
    assert told(partition) == [(-1000 * i, 0) for i in range(count, 0, -1)]


def test_a_call_publishes_a_bounded_number_of_bytes(partition: Partition) -> None:
    partition.upsert("k", Event("t", "x" * 65_000), every=1000)
    before = partition.seq
    assert backfill(partition, NOW - 11_000, NOW).published == 12
    assert partition.seq - before == 1 + 3  # five of them pass the bound of 256 KiB
    assert told(partition) == [(-1000 * i, 0) for i in range(11, -1, -1)]


def test_its_window_bounds_what_there_was(partition: Partition) -> None:
    partition.upsert(every=1000, start=NOW - 2500, until=NOW + 5000)
    assert backfill(partition, NOW - 60_000, NOW).published == 3
    assert [at for at, _ in told(partition)] == [-2500, -1500, -500]


def test_exclusions_and_clock_changes_hold_for_the_past_too(partition: Partition) -> None:
    partition.now = 1_743_500_000_000  # 2025-04-01T09:33:20Z
    partition.upsert(cron="30 2 * * *", timezone="Europe/Paris", exclude="2025-03-29")
    backfill(partition, 1_743_120_000_000, partition.now)
    assert [int(event["at"]) for event in partition.events()] == [
        1_743_125_400_000,  # 02:30 on the 28th; none on the 29th
        1_743_296_400_000,  # 03:00 for 02:30 on the 30th
        1_743_381_000_000, 1_743_467_400_000,
    ]  # fmt: skip


@pytest.mark.parametrize("change", ["replaced", "gone"])
def test_a_change_meanwhile_ends_it(partition: Partition, change: str) -> None:
    version = partition.upsert(every=1000).version
    steps = recurring.backfill(partition.scope, "k", None, NOW - 300_000, NOW, None, NOW)
    commands = next(steps)
    commands = steps.send([partition.ask(commands[0])])
    commands = steps.send([partition.ask(commands[0])])
    newer = 0
    if change == "replaced":
        newer = partition.upsert(every=500).version
    else:
        partition.cancel()
    with pytest.raises(StopIteration) as end:
        steps.send([partition.ask(commands[0])])
    done = end.value.value
    assert (done.outcome, done.version, done.published, bool(done)) == (
        "VERSION_MISMATCH", newer, 200, False,
    )  # fmt: skip
    assert {event["version"] for event in partition.events()} == {str(version)}
    assert len(partition.events()) == 200


def test_of_nothing_nothing_is_backfilled(partition: Partition) -> None:
    done = backfill(partition, NOW - 1000, NOW)
    assert (done.outcome, done.published, bool(done)) == ("NOT_PENDING", 0, False)
    assert partition.events() == []


@pytest.mark.parametrize(
    ("words", "field", "start", "end"),
    [
        ({"delay": 5}, "key", NOW - 5000, NOW),
        ({"every": 1000, "fixed_delay": True}, "key", NOW - 5000, NOW),
        ({"every": 1000}, "end", NOW - 5000, NOW - 5001),
        ({"every": 1000}, "end", NOW - 5000, NOW + 1),
        ({"every": 1}, "start", NOW - 100_000, NOW),
        ({"every": 1000}, "start", "yesterday", NOW),
        ({"every": 1000}, "end", NOW - 5000, "now"),
    ],
)
def test_what_cannot_be_backfilled_is_refused(
    partition: Partition, words: dict[str, Any], field: str, start: Any, end: Any
) -> None:
    partition.upsert(**words)
    with pytest.raises(InvalidSchedule) as caught:
        backfill(partition, start, end)
    assert caught.value.field == field
    assert partition.events() == []
    with pytest.raises(InvalidSchedule):
        backfill(partition, NOW - 5000, NOW, by="")


def test_a_stream_that_refuses_ends_it_and_says_how_far_it_came(partition: Partition) -> None:
    partition.upsert("k", Event("t", stream="wrong"), every=1000)
    partition.client.set(partition.key("s:wrong"), "not a stream")
    with pytest.raises(QueueUnavailable, match=r"after 0 of 3 events: .*WRONGTYPE"):
        backfill(partition, NOW - 2000, NOW)
    assert partition.log() == []


@pytest.mark.parametrize(("field", "value"), [("d", "rubbish"), ("zz", "unknown")])
def test_a_record_that_cannot_be_read_is_told(partition: Partition, field: str, value: str) -> None:
    version = partition.upsert(every=1000).version
    partition.client.hset(partition.record_key(), field, value)
    command = recurring._backfill_command(partition.scope, "k", None, version, b"", [NOW])
    word, count, why = partition.ask(command)
    assert (word, count) == ("BROKEN", "0")
    assert "unreadable" in why or "unknown" in why
    assert partition.events() == []


def test_a_lost_answer_repeats_nothing(partition: Partition) -> None:
    version = partition.upsert(every=1000).version
    command = recurring._backfill_command(partition.scope, "k", None, version, b"", [NOW - 1000, NOW])
    assert partition.ask(command) == ["BACKFILLED", "2", "0"]
    assert command.read(partition.evaluate(command)) == ["BACKFILLED", "2", "0"]
    assert len(partition.events()) == 2
