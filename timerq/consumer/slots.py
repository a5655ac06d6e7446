"""How many handlings may run at once: pure bookkeeping, for one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Slots:
    """A number of places that readers take before they read, so that nothing is read which cannot be started."""

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._watchers: list[Callable[[], None]] = []
        self._closed = False

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._waiting)

    def watch(self, on_free: Callable[[], None]) -> None:
        """``on_free`` is called whenever places have come free."""
        self._watchers.append(on_free)

    async def take(self, most: int) -> int:
        """Waits, in turn, until a place is free; takes up to ``most`` and says how many: none once closed."""
        if self.free and not self._waiting and not self._closed:
            return self.take_now(most)
        first = False
        while not self._closed:
            future = asyncio.get_running_loop().create_future()
            # whoever was woken for nothing, since a reader that does not wait was quicker, keeps its turn
            (self._waiting.appendleft if first else self._waiting.append)(future)
            try:
                await future
            except asyncio.CancelledError:
                if not future.cancelled() and self.free:  # it was just about to get one
                    self._pass_on()
                raise
            if self.free:
                return self.take_now(most)
            first = True
        return 0

    def close(self) -> None:
        """Nobody is to start anything any more: those who wait get nothing."""
        self._closed = True
        while self._waiting:
            self._pass_on()

    def take_now(self, most: int) -> int:
        """Up to ``most`` of the free places, without waiting; says how many."""
        taken = min(most, self.free)
        self.free -= taken
        if self.free:
            self._pass_on()
        return taken

    def give(self, places: int) -> None:
        """Gives places back."""
        if not places:
            return
        self.free += places
        self._pass_on()
        for on_free in self._watchers:
            on_free()

    def _pass_on(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():  # done: whoever waited was cancelled
                future.set_result(None)
                return
