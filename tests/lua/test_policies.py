"""fire.lua and done.lua: what becomes of an occurrence while the one before it is not handled, and after failures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.partition import NOW, Partition
from timerq.commands import read
from timerq.commands.dispatch import Advance
from timerq.timing import MAX_INSTANT_MS


def told(partition: Partition) -> list[tuple[int, int]]:
    """When each event was due (ms after NOW), and how many it stands for besides itself."""
    return [(int(event["at"]) - NOW, int(event["missed"])) for event in partition.events()]


def ids(partition: Partition) -> list[str]:
    return [event["id"] for event in partition.events()]


def at_of(partition: Partition) -> int:
    """When it is armed for (ms after NOW)."""
    return int(partition.record()[b"s"].split(b" ")[2]) - NOW


def score_of(partition: Partition) -> int:
    """When it is looked at (ms after NOW)."""
    return int(partition.client.zscore(partition.key("due:acme"), b"acme\0k\0")) - NOW


def fire_at(partition: Partition, ms: int) -> int:
    """Fires ``ms`` after NOW; how many were published."""
    partition.now = NOW + ms
    return partition.drain()[0]


def get(partition: Partition) -> Any:
    return partition.run(read.get(partition.scope, "k"))


KINDS: list[dict[str, Any]] = [{"every": 1000}, {"cron": "* * * * * *"}]
both_kinds = pytest.mark.parametrize("kind", KINDS, ids=["every", "cron"])


# ------------------------------------------------------------------------------------------------ overlap: skip


@both_kinds
def test_while_the_last_one_runs_skip_leaves_out_counts_logs_and_reports(
    partition: Partition, kind: dict[str, Any]
) -> None:
    version = partition.upsert(**kind, overlap="skip", ack_group="workers", running_timeout="1h").version
    assert fire_at(partition, 1000) == 1
    (first,) = ids(partition)
    record = partition.record()
    assert record[b"u"] == f"{first} {NOW + 1000 + 3_600_000}".encode()
    assert partition.client.get(partition.key(f"run:{first}")) == b"acme\0k\0"
    assert (get(partition).running, get(partition).running_until_ms) == (first, NOW + 1000 + 3_600_000)

    assert fire_at(partition, 2000) == 0
    assert at_of(partition) == 3000
    assert partition.record()[b"s"].endswith(b" 1")  # n counts what was published
    assert partition.record()[b"t"] == b"1 0 1"
    assert partition.log() == [("skipped", f"1 {first} is not done")]

    assert fire_at(partition, 5500) == 0
    assert at_of(partition) == 6000
    assert partition.record()[b"t"] == b"1 0 4"
    assert partition.log()[1:] == [("skipped", f"3 {first} is not done")]
    assert partition.client.hmget(partition.key("meta"), "fired", "missed", "skipped") == [b"1", None, b"4"]

    reports = partition.events("errors")
    assert [(e["type"], e["id"], e["key"], e["n"]) for e in reports] == [
        ("schedule.skipped", f"0-{version}-s{NOW + at}", "k", "1") for at in (2000, 3000)
    ]
    for _, fields in partition.client.xrange(partition.key("s:errors")):
        assert json.loads(fields[b"payload"]) == {"reason": f"{first} is not done"}

    assert partition.done(first).outcome == "DONE"
    assert b"u" not in partition.record()
    assert (get(partition).running, get(partition).running_until_ms) == (None, None)
    assert fire_at(partition, 6000) == 1
    assert told(partition) == [(1000, 0), (6000, 0)]
    assert partition.events()[-1]["n"] == "2"
    partition.check()


@both_kinds
def test_what_is_older_than_its_running_time_out_holds_nothing_up(
    partition: Partition, kind: dict[str, Any]
) -> None:
    partition.upsert(**kind, overlap="skip", running_timeout=2500)
    fire_at(partition, 1000)
    (first,) = ids(partition)
    assert fire_at(partition, 2000) == 0
    assert fire_at(partition, 3499) == 0  # a millisecond before it is up
    assert fire_at(partition, 4000) == 1
    assert told(partition) == [(1000, 0), (4000, 0)]
    assert ("timed_out", first) in partition.log()
    assert not partition.client.exists(partition.key(f"run:{first}"))
    assert partition.done(first).outcome == "NOT_PENDING"
    assert partition.record()[b"u"].startswith(ids(partition)[1].encode())  # the second one runs
    partition.check()


def test_a_time_out_ends_at_its_very_millisecond(partition: Partition) -> None:
    partition.upsert(every=1000, overlap="skip", running_timeout=1000)
    fire_at(partition, 1000)
    assert fire_at(partition, 2000) == 1
    fire_at(partition, 3001)
    assert fire_at(partition, 4000) == 0  # until 4001
    assert fire_at(partition, 5000) == 1


@both_kinds
def test_what_is_skipped_takes_nothing_of_limit(partition: Partition, kind: dict[str, Any]) -> None:
    partition.upsert(**kind, overlap="skip", limit=2)
    for at in (1000, 2000, 3000):
        fire_at(partition, at)
    assert partition.done(ids(partition)[0]).outcome == "DONE"
    assert fire_at(partition, 4000) == 1
    assert told(partition) == [(1000, 0), (4000, 0)]
    assert partition.record() == {}
    assert partition.log()[-1] == ("ended", "limit 2")
    partition.check()


@both_kinds
def test_the_last_one_may_be_skipped_and_the_schedule_ends(
    partition: Partition, kind: dict[str, Any]
) -> None:
    partition.upsert(**kind, overlap="skip", until=NOW + 2000)
    fire_at(partition, 1000)
    fire_at(partition, 2000)
    assert told(partition) == [(1000, 0)]
    assert [what for what, _ in partition.log()] == ["skipped", "ended"]
    assert partition.record() == {}
    assert partition.done(ids(partition)[0]).outcome == "NOT_PENDING"
    partition.check()


def test_a_skipped_calendar_goes_on_with_what_it_knows_and_asks_for_the_next(partition: Partition) -> None:
    partition.calendar(at=NOW, following=NOW + 10, o="s 5000 0 0 - -")
    (refill,) = partition.fire().handovers
    assert partition.advance(Advance(refill, NOW + 10, NOW + 20)) == ["ADVANCED"]
    partition.now += 10
    fired = partition.fire()
    assert fired.published == 0
    (refill,) = fired.handovers
    assert (refill.word, refill.n, refill.at_ms) == ("refill", "1", NOW + 20)
    assert partition.advance(Advance(refill, NOW + 20, NOW + 30)) == ["ADVANCED"]
    partition.check()


def test_what_overlaps_is_nobodys_business_where_overlap_is_allowed(partition: Partition) -> None:
    partition.upsert(every=1000)
    for at in (1000, 2000):
        assert fire_at(partition, at) == 1
    assert b"u" not in partition.record()
    assert not partition.client.keys(partition.key("run:*"))
    assert partition.done(ids(partition)[0]).outcome == "NOT_PENDING"


def test_an_error_stream_that_cannot_be_written_stops_nothing(partition: Partition) -> None:
    partition.client.set(partition.key("s:errors"), "not a stream")
    partition.upsert(every=1000, overlap="skip")
    fire_at(partition, 1000)
    assert fire_at(partition, 2000) == 0
    assert partition.record()[b"t"] == b"1 0 1"
    partition.done(ids(partition)[0])
    assert fire_at(partition, 3000) == 1


def test_a_trigger_neither_waits_for_what_runs_nor_is_waited_for(partition: Partition) -> None:
    partition.upsert(every=1000, overlap="skip")
    fire_at(partition, 1000)
    (first,) = ids(partition)
    change = partition.edit("trigger")
    assert change.outcome == "TRIGGERED"
    assert partition.done(change.event_id).outcome == "NOT_PENDING"
    assert partition.done(first).outcome == "DONE"
    partition.edit("trigger")
    assert fire_at(partition, 2000) == 1


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ({"every": 1000, "limit": 1}, "limit 1"),
        ({"every": 1000, "until": NOW + 1500}, "until 1"),
        ({"cron": "* * * * * *", "limit": 1}, "limit 1"),
        ({"cron": "* * * * * *", "until": NOW + 1500}, "until 1"),
        ({"cron": "* * * * * *", "until": NOW + 1500, "limit": 1}, "limit 1"),
        ({"every": 1000, "fixed_delay": True, "until": NOW + 1500}, "until 1"),
        ({"every": 1000, "start": MAX_INSTANT_MS - 500}, "last 1"),
        ({"cron": "59 59 23 31 12 *", "start": MAX_INSTANT_MS - 1000}, "last 1"),
    ],
    ids=str,
)
def test_the_log_says_what_ended_it_and_after_how_many(
    partition: Partition, words: dict[str, Any], note: str
) -> None:
    partition.upsert(**words)
    partition.now += at_of(partition)
    assert partition.drain()[0] == 1
    assert partition.record() == {}
    assert partition.log() == [("ended", note)]
    partition.check()


# ------------------------------------------------------------------------------------------------ overlap: queue


@both_kinds
def test_one_waits_in_the_queue_and_goes_when_the_last_one_is_handled(
    partition: Partition, kind: dict[str, Any]
) -> None:
    partition.upsert(**kind, overlap="queue", running_timeout=10_000)
    fire_at(partition, 1000)
    (first,) = ids(partition)
    assert fire_at(partition, 2000) == 0
    assert (at_of(partition), score_of(partition)) == (2000, 11_000)
    assert partition.record()[b"u"] == f"{first} {NOW + 11_000} w".encode()
    assert partition.log() == [("queued", first)]
    assert partition.fire().wait_us == 9_000_000
    assert fire_at(partition, 5500) == 0

    partition.client.delete(partition.key("wake"))
    change = partition.done(first)
    assert (change.outcome, change.at_ms, change.key) == ("DONE", NOW + 2000, "k")
    assert score_of(partition) == 2000
    ((_, woken),) = partition.client.xrange(partition.key("wake"))
    assert woken[b"at"] == b"%d" % (NOW + 2000)
    assert fire_at(partition, 5500) == 1
    assert told(partition) == [(1000, 0), (2000, 3)]  # it stands for those that came while it waited
    assert at_of(partition) == 6000
    assert partition.record()[b"t"] == b"2 3 0"
    assert partition.client.hget(partition.key("meta"), "skipped") is None
    partition.check()


@both_kinds
def test_the_one_that_waits_goes_when_the_time_of_the_last_one_is_up(
    partition: Partition, kind: dict[str, Any]
) -> None:
    partition.upsert(**kind, overlap="queue", running_timeout=3500)
    fire_at(partition, 1000)
    (first,) = ids(partition)
    fire_at(partition, 2000)
    assert fire_at(partition, 4499) == 0
    assert fire_at(partition, 4500) == 1
    assert told(partition) == [(1000, 0), (2000, 2)]
    assert partition.log() == [("queued", first), ("timed_out", first), ("missed", "2")]
    assert fire_at(partition, 5000) == 0  # now this one waits for the second
    assert partition.log()[-1] == ("queued", ids(partition)[1])
    partition.check()


def test_what_is_handled_in_time_lets_nothing_wait(partition: Partition) -> None:
    partition.upsert(every=1000, overlap="queue")
    for at in (1000, 2000, 3000):
        assert fire_at(partition, at) == 1
        assert partition.done(ids(partition)[-1]).outcome == "DONE"
        assert score_of(partition) == at + 1000
    assert partition.log() == []


def test_one_that_waits_is_told_once_however_often_it_is_looked_at(partition: Partition) -> None:
    partition.upsert(every=1000, overlap="queue", running_timeout=10_000)
    fire_at(partition, 1000)
    for at in (2000, 3000, 4000):
        partition.now = NOW + at
        partition.client.zadd(partition.key("due:acme"), {"acme\0k\0": NOW})
        partition.client.zadd(partition.key("heads"), {"acme": NOW})
        assert partition.fire().published == 0
    assert [what for what, _ in partition.log()] == ["queued"]


def test_a_paused_one_that_waited_goes_when_it_is_resumed(partition: Partition) -> None:
    partition.upsert(every=1000, overlap="queue", running_timeout=60_000)
    fire_at(partition, 1000)
    fire_at(partition, 2000)
    partition.edit("pause")
    assert partition.done(ids(partition)[0]).outcome == "DONE"
    partition.check()
    assert fire_at(partition, 3500) == 0
    partition.edit("resume")
    assert fire_at(partition, 3500) == 1
    assert told(partition) == [(1000, 0), (2000, 1)]
    partition.check()


# ------------------------------------------------------------------------------------------------ fixed delay


def test_a_fixed_delay_counts_from_the_firing_where_no_group_is_named(partition: Partition) -> None:
    partition.upsert(every=1000, fixed_delay=True)
    assert fire_at(partition, 1300) == 1
    assert at_of(partition) == 2300
    assert fire_at(partition, 9000) == 1
    assert at_of(partition) == 10_000
    assert told(partition) == [(1000, 0), (2300, 0)]  # it has no grid, so nothing was missed
    assert b"u" not in partition.record()
    assert partition.record()[b"t"] == b"2 0 0"
    partition.check()


def test_a_fixed_delay_counts_from_the_handling_by_its_group(partition: Partition) -> None:
    partition.upsert(every=1000, fixed_delay=True, ack_group="workers", running_timeout=60_000)
    assert fire_at(partition, 1000) == 1
    assert at_of(partition) == 62_000  # the latest, should nobody say that it is done
    assert fire_at(partition, 5000) == 0
    partition.client.delete(partition.key("wake"))
    change = partition.done(ids(partition)[0])
    assert (change.outcome, change.at_ms) == ("DONE", NOW + 6000)
    assert at_of(partition) == score_of(partition) == 6000
    assert partition.client.xlen(partition.key("wake")) == 1
    assert fire_at(partition, 6000) == 1
    partition.now = NOW + 8000
    assert partition.done(ids(partition)[1], "no luck").at_ms == NOW + 9000  # a failure is an end too
    assert told(partition) == [(1000, 0), (6000, 0)]
    partition.check()


def test_a_fixed_delay_does_not_wait_longer_than_the_running_time_out(partition: Partition) -> None:
    partition.upsert(every=1000, fixed_delay=True, ack_group="workers", running_timeout=5000)
    fire_at(partition, 1000)
    (first,) = ids(partition)
    assert fire_at(partition, 6999) == 0
    assert fire_at(partition, 7000) == 1  # an interval after its time was up
    assert partition.log() == [("timed_out", first)]
    assert partition.done(first).outcome == "NOT_PENDING"
    assert at_of(partition) == 13_000
    partition.check()


@pytest.mark.parametrize("group", [{}, {"ack_group": "workers", "running_timeout": 5000}], ids=["-", "group"])
def test_a_fixed_delay_ends_by_its_limit(partition: Partition, group: dict[str, Any]) -> None:
    partition.upsert(every=1000, fixed_delay=True, limit=2, **group)
    assert fire_at(partition, 1000) == 1
    if group:
        partition.done(ids(partition)[0])
    assert fire_at(partition, 2000) == 1
    assert partition.record() == {}
    assert partition.log() == [("ended", "limit 2")]
    if group:
        assert partition.done(ids(partition)[1]).outcome == "NOT_PENDING"
    partition.check()


def test_a_fixed_delay_ends_where_the_next_one_would_be_behind_until(partition: Partition) -> None:
    partition.upsert(every=1000, fixed_delay=True, until=NOW + 2000)
    fire_at(partition, 1000)
    assert at_of(partition) == 2000
    fire_at(partition, 2000)
    assert told(partition) == [(1000, 0), (2000, 0)]
    assert partition.record() == {}
    partition.check()


@pytest.mark.parametrize("handled_ms", [2000, 2001, None])
def test_a_fixed_delay_with_a_group_ends_where_the_handling_ends_it(
    partition: Partition, handled_ms: int | None
) -> None:
    partition.upsert(
        every=1000, fixed_delay=True, until=NOW + 3000, ack_group="workers", running_timeout=60_000
    )
    fire_at(partition, 1000)
    assert at_of(partition) == 62_000
    if handled_ms is None:
        assert fire_at(partition, 62_000) == 0
    else:
        partition.now = NOW + handled_ms
        change = partition.done(ids(partition)[0])
        assert (change.outcome, change.at_ms) == ("DONE", NOW + handled_ms + 1000)
    if handled_ms == 2000:
        assert at_of(partition) == 3000
    else:
        assert partition.record() == {}
        assert partition.log()[-1] == ("ended", "until 1")
    partition.check()


def test_a_fixed_delay_set_anew_waits_for_the_event_that_runs(partition: Partition) -> None:
    words: dict[str, Any] = {"fixed_delay": True, "ack_group": "workers", "running_timeout": 60_000}
    partition.upsert(every=1000, **words)
    fire_at(partition, 1000)
    (first,) = ids(partition)
    assert partition.upsert(every=500, **words).outcome == "REPLACED"
    assert at_of(partition) == 1500
    assert fire_at(partition, 1500) == 0
    assert at_of(partition) == score_of(partition) == 61_000 + 500
    assert partition.log()[-1][0] == "replaced"  # nothing is left out
    assert partition.done(first).at_ms == NOW + 2000
    assert fire_at(partition, 2000) == 1
    assert partition.record()[b"t"] == b"2 0 0"
    partition.check()


def test_a_paused_fixed_delay_remembers_when_it_was_handled(partition: Partition) -> None:
    partition.upsert(every=1000, fixed_delay=True, ack_group="workers")
    fire_at(partition, 1000)
    partition.edit("pause")
    partition.now = NOW + 3000
    assert partition.done(ids(partition)[0]).outcome == "DONE"
    assert at_of(partition) == 4000
    partition.check()
    assert fire_at(partition, 10_000) == 0
    partition.edit("resume")
    assert fire_at(partition, 10_000) == 1


# ------------------------------------------------------------------------------------------------ pause after failures


@pytest.mark.parametrize("more", [{}, {"overlap": "skip"}, {"overlap": "queue"}], ids=str)
def test_so_many_failures_in_a_row_pause_it(partition: Partition, more: dict[str, Any]) -> None:
    version = partition.upsert(every=1000, pause_after=2, **more).version
    outcomes = []
    for i, error in enumerate(["a", None, "b", 'c: no\nsuch "host"']):
        assert fire_at(partition, 1000 * (i + 1)) == 1
        outcomes.append(partition.done(ids(partition)[-1], error).outcome)
        failures = partition.record().get(b"q")
        assert failures == [b"1", None, b"1", b"2"][i]
    assert outcomes == ["DONE", "DONE", "DONE", "PAUSED"]
    stored = get(partition)
    assert (stored.state, stored.failures, stored.paused_by) == ("paused", 2, "timerq")
    assert stored.paused_note == '2 failures in a row: c: no\nsuch "host"'
    assert [(e["what"], e["note"], e["by"]) for e in partition.entries() if e["version"] == str(version)] == [
        ("failed", f"{ids(partition)[0]} a", ""), ("failed", f"{ids(partition)[2]} b", ""),
        ("failed", f"{ids(partition)[3]} c: no\nsuch \"host\"", ""),
        ("paused", "2 failures in a row: c: no\nsuch \"host\"", "timerq"),
    ]  # fmt: skip
    ((_, fields),) = partition.client.xrange(partition.key("s:errors"))
    assert (fields[b"type"], fields[b"id"]) == (b"schedule.paused", f"0-{version}-p{NOW + 4000}".encode())
    assert (fields[b"key"], fields[b"at"]) == (b"k", b"%d" % (NOW + 5000))
    assert json.loads(fields[b"payload"]) == {"reason": '2 failures in a row: c: no?such "host"'}
    assert fire_at(partition, 10_000) == 0
    partition.check()

    partition.edit("resume")
    assert get(partition).failures == 0
    assert fire_at(partition, 10_000) == 1
    assert partition.done(ids(partition)[-1], "d").outcome == "DONE"
    partition.check()


def test_one_event_fails_once(partition: Partition) -> None:
    partition.upsert(every=1000, pause_after=2)
    fire_at(partition, 1000)
    assert partition.done(ids(partition)[0], "no").outcome == "DONE"
    assert partition.done(ids(partition)[0], "no").outcome == "NOT_PENDING"
    assert get(partition).failures == 1


def test_events_that_overlap_are_each_handled(partition: Partition) -> None:
    partition.upsert(every=1000, pause_after=2)
    for at in (1000, 2000, 3000):
        fire_at(partition, at)
    first, second, third = ids(partition)
    assert partition.done(second, "no").outcome == "DONE"
    assert partition.done(first, "no").outcome == "PAUSED"
    assert partition.done(third, "no").outcome == "DONE"  # it is paused already
    assert get(partition).failures == 3
    assert [what for what, _ in partition.log()] == ["failed", "failed", "paused", "failed"]
    partition.check()


@pytest.mark.parametrize(("every", "outcome"), [(1000, "UNCHANGED"), (2000, "REPLACED")])
def test_an_upsert_that_lets_it_go_on_forgets_the_failures(
    partition: Partition, every: int, outcome: str
) -> None:
    partition.upsert(every=1000, pause_after=1)
    fire_at(partition, 1000)
    assert partition.done(ids(partition)[0], "no").outcome == "PAUSED"
    kept = partition.upsert(every=1000, pause_after=2)
    assert (kept.outcome, kept.state) == ("REPLACED", "paused")
    assert get(partition).failures == 1
    assert get(partition).paused_by == "timerq"
    gone_on = partition.upsert(every=every, pause_after=2, paused=False)
    assert (gone_on.outcome, gone_on.state) == (outcome, "armed")
    stored = get(partition)
    assert (stored.failures, stored.paused_by, stored.paused_note) == (0, None, None)
    partition.check()


def test_failures_outlive_a_change_of_the_definition(partition: Partition) -> None:
    partition.upsert(every=1000, pause_after=2)
    fire_at(partition, 1000)
    partition.done(ids(partition)[0], "no")
    partition.upsert(every=500, pause_after=2)
    fire_at(partition, 1500)
    assert partition.done(ids(partition)[1], "no").outcome == "PAUSED"


def test_a_failure_that_pauses_a_fixed_delay_leaves_it_where_it_goes_on(partition: Partition) -> None:
    partition.upsert(every=1000, fixed_delay=True, ack_group="workers", pause_after=1)
    fire_at(partition, 1000)
    partition.now = NOW + 4000
    change = partition.done(ids(partition)[0], "no")
    assert (change.outcome, change.at_ms) == ("PAUSED", NOW + 5000)
    assert at_of(partition) == 5000
    partition.check()
    partition.edit("resume")
    assert fire_at(partition, 5000) == 1
