"""A bell that is closed ends, whatever becomes of its cancellation on the way; what its hand takes is not lost."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from timerq.commands.consume import RawDelivery, Received
from timerq.consumer.bell import Bell
from timerq.consumer.hand import Hand
from timerq.consumer.health import Health
from timerq.consumer.slots import Slots


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


def test_what_could_not_be_begun_is_asked_for_anew(caplog: pytest.LogCaptureFixture) -> None:
    def take(received: Received, places: int) -> int:
        raise ValueError("odd")

    woken: list[bool] = []
    service: Any = SimpleNamespace(slots=Slots(5), now_ms=lambda: 1000)
    asking: Any = None
    hand = Hand(service, asking, 10, take, lambda: woken.append(True))
    hand.bring(Received(1_000_000, [RawDelivery(b"1-1", 1, 1, 0, {})]))
    assert "a fault of timerq's own" in caplog.text
    assert (hand.is_unsure(), hand.is_unsure(), hand.brought(), woken) == (True, False, None, [True])
    assert service.slots.free == 5
