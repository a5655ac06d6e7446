"""What tests of timerq's users need: time that passes only when told, and everything due fired by the real scripts.

    with TestQueue() as kit:
        kit.queue.upsert("reminder:42", Event("reminder"), delay="30m")
        assert_scheduled(kit, "reminder:42", within="30m")
        (event,) = kit.advance("30m")
        assert event.key == "reminder:42"

clock     ManualClock                           kit        TestQueue
server    the Redis behind a kit                arrivals   the events on its streams
handling  how handlers are given them           asserts    assert_scheduled, assert_not_scheduled
firing    fire_due, fire_until: for a queue that is no kit's
plugin    the pytest fixtures timer_queue, manual_clock

docs/testing.md shows each. fakeredis (the extra ``testing``) and pytest are needed only where they are used.
"""

from __future__ import annotations

from timerq.testing.asserts import assert_not_scheduled, assert_scheduled
from timerq.testing.clock import ManualClock
from timerq.testing.firing import fire_due, fire_until
from timerq.testing.handling import Drained, Handler, Handlers, Handling
from timerq.testing.kit import TestQueue

__all__ = [
    "Drained",
    "Handler",
    "Handlers",
    "Handling",
    "ManualClock",
    "TestQueue",
    "assert_not_scheduled",
    "assert_scheduled",
    "fire_due",
    "fire_until",
]
