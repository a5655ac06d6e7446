"""Calendars that take long to answer: what is due meanwhile is fired in time, and none of them is forgotten."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from tests.support.events import Events
from timerq import Event, TimerQueue
from timerq.dispatcher import Dispatcher
from timerq.tail import Published
from timerq.timing import Plan, plan


def test_what_is_due_waits_for_one_slow_calendar_and_not_for_all(redis_url: str) -> None:
    def slow(id: bytes, definition: str, window: str, at_ms: int, now_ms: int, /) -> Plan:
        time.sleep(0.15)  # as the first answer of a calendar of a hundred expressions may take
        return plan(id, definition, window, at_ms, now_ms)

    def twice(found: Sequence[Published]) -> bool:
        seen = Counter(event.key for event in found)
        return all(seen[f"slow:{n}"] > 1 for n in range(30))

    with TimerQueue.connect(redis_url) as queue:
        queue.init()
        for n in range(30):
            queue.upsert(f"slow:{n}", Event("t"), cron="* * * * * *")
        queue.upsert("quick", Event("t"), every="100ms")
        with Dispatcher(redis_url, planner=slow), Events(redis_url, queue.namespace) as events:
            # A round of them takes 4.5 s; the second one shows that what was left for later is asked about too.
            found = events.wait(twice, 60)
        late_ms = [event.fired_ms - event.at_ms for event in found if event.key == "quick"]
        assert len(late_ms) > 10
        assert sorted(late_ms)[len(late_ms) // 2] < 1000
