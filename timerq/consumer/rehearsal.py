"""A consumer inside a test kit: it takes its turns when the kit's clock has stopped, and never waits by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from timerq import keys
from timerq.consumer.service import Service
from timerq.errors import TimerqError
from timerq.exchange import Place, unavailable
from timerq.testing import Drained, TestQueue
from timerq.topology import REDIS_FAULTS

if TYPE_CHECKING:
    from timerq.consumer.app import Consumer


_TURNS: WeakKeyDictionary[TestQueue, dict[tuple[str, str], Rehearsal]] = WeakKeyDictionary()
"""Of each kit, and of each stream and group in it, who took the last turn."""


class Rehearsal:
    """What runs of an app in one kit, from the first `drain` until the kit closes. For the kit's event loop."""

    def __init__(self, service: Service, kit: TestQueue, own: Place) -> None:
        self._service = service
        self._app = service.app
        self.kit = kit
        self.own = own
        """Where the app's queue is when no kit runs it."""

    async def open(self) -> None:
        """Finds the namespace."""
        await self._service.open()

    async def drain(self) -> Drained:
        """Reads and handles until there is nothing more to do at this instant."""
        service = self._service
        before = self._settled()
        turns = _TURNS.setdefault(self.kit, {})
        other = turns.setdefault((self._app.stream, self._app.group), self)
        if other is not self:
            await other.leave()
            turns[self._app.stream, self._app.group] = self
        for reader in service.readers:
            await reader.keep()  # in the kit's time, leases may have ended while nothing went on
            await reader.desk.outbox.flush()  # a read that overtook it would take over what is held here
        while True:
            idle_s = [await reader.turn() for reader in service.readers]
            tasks = [task for reader in service.readers for task in reader.desk.tasks]
            if tasks:
                await asyncio.wait(tasks)
            for reader in service.readers:
                await reader.desk.outbox.flush()
            await service.reporter.flush()
            if not tasks and all(idle_s):
                return Drained(self._settled() - before, await self._asked(self._next_ms))

    async def leave(self) -> None:
        """Another one of its group takes its turn: leads end by Redis's time, which stands still beside the kit's."""
        for reader in self._service.readers:
            await reader.yield_lead()

    async def close(self) -> None:
        """Hands back what it holds, and closes its connections."""
        service = self._service
        service.stop()
        for reader in service.readers:
            reader.hand_back()
            await reader.desk.outbox.flush()
            await reader.close()
        await service.close()

    def _settled(self) -> int:
        """How many events it has done something about, so far."""
        counts = self._app.counts
        return (
            counts.handled + counts.retried + counts.dead + counts.unwanted + counts.unreadable + counts.stale
        )

    async def _next_ms(self, client: Any) -> int | None:
        """When something of the group is next due by itself: a retry, or what another consumer holds (epoch ms)."""
        now_ms = self._service.now_ms()
        stream, group = self._app.stream.encode(), self._app.group.encode()
        found = []
        for tag in self._service.namespace.tags:
            for key in (keys.retry(tag, stream, group), keys.lease(tag, stream, group)):
                first = await client.zrangebyscore(key, f"({now_ms}", "+inf", 0, 1, withscores=True)
                found += [int(score) for _, score in first]
        return min(found, default=None)

    async def _asked(self, question: Callable[[Any], Awaitable[Any]]) -> Any:
        try:
            return await question(await self._service.link.connections.open())
        except REDIS_FAULTS as error:
            raise unavailable(error) from error


async def rehearse(app: Consumer, kit: TestQueue, known: Rehearsal | None) -> Rehearsal:
    """The rehearsal of an app in a kit: the ``known`` one, or a new one, which ends with the kit.

    Until then the app's place is the kit's, wherever it was before. Raises `TimerqError` where it runs in another kit.
    """
    if known is not None:
        if known.kit is kit:
            return known
        if not known.kit.is_closed:
            raise TimerqError("this consumer runs in another kit, which is not closed yet")
        app.place = known.own  # that kit was closed when the event loop in which it ran had ended
    own, app.place = app.place, kit.aqueue.place
    service = Service(app)
    made = Rehearsal(service, kit, own)

    async def end() -> None:
        try:
            await made.close()
        finally:
            app.place = own
            app.rehearsed(None, None)

    kit.on_close(end)
    app.rehearsed(made, service)
    await made.open()
    return made
