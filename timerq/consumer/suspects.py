"""What was taken over from a consumer that has gone may be what it died of: such events begin a few at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

FIRST_S, MOST_S = 0.1, 10.0


def patience_s(attempt: int) -> float:
    """How long the others wait at the most for one that begins its ``attempt`` (from 2) to end (s).

    It grows with each death: in the end an event is alone, however long it takes until it kills its process.
    """
    return float(min(MOST_S, FIRST_S * 4 ** min(max(attempt - 2, 0), 10)))


class Suspects:
    """Whose turn it is, in one process: what dies with an event is what has begun, and that counts as an attempt.

    The first begins by itself, and each that has ended well lets one more begin beside the others: where a process was
    killed for no fault of its events, soon as many run as ever. One that is to be alone waits until nothing else is
    under way, and the others wait for it.
    """

    def __init__(self) -> None:
        self._most = 1
        self._under_way = 0
        self._is_alone = False
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def turn(self, attempt: int, *, alone: bool = False) -> AsyncIterator[None]:
        """Waits for its turn. It is over when the block ends, or when its time is up."""
        await self._wait(alone)
        is_over = False

        def end(well: bool) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._most += well
                self._under_way -= 1
                self._is_alone = False
                self._pass_on()

        timer = asyncio.get_running_loop().call_later(patience_s(attempt), end, False)
        try:
            yield
        finally:
            timer.cancel()
            end(True)

    async def _wait(self, alone: bool) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((alone, future))
        self._pass_on()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # it was just about to begin
                self._under_way -= 1
                self._is_alone = False
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            alone, future = self._waiting[0]
            if not future.done():  # done: whoever waited was cancelled
                if self._is_alone or self._under_way >= (1 if alone else self._most):
                    return
                self._under_way += 1
                self._is_alone = alone
                future.set_result(None)
            self._waiting.popleft()
