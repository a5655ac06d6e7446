"""done.lua: an event is handled once, by its own tenant, and only where somebody waits for it."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tests.lua.test_policies import at_of, fire_at, get, ids, told
from tests.support.partition import NOW, Partition
from timerq import InvalidSchedule
from timerq.commands import recurring


def run_keys(partition: Partition) -> dict[str, bytes]:
    front = partition.key("run:")
    return {
        key[len(front) :].decode(): partition.client.get(key) for key in partition.client.keys(front + b"*")
    }


def running(partition: Partition, **words: Any) -> str:
    """A schedule of which one occurrence runs; returns the event's id."""
    given: dict[str, Any] = {"every": 1000, "overlap": "skip", **words}
    partition.upsert(**given)
    fire_at(partition, 1000)
    return ids(partition)[-1]


def test_what_is_waited_for_is_known_for_a_minute_longer_than_it_may_run(partition: Partition) -> None:
    event_id = running(partition, running_timeout="5m", owner="o")
    assert run_keys(partition) == {event_id: b"acme\0k\0o"}
    ttl_ms = partition.client.pttl(partition.key(f"run:{event_id}"))
    assert 355_000 < ttl_ms <= 360_000
    change = partition.done(event_id)
    assert (change.outcome, change.key, change.owner, change.event_id) == ("DONE", "k", "o", event_id)
    assert change.at_ms == NOW + 2000
    assert run_keys(partition) == {}


def test_done_is_said_once_and_again_it_is_not_pending(partition: Partition) -> None:
    event_id = running(partition)
    assert partition.done(event_id)
    before = partition.record()
    again = partition.done(event_id)
    assert (again.outcome, again.key, bool(again)) == ("NOT_PENDING", "", False)
    assert partition.record() == before
    assert partition.log() == []
    partition.check()


@pytest.mark.parametrize("error", [None, "no"])
def test_another_tenants_done_changes_nothing(partition: Partition, error: str | None) -> None:
    event_id = running(partition)
    before = {name: value for name, value in partition.state().items() if b":req:" not in name}
    other = partition.done(event_id, error, scope=partition.of("other"))
    assert (other.outcome, other.key) == ("NOT_PENDING", "")
    assert {name: value for name, value in partition.state().items() if b":req:" not in name} == before
    assert partition.done(event_id).outcome == "DONE"


@pytest.mark.parametrize(
    "event_id",
    [
        "",
        "x",
        "-",
        "0",
        "0-",
        "x-1-1",
        "1-5-1",
        "-1-5-1",
        "00000-5-1",
        "٣-5-1",
        "0 -5-1",
        "a\0b",
        "e" * 513,
        5,
        None,
    ],
)
def test_an_id_that_is_none_of_this_namespace_is_refused(partition: Partition, event_id: Any) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        next(recurring.done(partition.scope, event_id, None))
    assert caught.value.field == "event_id"


@pytest.mark.parametrize("event_id", ["0-1-1", "0-1-t5", "0-1-b5", "0-rubbish", "0-\u00e9"])
def test_an_event_that_nobody_waits_for_is_not_pending(partition: Partition, event_id: str) -> None:
    running(partition)
    before = partition.record()
    assert partition.done(event_id, "no").outcome == "NOT_PENDING"
    assert partition.record() == before


def test_what_has_timed_out_is_handled_no_more(partition: Partition) -> None:
    event_id = running(partition, overlap="skip", running_timeout=5000, pause_after=1)
    partition.now = NOW + 6000
    assert partition.done(event_id, "no").outcome == "NOT_PENDING"
    stored = get(partition)
    assert (stored.state, stored.failures) == ("armed", 0)
    assert fire_at(partition, 6000) == 1
    assert partition.log() == [("timed_out", event_id), ("missed", "4")]
    assert get(partition).running == ids(partition)[1]
    partition.check()


def test_the_last_millisecond_counts(partition: Partition) -> None:
    event_id = running(partition, overlap="skip", running_timeout=5000)
    partition.now = NOW + 5999
    assert partition.done(event_id).outcome == "DONE"


@pytest.mark.parametrize("kept", [True, False])
def test_a_change_of_the_definition_waits_for_the_event_that_runs(partition: Partition, kept: bool) -> None:
    event_id = running(partition)
    partition.upsert(every=500, overlap="skip" if kept else None)
    assert get(partition).running == event_id
    assert fire_at(partition, 1500) == (0 if kept else 1)
    assert partition.done(event_id).outcome == "DONE"
    assert fire_at(partition, 2000) == 1
    partition.check()


def test_of_older_versions_only_the_event_that_runs_is_waited_for(partition: Partition) -> None:
    first = running(partition, overlap="allow", pause_after=1)
    fire_at(partition, 2000)
    second = ids(partition)[1]
    partition.upsert(every=500, pause_after=1)
    assert partition.done(first, "no").outcome == "NOT_PENDING"
    assert get(partition).failures == 0
    assert partition.done(second, "no").outcome == "PAUSED"


@pytest.mark.parametrize("error", [None, "no"])
def test_a_one_shot_that_took_the_key_has_nothing_to_do_with_it(
    partition: Partition, error: str | None
) -> None:
    event_id = running(partition)
    partition.upsert(delay=5000)
    before = partition.record()
    assert set(before) == {b"s", b"d", b"p"}
    assert partition.done(event_id, error).outcome == "NOT_PENDING"
    assert partition.record() == before
    assert run_keys(partition) == {}
    partition.check()


