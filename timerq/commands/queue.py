"""What waits while a call is on its way: calls that come meanwhile go together in the next one.

No timer and no added delay: the first call leaves at once, and whatever has gathered when its answer comes back leaves
then. Pure bookkeeping; the asynchronous client keeps one for each partition.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from timerq.commands.command import MAX_BYTES, MAX_ITEMS, Durability
from timerq.commands.items import Item

W = TypeVar("W")


@dataclass(slots=True)
class CallQueue(Generic[W]):
    """Calls of one partition in the order in which they were made; ``W`` is who waits for the answer."""

    waiting: deque[tuple[Item[Any], Durability | None, W]] = field(default_factory=deque)

    def add(self, item: Item[Any], durable: Durability | None, who: W) -> None:
        """Behind all others."""
        self.waiting.append((item, durable, who))

    def again(self, calls: list[tuple[Item[Any], Durability | None, W]]) -> None:
        """In front of all others, in order: what a script had no room for."""
        self.waiting.extendleft(reversed(calls))

    def take(self) -> list[tuple[Item[Any], Durability | None, W]]:
        """The next calls that fit one command: the same script and durability, in order. Empty when none waits."""
        calls: list[tuple[Item[Any], Durability | None, W]] = []
        size = 0
        while self.waiting:
            item, durable, _ = self.waiting[0]
            if calls:
                first, first_durable, _ = calls[0]
                if item.script != first.script or durable != first_durable:
                    break
                if len(calls) == MAX_ITEMS or size + item.size > MAX_BYTES:
                    break
            size += item.size
            calls.append(self.waiting.popleft())
        return calls
