"""A bell that is closed ends, whatever becomes of its cancellation on the way."""

from __future__ import annotations

import asyncio
from typing import Any

from timerq.consumer.bell import Bell
from timerq.consumer.health import Health


class Deaf:
    """Connections on which a first cancellation gets lost, as it does where a connection just opens."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.lost = 0

    async def node_of(self, key: bytes) -> Deaf:
        return self

    async def xread(self, streams: dict[bytes, bytes], *, count: int, block: int | None) -> list[Any]:
        self.begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.lost += 1
            await asyncio.sleep(60)
        return []


def test_a_bell_whose_cancellation_gets_lost_is_closed_all_the_same() -> None:
    async def main() -> int:
        connections = Deaf()
        bell = Bell(connections, b"s", Health(), ring=lambda: None)  # type: ignore[arg-type]
        bell.listen()
        await connections.begun.wait()
        async with asyncio.timeout(10):
            await bell.close()
            await bell.close()
        return connections.lost

    assert asyncio.run(main()) == 1
