"""The handlings under way of one partition: each in a task of its own, or many that need not wait in one."""

from __future__ import annotations

import asyncio
import contextvars
import random
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timerq.commands.consume import RawDelivery
from timerq.consumer.begun import Begun
from timerq.consumer.handlers import Handler
from timerq.consumer.verdict import Verdict, failed
from timerq.model import Delivery

if TYPE_CHECKING:
    from timerq.consumer.desk import Desk
    from timerq.consumer.service import Service

_AT_A_TIME_S = 0.005
"""How long handlers that do not wait may keep everything else on the event loop waiting."""

_ONE_OF = 64
"""Of the events whose handler waits, one of so many is tried without a task of its own: it may wait no longer."""


@dataclass(eq=False, slots=True)
class Held:
    """One delivery that this consumer holds; ``task`` is its handler's own, ``verb`` what has been said of it.

    ``waited``: its handler has let others go on meanwhile. ``asked_s``: when Redis was asked whether it may begin
    (monotonic).
    """

    raw: RawDelivery
    task: asyncio.Task[None] | None = None
    verb: str = ""
    waited: bool = False
    asked_s: float = 0.0
    begins: asyncio.Future[str] | None = None


class Handlings:
    """Runs handlers and tells the desk what came of them. Each gives its place back when it has ended."""

    def __init__(self, service: Service, desk: Desk) -> None:
        self._service = service
        self._desk = desk
        self._queue: deque[tuple[Held, Delivery, Handler]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._waits: dict[str, int] = {}  # how many more of a type are expected to wait
        self.count = 0
        """How many were started and have not ended."""

    @property
    def worker(self) -> list[asyncio.Task[None]]:
        """The task that runs those without a task of their own, where there is one."""
        return [] if self._worker is None else [self._worker]

    def start(self, held: Held, event: Delivery, handler: Handler) -> None:
        """Its handler begins as soon as the event loop is free."""
        self.count += 1
        if handler.is_plain and not self._expects_waiting(event.type):
            self._queue.append((held, event, handler))
            if self._worker is None:
                self._worker = _task(self._work())
        else:
            held.task = _task(self._handle(held, event, handler))

    def give_up(self) -> list[RawDelivery]:
        """Begins nothing more; returns what was started and has not begun."""
        left = [held.raw for held, _, _ in self._queue]
        self._queue.clear()
        self.count -= len(left)
        self._service.slots.give(len(left))
        return left

    def _expects_waiting(self, event_type: str) -> bool:
        left = self._waits.get(event_type)
        if left is None:
            return False
        self._waits[event_type] = left - 1 if left else _ONE_OF
        return left > 0

    async def _work(self) -> None:
        """Runs plain handlers one after the other. One that has to wait keeps this task, and another one goes on."""
        me = asyncio.current_task()
        assert me is not None
        begin, queue = self._service.runner.begin, self._queue
        pause_s = time.monotonic() + _AT_A_TIME_S
        try:
            while queue:
                held, event, handler = queue.popleft()
                now_s = time.monotonic()
                if now_s >= held.raw.fresh_until_s or not held.raw.counts:
                    held.task = _task(self._handle(held, event, handler))
                    continue
                found = begin(handler, event)
                if isinstance(found, Begun):
                    self._waits[event.type] = _ONE_OF
                    held.task, held.waited = me, True
                    self._leave_to_another()
                    await self._handle(held, event, handler, found)
                    return
                self.count -= 1
                self._desk.conclude(held, event, handler, *found)
                self._service.slots.give(1)
                self._desk.go_on()
                if me.cancelling():  # by its handler: nothing of that is to reach the next one
                    self._leave_to_another()
                    return
                if now_s > pause_s:
                    await asyncio.sleep(0)
                    pause_s = time.monotonic() + _AT_A_TIME_S
        finally:
            if self._worker is me:
                self._worker = None

    def _leave_to_another(self) -> None:
        self._worker = _task(self._work()) if self._queue else None

    async def _handle(
        self, held: Held, event: Delivery, handler: Handler, begun: Begun | None = None
    ) -> None:
        thread: asyncio.Future[Any] | None = None
        runner, desk, raw = self._service.runner, self._desk, held.raw
        try:
            if begun is not None:
                verdict, error, thread = await runner.run(handler, event, begun)
            elif not raw.counts:  # taken over: it may be what its last consumer died of
                # again, or for the last time: nothing beside it is to lose an attempt by its fault
                alone = event.attempt > 2 or event.attempt == handler.attempts
                async with self._service.suspects.turn(event.attempt, alone=alone):
                    if not await desk.may_begin(held):
                        return
                    verdict, error, thread = await self._run(held, event, handler)
            else:
                if time.monotonic() >= raw.fresh_until_s and not await desk.may_begin(held):
                    return
                verdict, error, thread = await self._run(held, event, handler)
            if thread is not None and self._service.app.ordered:
                self._service.reporter.overdue(event, handler)
                await asyncio.wait({thread})  # nothing of its lane begins beside it
        except asyncio.CancelledError as cancelled:
            if self._service.is_ending:  # its time to drain is up
                desk.cut_short(held)
                raise
            # by its handler, which would do so each time that it comes back
            desk.conclude(
                held, event, handler, failed(handler, event.attempt, cancelled, random.random()), cancelled
            )
        except Exception:
            desk.failed(held)
        else:
            desk.conclude(held, event, handler, verdict, error)
        finally:
            self.count -= 1
            if thread is None:
                self._service.slots.give(1)
            else:
                thread.add_done_callback(self._thread_ended)
            desk.go_on()

    async def _run(
        self, held: Held, event: Delivery, handler: Handler
    ) -> tuple[Verdict, BaseException | None, asyncio.Future[Any] | None]:
        runner = self._service.runner
        begun = None
        if handler.is_plain:
            found = runner.begin(handler, event)
            if not isinstance(found, Begun):
                return *found, None
            begun = found
        held.waited = True
        return await runner.run(handler, event, begun)

    def _thread_ended(self, thread: asyncio.Future[Any]) -> None:
        """A thread that took too long has ended after all: its place is free, what came of it is nobody's."""
        if not thread.cancelled():
            thread.exception()
        self._service.slots.give(1)


def _task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    # an empty context: nothing of what this process is doing just now belongs to the event
    return asyncio.get_running_loop().create_task(work, context=contextvars.Context())
