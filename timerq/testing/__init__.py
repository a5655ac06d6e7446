"""What tests of timerq's users need: time that passes only when told, and everything due fired by the real scripts.

    with TestQueue() as kit:
        kit.queue.upsert("reminder:42", Event("reminder"), delay="30m")
        assert_scheduled(kit, "reminder:42", within="30m")
        (event,) = kit.advance("30m")
        assert event.key == "reminder:42"

clock     ManualClock                           kit        TestQueue
server    the Redis behind a kit                clients    the clients of its namespace
arrivals  the events on its streams             handling   how handlers are given them
drive     awaits those that are async           asserts    assert_scheduled, assert_not_scheduled
firing    fire_due, fire_until: for a queue that is no kit's
plugin    the pytest fixtures timer_queue, manual_clock

docs/testing.md shows each. fakeredis (the extra ``testing``) and pytest are needed only where they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# The plugin, which every run of pytest loads, lies beside them: each room is loaded when something of it is asked for.
_ROOMS = {
    "asserts": "assert_not_scheduled assert_scheduled",
    "clock": "ManualClock",
    "firing": "fire_due fire_until",
    "handling": "Drained Handler Handlers Handling",
    "kit": "TestQueue",
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names.split()}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Loads the room of a public name."""
        room = _ROOM_OF.get(name)
        if room is None:
            raise AttributeError(f"module 'timerq.testing' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"timerq.testing.{room}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
