"""How a kit gives events to handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from timerq.commands.calling import yields
from timerq.errors import InvalidSchedule
from timerq.tail import Published

if TYPE_CHECKING:
    from timerq.testing.kit import TestQueue

Handler: TypeAlias = Callable[[Published], Any]
"""Is called with an event; what it returns is awaited where it can be."""


class Drained(NamedTuple):
    """What `Handling.drain` did: how many events it handled, and when it next has something to do (epoch ms).

    ``next_ms`` is what no schedule tells: a retry, a lease that runs out. None: it waits for events alone.
    """

    handled: int
    next_ms: int | None = None

    def also(self, other: Drained) -> Drained:
        """What both did."""
        times_ms = [ms for ms in (self.next_ms, other.next_ms) if ms is not None]
        return Drained(self.handled + other.handled, min(times_ms, default=None))


@runtime_checkable
class Handling(Protocol):
    """Something with a life of its own behind the streams, as a consumer with groups and retries has."""

    def drain(self, kit: TestQueue, /) -> Drained | Awaitable[Drained]:
        """Handles everything that can be handled at the kit's present instant, and does not wait for more.

        Called at each instant at which something was due, and again until it says that it handled nothing. What it
        raises ends the kit's `advance`.
        """
        ...


Handlers: TypeAlias = Mapping[str, Handler] | Handling | Sequence[Handling]
"""A mapping of event types to handlers, or what drains the streams by itself: one, or several that take turns."""


def check_handlers(handlers: object) -> None:
    """Raises `InvalidSchedule` for what is no kind of `Handlers`."""
    if isinstance(handlers, Mapping):
        for event_type, handler in handlers.items():
            if not isinstance(event_type, str) or not callable(handler):
                raise InvalidSchedule("handlers", {event_type: handler}, "want event types and callables")
            if yields(handler):
                want = "want functions that return, not ones that yield"
                raise InvalidSchedule("handlers", {event_type: handler}, want)
    elif handlers is not None and not all(isinstance(each, Handling) for each in drains(handlers)):
        raise InvalidSchedule(
            "handlers",
            handlers,
            "want a mapping of event types to callables, or objects with a method drain(kit): one, or a list of them",
        )


def drains(handlers: object) -> Sequence[Any]:
    """What is no mapping, as those that drain: those of a list in their order."""
    return handlers if isinstance(handlers, (list, tuple)) else (handlers,)
