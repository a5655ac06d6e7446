"""Firing without a dispatcher, at a queue of one's own making."""

from __future__ import annotations

from timerq.client import TimerQueue
from timerq.commands.dispatch import fire_all
from timerq.errors import InvalidSchedule
from timerq.testing.clock import ManualClock
from timerq.timing import Instant, resolve_instant


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
