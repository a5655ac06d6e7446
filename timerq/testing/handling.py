"""How a kit gives events to handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

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


@runtime_checkable
class Handling(Protocol):
    """Something with a life of its own behind the streams, as a consumer with groups and retries has."""

    def drain(self, kit: TestQueue, /) -> Drained | Awaitable[Drained]:
        """Handles everything that can be handled at the kit's present instant, and does not wait for more.

        Called at each instant at which something was due, and again until it says that it handled nothing. What it
        raises ends the kit's `advance`.
        """
        ...


Handlers: TypeAlias = Mapping[str, Handler] | Handling
"""A mapping of event types to handlers, or something that drains the streams by itself."""


def check_handlers(handlers: object) -> None:
    """Raises `InvalidSchedule` for what is neither kind of `Handlers`."""
    if isinstance(handlers, Mapping):
        for event_type, handler in handlers.items():
            if not isinstance(event_type, str) or not callable(handler):
                raise InvalidSchedule("handlers", {event_type: handler}, "want event types and callables")
    elif handlers is not None and not isinstance(handlers, Handling):
        raise InvalidSchedule(
            "handlers",
            handlers,
            "want a mapping of event types to callables, or an object with a method drain(kit)",
        )