@pytest.mark.parametrize("again", [True, False])
def test_of_a_schedule_that_has_gone_nothing_is_pending(partition: Partition, again: bool) -> None:
    event_id = running(partition, pause_after=1)
    partition.cancel()
    if again:
        partition.upsert(every=1000, overlap="skip", pause_after=1)
    assert partition.done(event_id, "no").outcome == "NOT_PENDING"
    if again:
        assert (get(partition).state, get(partition).failures) == ("armed", 0)
        assert fire_at(partition, 2000) == 1
    partition.check()


@pytest.mark.parametrize("state", ["paused", "held", "claimed"])
def test_what_is_handled_in_another_state_leaves_that_state(partition: Partition, state: str) -> None:
    partition.calendar(at=NOW, following=NOW + 10, o="q 60000 0 0 - -")
    partition.fire()
    (event_id,) = ids(partition)
    if state == "paused":
        partition.edit("pause")
    else:
        record = partition.record()[b"s"].split(b" ")
        partition.client.hset(partition.record_key(), "s", b" ".join([state[:1].encode(), *record[1:]]))
        if state == "held":
            partition.client.zadd(partition.key("held"), {"acme\0k\0": 1})
    before = partition.record()
    assert partition.done(event_id).outcome == "DONE"
    assert partition.record() == {name: value for name, value in before.items() if name != b"u"}
    partition.check()


def test_a_reason_is_kept_in_part_and_may_be_any_text(partition: Partition) -> None:
    event_id = running(partition, pause_after=1)
    assert partition.done(event_id, "é" * 500).outcome == "PAUSED"
    stored = get(partition)
    assert stored.paused_note == "1 failure in a row: " + "é" * 100
    (failed, paused) = partition.entries()
    assert (failed["what"], failed["note"]) == ("failed", f"{event_id} {'é' * 100}")
    assert (paused["what"], paused["note"], paused["by"]) == ("paused", stored.paused_note, "timerq")


@pytest.mark.parametrize("error", ["", "\ud800", "a\0b"])
@pytest.mark.parametrize("pause_after", [1, 2])
def test_an_odd_reason_is_a_failure_all_the_same(partition: Partition, error: str, pause_after: int) -> None:
    event_id = running(partition, pause_after=pause_after)
    assert partition.done(event_id, error).outcome == ("PAUSED" if pause_after == 1 else "DONE")
    stored = get(partition)
    assert stored.failures == 1
    if pause_after == 1:
        said = {"": "failed", "\ud800": "?", "a\0b": "a\ufffdb"}[error]
        assert (stored.paused_by, stored.paused_note) == ("timerq", f"1 failure in a row: {said}")


@pytest.mark.parametrize(
    ("field", "value"), [("o", "rubbish"), ("s", "rubbish"), ("d", "rubbish"), ("zz", "unknown")]
)
def test_a_record_that_cannot_be_read_is_told_and_waits(partition: Partition, field: str, value: str) -> None:
    event_id = running(partition)
    good = partition.record()
    partition.client.hset(partition.record_key(), field, value)
    before = {name: value for name, value in partition.state().items() if b":req:" not in name}
    with pytest.raises(redis.ResponseError, match=r"unreadable|unknown field"):
        partition.done(event_id)
    assert {name: value for name, value in partition.state().items() if b":req:" not in name} == before
    partition.client.delete(partition.record_key())
    partition.client.hset(partition.record_key(), mapping=good)
    assert partition.done(event_id).outcome == "DONE"


def test_failures_that_are_no_number_count_from_one(partition: Partition) -> None:
    event_id = running(partition, pause_after=2)
    partition.client.hset(partition.record_key(), "q", "rubbish")
    assert partition.done(event_id, "no").outcome == "DONE"
    assert partition.record()[b"q"] == b"1"


@pytest.mark.parametrize("u", ["rubbish", "", "0-1-1", "0-1-1 x", "0-1-1 5 x"])
def test_a_memory_of_what_runs_that_cannot_be_read_holds_nothing_up(partition: Partition, u: str) -> None:
    running(partition)
    partition.client.hset(partition.record_key(), "u", u)
    assert fire_at(partition, 2000) == 1
    assert told(partition) == [(1000, 0), (2000, 0)]
    assert partition.record()[b"u"].startswith(ids(partition)[1].encode())


def test_a_run_key_of_another_type_is_told_and_changes_nothing(partition: Partition) -> None:
    event_id = running(partition)
    partition.client.delete(partition.key(f"run:{event_id}"))
    partition.client.rpush(partition.key(f"run:{event_id}"), "no text")
    before = partition.record()
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        partition.done(event_id)
    assert partition.record() == before


def test_an_event_that_could_not_be_published_is_waited_for_by_nobody(partition: Partition) -> None:
    partition.client.set(partition.key("s:events"), "not a stream")
    partition.upsert(every=1000, overlap="skip")
    assert fire_at(partition, 1000) == 0
    assert get(partition).state == "held"
    assert b"u" not in partition.record()
    partition.client.delete(partition.key("s:events"))
    assert fire_at(partition, 2000) == 1
    assert told(partition) == [(1000, 1)]
    assert partition.done(ids(partition)[0]).outcome == "DONE"
    assert at_of(partition) == 3000
    partition.check()


def test_each_partition_knows_its_own(client: Any) -> None:
    partition = Partition(client, partitions=3)
    for i in range(12):
        partition.upsert(f"k{i}", every=1000, overlap="skip")
    partition.now = NOW + 1000
    assert partition.drain()[0] == 12
    events = [
        fields[b"id"].decode()
        for tag in partition.namespace.tags
        for _, fields in client.xrange(tag + b":s:events")
    ]
    assert {event_id.partition("-")[0] for event_id in events} == {"0", "1", "2"}
    assert {str(partition.done(event_id).outcome) for event_id in events} == {"DONE"}
    partition.check()
