"""fire.lua and advance.lua with the calendars themselves: what becomes of occurrences that nobody was there to fire."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.lua.test_policies import at_of, both_kinds, fire_at, told
from tests.support.partition import NOW, Partition
from timerq.commands import read
from timerq.commands.dispatch import LEASE_MS, Advance, ask, fire_all
from timerq.commands.recurring import next_of
from timerq.timing import Plan, plan

YEAR_MS = 365 * 86_400_000


def totals(partition: Partition) -> tuple[int, int, int]:
    fired, missed, skipped = map(int, partition.record()[b"t"].split())
    return fired, missed, skipped


def skipped(partition: Partition) -> list[str]:
    return [note for what, note in partition.log() if what == "skipped"]


# ------------------------------------------------------------------------------------------------ each policy


@both_kinds
def test_fire_once_folds_what_was_missed_into_one_event(partition: Partition, kind: dict[str, Any]) -> None:
    partition.upsert(**kind)
    assert fire_at(partition, 10_300) == 1
    assert told(partition) == [(1000, 9)]
    assert totals(partition) == (1, 9, 0)
    assert at_of(partition) == 11_000
    assert partition.log() == [("missed", "9")]
    assert fire_at(partition, 11_000) == 1
    assert told(partition)[1:] == [(11_000, 0)]
    partition.check()


@both_kinds
def test_skip_leaves_out_what_is_overdue_by_more_than_its_grace(
    partition: Partition, kind: dict[str, Any]
) -> None:
    partition.upsert(**kind, misfire="skip", grace=2500)
    assert fire_at(partition, 10_300) == 1
    assert told(partition) == [(8000, 2)]  # 7,800 ms and later are within the grace
    assert totals(partition) == (1, 2, 7)
    assert skipped(partition) == ["7 too late"]
    assert ("missed", "2") in partition.log()
    assert partition.client.hget(partition.key("meta"), "skipped") == b"7"
    assert partition.record()[b"s"].endswith(b" 1")
    assert fire_at(partition, 11_000) == 1
    assert told(partition)[1:] == [(11_000, 0)]
    partition.check()


@pytest.mark.parametrize(("late_ms", "published"), [(0, 1), (9999, 1), (10_000, 1), (10_001, 0)])
def test_a_grace_ends_at_its_very_millisecond(partition: Partition, late_ms: int, published: int) -> None:
    partition.upsert(cron="20 * * * *", misfire="skip")  # 13:20 past NOW, 15:06:40
    at = at_of(partition)
    assert fire_at(partition, at + late_ms) == published
    assert told(partition) == [(at, 0)] * published
    assert totals(partition) == (published, 0, 1 - published)
    assert at_of(partition) == at + 3_600_000
    assert partition.record()[b"s"].split(b" ")[0::4] == [b"a", b"%d" % published]
    partition.check()
    assert fire_at(partition, at + 3_600_000) == 1
    partition.check()


@both_kinds
def test_skip_ends_a_schedule_of_which_nothing_is_left(partition: Partition, kind: dict[str, Any]) -> None:
    partition.upsert(**kind, misfire="skip", grace=500, until=NOW + 5500)
    assert fire_at(partition, 60_000) == 0
    assert partition.record() == {}
    assert partition.log() == [("skipped", "5 too late"), ("ended", "until 0")]
    assert partition.client.hget(partition.key("meta"), "skipped") == b"5"
    partition.check()


@both_kinds
@pytest.mark.parametrize(
    ("most", "first"), [(1, 10), (3, 8), (9, 2), (10, 1), (11, 1), (1000, 1)], ids=lambda n: str(n)
)
def test_catch_up_publishes_each_one_the_last_of_them_in_order(
    partition: Partition, kind: dict[str, Any], most: int, first: int
) -> None:
    partition.upsert(**kind, misfire="catch_up", max_catch_up=most)
    assert fire_at(partition, 10_300) == 11 - first
    assert told(partition) == [(at * 1000, 0) for at in range(first, 11)]
    assert [event["n"] for event in partition.events()] == [str(n + 1) for n in range(11 - first)]
    assert totals(partition) == (11 - first, 0, first - 1)
    assert skipped(partition) == ([f"{first - 1} over max_catch_up"] if first > 1 else [])
    assert at_of(partition) == 11_000
    partition.check()


@both_kinds
def test_catch_up_ends_by_limit_and_until(partition: Partition, kind: dict[str, Any]) -> None:
    partition.upsert(**kind, misfire="catch_up", limit=4)
    assert fire_at(partition, 10_300) == 4
    assert told(partition) == [(at, 0) for at in (1000, 2000, 3000, 4000)]
    assert partition.record() == {}
    partition.now = NOW
    partition.client.delete(partition.key("s:events"))
    partition.upsert(**kind, misfire="catch_up", until=NOW + 3000)
    assert fire_at(partition, 10_300) == 3
    assert told(partition) == [(at, 0) for at in (1000, 2000, 3000)]
    assert partition.record() == {}
    partition.check()


@both_kinds
@pytest.mark.parametrize("misfire", ["fire_once", "skip", "catch_up"])
def test_what_comes_in_time_is_published_whatever_the_policy(
    partition: Partition, kind: dict[str, Any], misfire: Any
) -> None:
    partition.upsert(**kind, misfire=misfire)
    for at in range(1000, 6000, 1000):
        assert fire_at(partition, at + 2) == 1
    assert told(partition) == [(at, 0) for at in range(1000, 6000, 1000)]
    assert totals(partition) == (5, 0, 0)
    assert partition.log() == []


@pytest.mark.parametrize("misfire", ["fire_once", "skip", "catch_up"])
def test_a_year_of_minutes_that_nobody_fired_costs_milliseconds(partition: Partition, misfire: Any) -> None:
    partition.upsert(cron="* * * * *", misfire=misfire)
    first = at_of(partition)
    partition.now = NOW + YEAR_MS
    calls = partition.seq
    began = time.process_time()  # of this process: what else the machine does is not counted
    published, _ = partition.drain()
    took_s = time.process_time() - began
    fired, missed, left_out = totals(partition)
    assert fired == published == (100 if misfire == "catch_up" else 1 if misfire == "fire_once" else 0)
    assert fired + missed + left_out == (YEAR_MS - first) // 60_000 + 1
    assert (missed > 0, left_out > 0) == (misfire == "fire_once", misfire != "fire_once")
    assert partition.seq - calls <= 4 * (published + 2)
    assert took_s < 0.1 + 0.02 * published  # a loop over the year takes more than a second
    partition.check()


# ------------------------------------------------------------------------------------------------ jitter and zones


def test_an_interval_with_a_policy_begins_as_a_plain_one_does(partition: Partition) -> None:
    for words in (
        {},
        {"initial_delay": 0},
        {"initial_delay": 7000},
        {"start": NOW + 300},
        {"start": NOW - 300},
    ):
        plain = partition.upsert("plain", every=1000, **words).at_ms  # type: ignore[arg-type]
        for misfire in ("skip", "catch_up"):
            made = partition.upsert(f"{misfire}", every=1000, misfire=misfire, **words)  # type: ignore[arg-type]
            assert made.at_ms == plain, words


def test_what_jitter_puts_off_is_missed_when_it_was_due_and_told_as_it_would_have_been(
    partition: Partition,
) -> None:
    partition.upsert(every=1000, jitter=900)
    schedule = partition.run(read.get(partition.scope, "k"))
    expected = partition.run(_next(partition, 50))
    assert [ms // 1000 for ms in expected] == [
        NOW // 1000 + i for i in range(expected[0] // 1000 - NOW // 1000, 50)
    ]
    assert len({ms % 1000 for ms in expected}) > 20
    assert schedule.at_ms == expected[0]
    for at_ms in expected[:10]:
        partition.now = at_ms - 1
        assert partition.drain()[0] == 0
        partition.now = at_ms
        assert partition.drain()[0] == 1
    assert [NOW + at for at, _ in told(partition)] == expected[:10]
    partition.now = expected[30]
    partition.drain()
    assert told(partition)[-1] == (expected[10] - NOW, 20)
    partition.check()


def _next(partition: Partition, n: int) -> Any:
    instants = yield from next_of(partition.scope, "k", None, n)
    return [round(instant.timestamp() * 1000) for instant in instants]


def test_a_clock_change_moves_a_job_and_fires_it_once(partition: Partition) -> None:
    partition.now = 1_743_240_000_000  # 2025-03-29T09:20:00Z
    partition.upsert(cron="30 2 * * *", timezone="Europe/Paris")
    for at_ms in (1_743_296_400_000, 1_743_381_000_000):  # 03:00 for 02:30 on the 30th, 02:30 on the 31st
        assert int(partition.record()[b"s"].split(b" ")[2]) == at_ms
        partition.now = at_ms
        assert partition.drain()[0] == 1
    partition.check()


# ------------------------------------------------------------------------------------------------ late answers


@both_kinds
def test_a_calendar_that_is_asked_late_for_what_follows_folds_nothing_away(
    partition: Partition, kind: dict[str, Any]
) -> None:
    words: dict[str, Any] = {} if "cron" in kind else {"misfire": "catch_up"}
    partition.upsert(**kind, **words)
    partition.now = NOW + 2500
    (claimed,) = partition.fire().handovers
    partition.advance(ask(plan, claimed, partition.now))
    partition.now = NOW + 4500  # what follows is due by now too, and one more
    fired = partition.fire()
    assert fired.published == 1
    (refill,) = fired.handovers
    assert refill.word == "refill"
    partition.advance(ask(plan, refill, partition.now))
    partition.drain()
    slots = [slot for at, missed in told(partition) for slot in range(at, at + 1000 * missed + 1, 1000)]
    assert slots == [1000, 2000, 3000, 4000]
    partition.check()


def test_a_claim_that_was_answered_and_not_fired_for_long_is_asked_again_by_its_grace(
    partition: Partition,
) -> None:
    partition.upsert(cron="20 * * * *", misfire="skip", grace=60_000)
    at = at_of(partition)
    partition.now = NOW + at + 30_000
    record = partition.record()[b"s"].split(b" ")
    partition.client.hset(partition.record_key(), "s", b" ".join([*record[:3], b"-", record[4]]))
    (claimed,) = partition.fire().handovers
    assert partition.advance(ask(plan, claimed, partition.now)) == ["ADVANCED"]
    assert partition.record()[b"m"] == b"0"
    partition.now = NOW + at + 60_001  # nobody fired it in time
    assert partition.drain()[0] == 0
    assert b"m" not in partition.record()
    assert skipped(partition) == ["1 too late"]
    assert at_of(partition) == at + 3_600_000
    partition.check()


def test_a_claim_is_handed_over_again_after_its_lease_and_what_it_missed_meanwhile_is_counted_once(
    partition: Partition,
) -> None:
    partition.upsert(cron="* * * * * *")
    partition.now = NOW + 2000
    (first,) = partition.fire().handovers
    partition.now += LEASE_MS
    (second,) = partition.fire().handovers
    late, early = ask(plan, first, NOW + 2000), ask(plan, second, partition.now)
    assert (late.missed, early.missed) == (1, 6)
    assert partition.advance(early, late) == ["ADVANCED", "STALE"]
    partition.drain()
    assert told(partition) == [(1000, 6)]
    assert totals(partition) == (1, 6, 0)


def test_an_advance_leaves_out_and_ends_only_what_it_was_asked_about(partition: Partition) -> None:
    partition.calendar(at=NOW, following=None)
    (claimed,) = partition.fire().handovers
    ended = Advance(claimed, 0, 0, skipped=3)
    partition.upsert(every=1000)
    before = partition.record()
    assert partition.advance(ended) == ["STALE"]
    assert partition.record() == before
    assert partition.client.hget(partition.key("meta"), "skipped") is None
    partition.cancel()
    assert partition.advance(ended) == ["STALE"]
    partition.check()


def test_two_things_said_of_one_claim_take_effect_once(partition: Partition) -> None:
    partition.calendar(at=NOW, following=None)
    (claimed,) = partition.fire().handovers
    step = Advance(claimed, NOW + 50, NOW + 60, skipped=2)
    assert partition.advance(step, step) == ["ADVANCED", "STALE"]
    assert partition.record()[b"t"] == b"0 0 2"
    assert partition.advance(step) == ["STALE"]
    assert skipped(partition) == ["2 too late"]
    assert partition.client.hget(partition.key("meta"), "skipped") == b"2"
    assert b"m" not in partition.record()
    partition.check()


def test_what_is_left_out_leaves_n_and_makes_the_next_event_the_first(partition: Partition) -> None:
    version = partition.upsert(cron="20 * * * *", misfire="skip").version
    at = at_of(partition)
    fire_at(partition, at + 60_000)
    fire_at(partition, at + 3_600_000)
    (event,) = partition.events()
    assert (event["id"], event["n"], event["missed"]) == (f"0-{version}-1", "1", "0")


# ------------------------------------------------------------------------------------------------ planners of others


def test_a_planner_that_raises_holds_its_schedule_alone(partition: Partition) -> None:
    partition.upsert("bad", cron="* * * * * *")
    partition.upsert("good", cron="* * * * * *")

    def choosy(id: bytes, definition: str, window: str, at_ms: int, now_ms: int) -> Plan:
        if b"bad" in id:
            raise ValueError('no "such"\nzone')
        return plan(id, definition, window, at_ms, now_ms)

    partition.now = NOW + 5000
    partition.run(fire_all(partition.namespace, choosy))
    assert [event["key"] for event in partition.events()] == ["good"]
    held = partition.run(read.get(partition.scope, "bad"))
    assert (held.state, held.held) == ("held", 'ValueError: no "such"\nzone')
    ((_, fields),) = partition.client.xrange(partition.key("s:errors"))
    assert (fields[b"type"], fields[b"key"]) == (b"schedule.held", b"bad")
    assert json.loads(fields[b"payload"]) == {"reason": 'ValueError: no "such"?zone'}
    partition.check()
    partition.now += 1000
    assert partition.drain()[0] == 2
    assert [event["key"] for event in partition.events()].count("bad") == 1
    partition.check()
