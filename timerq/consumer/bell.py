"""Rings when a stream has something new: an XREAD that stands open from the last entry known.

It is only the bell: what is to be handled is read by receive.lua. A time-out of a blocked read comes up to 100 ms late,
data ends it at once; so nobody waits for its time-out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from timerq.commands.entries import read_entries
from timerq.consumer.backoff import Backoff
from timerq.consumer.health import Health
from timerq.topology import REDIS_FAULTS, AsyncConnections

BLOCK_MS = 10_000
"""How long a read stands open; the connection's own time-out is longer."""

SOCKET_TIMEOUT_S = BLOCK_MS / 1000 + 5

_CANCEL_EVERY_S = 0.05
_PAUSES = Backoff(100, 5_000)


class Bell:
    """Listens to one stream; ``ring`` is called when something has come behind the last entry it was told of."""

    def __init__(
        self, connections: AsyncConnections, stream: bytes, health: Health, ring: Callable[[], None]
    ) -> None:
        self._connections = connections
        self._stream = stream
        self._health = health
        self._ring = ring
        self._seen: bytes | None = None
        self._task: asyncio.Task[None] | None = None

    def seen(self, entry: bytes) -> None:
        """Everything up to ``entry`` is known; after a fault of Redis that may be less than before."""
        self._seen = entry

    def listen(self) -> None:
        """Rings once; one that listens already goes on."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen())

    async def close(self) -> None:
        """Ends the read that stands open."""
        while self._task is not None and not self._task.done():
            self._task.cancel()  # more than once: one that comes just as a connection opens gets lost below
            await asyncio.wait({self._task}, timeout=_CANCEL_EVERY_S)

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                # after a fault the first read does not wait: whether it works is to be known at once
                found = await self._read(None if failures else BLOCK_MS)
            except REDIS_FAULTS as error:
                failures += 1
                if failures > 1:  # a single read that is cut short is nobody's trouble
                    self._health.failed(f"bell {self._stream!r}", error)
                await self._connections.forget_after(error)
                await asyncio.sleep(_PAUSES.wait_ms(failures, random.random()) / 1000)
                continue
            self._health.works(f"bell {self._stream!r}")
            failures = 0
            if found:
                self._ring()
                return

    async def _read(self, block_ms: int | None) -> bool:
        client = await self._connections.node_of(self._stream)
        after = self._seen or b"0-0"
        for _, entries in read_entries(await client.xread({self._stream: after}, count=1, block=block_ms)):
            for entry, _ in entries:
                self.seen(entry)
                return True
        return False
