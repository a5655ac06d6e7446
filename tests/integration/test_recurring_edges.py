"""Recurring schedules at their edges: set again when they are about to end, from far away, and by what is read once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest

from tests.support.proxy import Proxy
from timerq import Event, InvalidSchedule, Outcome, TimerQueue, preview
from timerq.commands.arming import Upsert, timing_of
from timerq.commands.rehearsal import rehearse
from timerq.model import Rule
from timerq.testing import ManualClock, fire_due

EVENT = Event("t")
UNTIL = "2026-01-01T02:20:00Z"
KINDS: list[dict[str, Any]] = [
    {"every": "1h"},
    {"every": "1h", "misfire": "skip"},
    {"every": "1h", "jitter": "1s"},
    {"cron": "0 * * * *"},
]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lab(redis_url: str, clock: ManualClock) -> Iterator[TimerQueue]:
    with TimerQueue.connect(redis_url, clock=clock) as queue:
        queue.init(clock="manual")
        yield queue


def dry_run(lab: TimerQueue, clock: ManualClock, **words: Any) -> Any:
    return lab.run(rehearse(lab._open(), Upsert("k", EVENT, **words), clock.now_ms)).outcome


@kinds
def test_one_whose_last_occurrence_waits_is_unchanged_when_it_is_set_again(
    lab: TimerQueue, clock: ManualClock, kind: dict[str, Any]
) -> None:
    lab.upsert("k", EVENT, until=UNTIL, **kind)
    clock.set("2026-01-01T01:00:10Z")
    assert fire_due(lab) == 1
    for now in ("2026-01-01T01:30:00Z", "2026-01-01T02:10:00Z", "2026-01-01T03:00:00Z"):
        clock.set(now)
        assert dry_run(lab, clock, until=UNTIL, **kind) is Outcome.UNCHANGED
        assert lab.upsert("k", EVENT, until=UNTIL, **kind).outcome is Outcome.UNCHANGED
        for other in ({"restart": True}, {"reset": True}, {"limit": 9}):
            if now > UNTIL:
                with pytest.raises(InvalidSchedule, match="until"):
                    dry_run(lab, clock, until=UNTIL, **kind, **other)
                with pytest.raises(InvalidSchedule, match="until"):
                    lab.upsert("k", EVENT, until=UNTIL, **kind, **other)
    with pytest.raises(InvalidSchedule, match="until"):
        lab.upsert("other", EVENT, until=UNTIL, **kind)


@pytest.mark.one_server
def test_a_period_shorter_than_the_way_to_redis_ends_in_a_schedule(redis_url: str) -> None:
    with Proxy(redis_url) as proxy:
        proxy.delay_ms = 10
        with TimerQueue.connect(proxy.url) as queue:
            queue.init()
            assert queue.upsert("k", EVENT, every="5ms", jitter="2ms").outcome is Outcome.CREATED


def test_what_can_be_read_only_once_is_read_once(lab: TimerQueue, clock: ManualClock) -> None:
    def words() -> dict[str, Any]:
        return {"cron": iter(["0 9 * * *"]), "exclude": iter([dt.date(2026, 1, 1), dt.date(2026, 1, 3)])}

    assert dry_run(lab, clock, **words()) is Outcome.CREATED
    handle = lab.upsert("k", EVENT, **words())
    stored = lab.get("k")
    assert handle.schedule is not None
    assert stored is not None
    assert handle.schedule.timing == stored.timing
    assert stored.timing.rule == Rule(("0 9 * * *",), exclude=("2026-01-01", "2026-01-03"))
    assert dry_run(lab, clock, **words()) is Outcome.UNCHANGED
    assert [item.action for item in lab.plan_set("s", [Upsert("a", EVENT, **words())]).items] == ["create"]
    applied = lab.apply_set("s", [Upsert("a", EVENT, **words())])
    assert [
        item.outcome for item in applied.items if item is not None and not isinstance(item, Exception)
    ] == [Outcome.CREATED]
    (one,) = lab.upsert_many([{"key": "k", "event": EVENT, **words()}])
    assert not isinstance(one, Exception)
    assert one.outcome is Outcome.UNCHANGED
    assert one.schedule == lab.get("k")


@pytest.mark.parametrize(
    "words", [{"cron": repeat("@daily")}, {"cron": "@daily", "exclude": repeat("2026-01-01")}]
)
def test_what_never_ends_is_refused(lab: TimerQueue, words: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchedule, match=r"want (1 to 100|at most 1,000)"):
        preview(**words)
    with pytest.raises(InvalidSchedule, match=r"want (1 to 100|at most 1,000)"):
        lab.upsert("k", EVENT, **words)


def test_the_order_of_a_set_is_no_change() -> None:
    days = [f"2026-12-{day}" for day in range(10, 30)]
    for texts in (set(days), dict.fromkeys(reversed(days)).keys()):
        wanted = Upsert("k", EVENT, cron={"0 10 * * *", "0 9 * * *"}, exclude=texts)
        rule = timing_of(wanted).rule
        assert rule == Rule(("0 10 * * *", "0 9 * * *"), exclude=tuple(days))


@pytest.mark.parametrize(
    "words",
    [
        # 40 minutes apart, and ten where the first is moved to three o'clock
        {"cron": ["30 2 * * *", "10 3 * * *"], "timezone": "Europe/Paris", "jitter": "15m"},
        {"cron": ["0 9 * * *", "5 9 1 7 *"], "jitter": "10m"},
    ],
)
def test_a_jitter_that_was_taken_once_is_taken_on_every_day(
    lab: TimerQueue, clock: ManualClock, words: dict[str, Any]
) -> None:
    assert lab.upsert("k", EVENT, **words).outcome is Outcome.CREATED
    for now in ("2026-03-20T00:00:00Z", "2026-06-20T00:00:00Z", "2026-06-30T12:00:00Z"):
        clock.set(now)
        assert lab.upsert("k", EVENT, **words).outcome is Outcome.UNCHANGED
        found = preview(**words, after=now, n=40)
        assert found == sorted(set(found))


def test_a_jitter_as_long_as_the_period_is_refused_on_every_day() -> None:
    for after in ("1970-01-01T00:00:00Z", "2026-06-20T00:00:00Z", "9999-12-01T00:00:00Z"):
        with pytest.raises(InvalidSchedule, match="shorter than the shortest period"):
            preview(cron="0 9 * * *", jitter="1d", after=after)
