"""Recurring schedules at their edges: set again when they are about to end, from far away, and by what is read once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.proxy import Proxy
from timerq import Event, InvalidSchedule, Outcome, TimerQueue
from timerq.commands.arming import Upsert
from timerq.commands.rehearsal import rehearse
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
