"""Asks Redis for the events of one partition, and learns from each answer what time it is there."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from timerq.commands.command import MAX_ITEMS
from timerq.commands.consume import FROM_START, Received, receive
from timerq.consumer.desk import LATE_S

if TYPE_CHECKING:
    from timerq.commands.command import Command
    from timerq.consumer.desk import Desk
    from timerq.consumer.leader import Leader
    from timerq.consumer.service import Service


class Asking:
    """``page`` is where the next page of what is held already begins; None asks for what is to be handled now."""

    def __init__(self, service: Service, partition: int, leader: Leader | None, desk: Desk) -> None:
        self._service = service
        self._partition = partition
        self._leader = leader
        self._desk = desk
        self.largest = 1_000
        """Bytes of the largest payload yet."""

    def command(self, count: int, page: bytes | None = None) -> Command[Received]:
        """What is to be sent; with a ``count`` of 0 no new events, only those known already whose time has come."""
        service, app = self._service, self._service.app
        return receive(
            service.namespace,
            self._partition,
            app.stream,
            app.group,
            service.name,
            count=count or MAX_ITEMS,
            lease_ms=app.lease_ms,
            mine=page is not None,
            after=page or FROM_START,
            epoch=None if self._leader is None else self._leader.epoch,
            drop_superseded=app.drop_superseded,
            fresh=count > 0,
        )

    async def ask(self, count: int, page: bytes | None = None) -> Received:
        """Sends it; raises `TimerqError`."""
        sent_s = time.monotonic()
        self._desk.asks_what_it_holds(page is not None)
        received: Received
        (received,) = await self._service.link.send([self.command(count, page)])
        self._service.learn(received.now_us, sent_s)
        for raw in received.deliveries:
            raw.fresh_until_s = sent_s + LATE_S
            self.largest = max(self.largest, len(raw.fields.get(b"payload", b"")))
        return received


class Ahead:
    """The answer that is on its way while what came before is handled."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._next: tuple[asyncio.Task[Received], int] | None = None

    def __bool__(self) -> bool:
        return self._next is not None

    async def send(self, count: int, places: int) -> None:
        """Asks for ``count`` more, for which ``places`` are kept."""
        self._next = asyncio.get_running_loop().create_task(self._asking.ask(count)), places
        for _ in range(2):  # redis-py needs so many to send it
            await asyncio.sleep(0)

    def take(self) -> tuple[asyncio.Task[Received], int]:
        """The answer, to be awaited, and the places that are kept for it; only where there is one."""
        assert self._next is not None
        found, self._next = self._next, None
        return found
