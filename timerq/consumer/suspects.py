"""What was taken over from a consumer that has gone may be what it died of: such events begin one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

FIRST_S, MOST_S = 0.1, 10.0


def patience_s(attempt: int) -> float:
    """How long the others wait at the most for one that begins its ``attempt`` (from 2) to end (s).

    It grows with each death: in the end an event is alone, however long it takes until it kills its process.
    """
    return float(min(MOST_S, FIRST_S * 4 ** min(max(attempt - 2, 0), 10)))


class Suspects:
    """Whose turn it is, in one process: what dies with an event is what has begun, and that counts as an attempt."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, attempt: int) -> AsyncIterator[None]:
        """Waits for its turn. The next one's comes when the block ends, or this one's time is up."""
        await self._lock.acquire()
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._lock.release()

        timer = asyncio.get_running_loop().call_later(patience_s(attempt), end)
        try:
            yield
        finally:
            timer.cancel()
            end()
