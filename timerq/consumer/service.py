"""One run of a consumer: its connections, its readers, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from timerq.async_link import AsyncCalls, AsyncLink
from timerq.commands.command import Namespace, Scope, Steps
from timerq.commands.consume import once
from timerq.commands.edit import publish_item
from timerq.commands.items import Item
from timerq.commands.namespace import open_namespace, reopen_namespace
from timerq.consumer.arming import Arming
from timerq.consumer.backoff import Backoff
from timerq.consumer.bell import SOCKET_TIMEOUT_S
from timerq.consumer.context import AsyncContext
from timerq.consumer.desk import Desk
from timerq.consumer.health import Health
from timerq.consumer.leader import Leader
from timerq.consumer.loop import Reader
from timerq.consumer.reporter import Reporter
from timerq.consumer.runner import Runner
from timerq.consumer.slots import Slots
from timerq.consumer.suspects import Suspects
from timerq.consumer.threads import Threads
from timerq.errors import QueueUnavailable, TimerqError
from timerq.model import Delivery, Event
from timerq.topology import AsyncConnections

if TYPE_CHECKING:
    from timerq.consumer.app import Consumer

logger = logging.getLogger("timerq.consumer")

T = TypeVar("T")

_PAUSES = Backoff(100, 5_000)
_LAST_WORDS_S = 2.0
"""How long what is settled at the very end may take on its way to Redis."""


class Service:
    """What runs while `Consumer.serve` does. For one event loop."""

    def __init__(self, app: Consumer) -> None:
        self.app = app
        self.name = app.new_name()
        place = app.place
        self.link = AsyncLink(place.url, place.clock, **place.options)
        self.ear = AsyncConnections(
            self.link.connections.embedded.url if self.link.connections.embedded else place.url,
            **{**place.options, "retries": 0, "socket_timeout": SOCKET_TIMEOUT_S},
        )
        self.health = Health()
        self.counts = app.counts
        self.slots = Slots(app.concurrency)
        self.hungry: dict[Desk, None] = {}
        self.slots.watch(self._feed)
        self.suspects = Suspects()
        self.leads: dict[int, Leader] = {}
        self.threads = Threads(f"timerq-{app.group}")
        self.runner = Runner(self.threads, self._context)
        self.reporter = Reporter(app.stream, app.group, self._publish)
        self.namespace: Namespace
        self.readers: list[Reader] = []
        self._calls: dict[str, tuple[Scope, AsyncCalls]] = {}
        self._ahead_us = 0
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------------------------------------ its life

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Reads until `stop`, then drains; waits for Redis where it is away. Raises `NamespaceMismatch`."""
        self._task = asyncio.current_task()
        try:
            if await self.open():
                await self._serve(ready)
        finally:
            await self.close()

    def stop(self) -> None:
        """Reads no more, and ends once what is in hand is handled, or its time is up. From the loop only."""
        self._stopping.set()
        self.slots.close()
        for reader in self.readers:
            reader.stop()

    @property
    def is_stopping(self) -> bool:
        """Whether nothing new is to be started."""
        return self._stopping.is_set()

    @property
    def is_ending(self) -> bool:
        """Whether handlings may be cut short: it stops, or its task was cancelled and has not come to stop yet."""
        return self.is_stopping or (self._task is not None and self._task.cancelling() > 0)

    async def open(self) -> bool:
        """Opens the namespace; False where it is stopped before Redis is there."""
        namespace = await self._find()
        if namespace is None:
            return False
        self.namespace = namespace
        self.link.remake = lambda: self.link.run(reopen_namespace(namespace))
        self.readers = [Reader(self, partition) for partition in range(namespace.partitions)]
        return True

    async def _find(self) -> Namespace | None:
        failures = 0
        while not self._stopping.is_set():
            try:
                namespace = await self.link.run(open_namespace(self.app.place.namespace))
            except QueueUnavailable as error:
                failures += 1
                self.health.failed("open", error)
                await self._pause(_PAUSES.wait_ms(failures, random.random()) / 1000)
            else:
                self.health.works("open")
                return namespace
        return None

    async def _serve(self, ready: Callable[[], None]) -> None:
        reading = [asyncio.create_task(reader.run()) for reader in self.readers]
        # one for each: a node of a Cluster that does not answer must not cost the others' leases
        keeping = [asyncio.create_task(self._keep(reader)) for reader in self.readers]
        logger.info(
            "consumer %s reads stream %s of namespace %s for group %s",
            *(self.name, self.app.stream, self.namespace.name, self.app.group),
        )
        ready()
        try:
            await self._stopping.wait()
            # a call that is on its way may bring something yet
            await asyncio.wait(reading, timeout=_LAST_WORDS_S)
        finally:
            self.stop()
            for task in reading:
                task.cancel()
            await asyncio.wait(reading)
            await self._drain()
            for task in keeping:
                task.cancel()
            await asyncio.wait(keeping)
            logger.info("consumer %s has stopped", self.name)

    async def _drain(self) -> None:
        """Waits for what is in hand as long as it may, and hands the rest back."""
        until_s = time.monotonic() + self.app.drain_ms / 1000
        for reader in self.readers:
            reader.hand_back()
        while tasks := self._tasks():
            left_s = until_s - time.monotonic()
            done, _ = await asyncio.wait(tasks, timeout=max(0, left_s))
            if not done:
                break
        for reader in self.readers:
            reader.desk.hand_back_queued()
        if tasks := self._tasks():  # one may have begun while nothing ended
            logger.warning("%d handlings have not ended within the time to drain: handed back", len(tasks))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_LAST_WORDS_S)
        last_words = [reader.desk.outbox.flush() for reader in self.readers]
        await self._in_time(asyncio.gather(*last_words, self.reporter.flush()))
        await self._in_time(asyncio.gather(*[reader.close() for reader in self.readers]))

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for reader in self.readers for task in reader.desk.tasks]

    async def _in_time(self, work: asyncio.Future[Any]) -> None:
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                await work
        except TimeoutError:
            logger.warning(
                "Redis did not answer in time: what was not settled comes again when its lease ends"
            )

    async def close(self) -> None:
        """Closes its connections and threads; what was not settled comes again when its lease ends."""
        self.reporter.close()
        self.threads.close()
        for reader in self.readers:
            await reader.desk.outbox.close()
        await self.ear.close()
        await self.link.close()

    async def _keep(self, reader: Reader) -> None:
        """Lengthens leases well before they end."""
        while True:
            await asyncio.sleep(self.app.lease_ms / 3000)
            try:
                await reader.keep()
            except TimerqError:
                pass  # its reader finds out too, and says so

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    def _feed(self) -> None:
        """Places have come free: desks that had none start what waits, in turn."""
        if self._stopping.is_set():
            return
        while self.hungry and self.slots.free:
            desk = next(iter(self.hungry))
            del self.hungry[desk]
            desk.start_ready()

    # ------------------------------------------------------------------------------------------------ time

    def learn(self, now_us: int, sent_s: float) -> None:
        """Redis has said that it is ``now_us`` (epoch µs) to what was sent at ``sent_s`` (monotonic)."""
        self._ahead_us = now_us - int((time.monotonic() + sent_s) / 2 * 1e6)

    def now_ms(self) -> int:
        """Redis's time as far as it is known, or the manual clock's (epoch ms)."""
        told = self.app.place.clock()
        return int(told) if told is not None else (self._ahead_us + time.monotonic_ns() // 1000) // 1000

    # ------------------------------------------------------------------------------------------------ handlers' verbs

    async def call(self, scope: Scope, item: Item[T]) -> T:
        """Sends one command for a tenant, with those that come meanwhile."""
        _, calls = self._of(scope.tenant)
        return await calls.call(scope, item, None)

    async def drive(self, steps: Steps[T]) -> T:
        """Drives a verb to its result."""
        return await self.link.run(steps)

    async def mark(self, scope: Scope, token: str, window_ms: int) -> bool:
        """Sets a marker; whether it was not there."""
        return await self.link.run(once(scope, token, window_ms))

    async def clock(self) -> Callable[[], int]:
        """Tells Redis's time (epoch ms)."""
        return await self.link.server_clock(self.namespace)

    def scope_of(self, tenant: str) -> Scope:
        """A tenant's scope."""
        return self._of(tenant)[0]

    def _of(self, tenant: str) -> tuple[Scope, AsyncCalls]:
        known = self._calls.get(tenant)
        if known is None:
            scope = Scope(self.namespace, tenant, tenant.encode(), self.app.place.payload_limit)
            known = self._calls[tenant] = scope, AsyncCalls(self.link)
        return known

    def _context(self, event: Delivery) -> AsyncContext:
        arming = Arming(event, self.scope_of(event.tenant), self.app.declares, self.app.memory_ms)
        return AsyncContext(arming, self)

    def _publish(self, tenant: str, event: Event, key: str, owner: str | None) -> Coroutine[Any, Any, object]:
        scope = self.scope_of(tenant)
        return self.call(scope, publish_item(scope, event, key, owner))
