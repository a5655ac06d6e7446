"""What tests of timerq's users need: a clock that moves only when told.

clock = ManualClock()
queue = TimerQueue.connect(url, namespace="test", clock=clock)
queue.init(clock="manual")
queue.upsert("k", Event("tick"), delay="30m")
clock.advance("30m")
assert fire_due(queue) == 1
queue.upsert("digest", Event("digest.due"), cron="0 9 * * *")
assert fire_until(queue, clock, "2027-01-01T00:00:00Z") == 365
"""

from __future__ import annotations

from datetime import datetime

from timerq.client import TimerQueue
from timerq.commands.dispatch import fire_all
from timerq.errors import InvalidSchedule
from timerq.model import to_datetime
from timerq.timing import Duration, Instant, resolve_duration, resolve_instant


class ManualClock:
    """A `Clock` that stands still until `advance` or `set` moves it; starts at 2026-01-01T00:00:00Z by default.

    For namespaces made with ``clock="manual"``; every other namespace refuses its time.
    """

    def __init__(self, start: Instant = "2026-01-01T00:00:00Z") -> None:
        self._now_ms = resolve_instant(start, field="start")

    def __call__(self) -> int:
        """Its time in epoch milliseconds."""
        return self._now_ms

    @property
    def now_ms(self) -> int:
        """Its time in epoch milliseconds."""
        return self._now_ms

    @property
    def now(self) -> datetime:
        """Its time as an aware UTC datetime."""
        return to_datetime(self._now_ms)

    def advance(self, duration: Duration) -> int:
        """Moves it on by a duration (ms as an int, timedelta, "30m", …); returns the new time in epoch ms."""
        self._now_ms += resolve_duration(duration, field="duration")
        return self._now_ms

    def set(self, instant: Instant) -> int:
        """Moves it to an instant, also backwards; returns the new time in epoch ms."""
        self._now_ms = resolve_instant(instant, field="instant")
        return self._now_ms


def fire_due(queue: TimerQueue) -> int:
    """Fires everything that is due by the queue's clock, of all tenants, with the scripts that a dispatcher calls.

    Returns how many events were published.
    """
    return queue.run(fire_all(queue.init())).published


def fire_until(queue: TimerQueue, clock: ManualClock, until: Instant) -> int:
    """Lets the time pass up to ``until``: moves ``clock``, the queue's, to each instant at which something is due, and
    fires it there, as a dispatcher would that is never late.

    What is due at ``until`` is fired too, and there the clock stands. Returns how many events were published. Raises
    `InvalidSchedule` for an instant that the clock has passed.
    """
    until_ms = resolve_instant(until, field="until")
    if until_ms < clock.now_ms:
        raise InvalidSchedule("until", until, f"want an instant that is not before the clock's, {clock.now}")
    namespace = queue.init()
    published = 0
    while True:
        fired = queue.run(fire_all(namespace))
        published += fired.published
        if clock.now_ms == until_ms:
            return published
        next_ms = until_ms if fired.wait_us is None else clock.now_ms + -(-fired.wait_us // 1000)
        clock.set(min(next_ms, until_ms))
