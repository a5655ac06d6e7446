"""Dispatcher, consumer and schedules in one event loop, for as long as a block lasts."""

from __future__ import annotations

import asyncio
import logging
import threading
from types import TracebackType
from typing import Any, Self

from timerq.async_client import AsyncHandle, AsyncTimerQueue
from timerq.client import TimerQueue
from timerq.commands.planned import Applied
from timerq.consumer import Consumer
from timerq.consumer.place import place_of
from timerq.consumer.threads import Threads
from timerq.declare import DeclaredSet, ScheduledFunction
from timerq.dispatcher import Dispatcher
from timerq.errors import InvalidSchedule, NamespaceMismatch, TimerqError
from timerq.exchange import Place
from timerq.running.now import fire_now
from timerq.running.schedules import Schedules, attach, gather
from timerq.signals import heed_signals, ignore_signals
from timerq.timing import Instant
from timerq.topology import redact

logger = logging.getLogger("timerq")


def run(
    queue: TimerQueue | AsyncTimerQueue | str | None,
    app: Consumer,
    schedules: Schedules | None = None,
    *,
    keep_alive: bool = False,
    label: str | None = None,
    prune: bool = False,
    take_over: bool = False,
    by: str | None = None,
    name: str | None = None,
) -> Running:
    """Starts a dispatcher, ``app`` and ``schedules`` together for as long as a block lasts.

        async with timerq.run(queue, app, [morning, "schedules.yaml"]):
            ...

    ``queue`` is a client, of which only the place is taken, a URL, or None for where the app's queue is.
    ``schedules`` are functions under `schedule`, which the app then handles, files, folders, modules or `DeclaredSet`
    objects: as one set, they are stored before anything fires, as `timerq apply` does it. ``label`` is the set's name
    (otherwise its own, or the app's group), ``prune`` cancels what it had before and has no longer, ``take_over`` takes
    names that another set declares, ``by`` says who sets it. They stay stored when the run ends.

    At the end of the block nothing new is read, what is being handled may end (as long as the app's ``drain`` says),
    and the dispatcher is stopped last. With ``keep_alive`` that end waits for SIGTERM, SIGINT or `Running.stop`.

    Raises `InvalidSchedule` (as `InvalidDeclaration` for what is declared). Entering the block raises
    `QueueUnavailable` where Redis is away; when it goes away later, all wait for it.
    """
    if not isinstance(app, Consumer):  # the two are easily given the wrong way round
        raise InvalidSchedule("app", app, "want a timerq.Consumer, behind the queue")
    place = app.place
    if queue is not None:
        place = place_of(queue, place.namespace if isinstance(queue, str) else None)
    if app.is_placed and _told(place) != _told(app.place):
        raise InvalidSchedule(
            "queue", _told(place), f"want None, or the queue of the app: {_told(app.place)}"
        )
    if place.url.startswith("embedded:"):
        want = "want a client that has it open, so that all find the same one"
        raise InvalidSchedule("queue", redact(place.url), want)
    declared, functions = gather(schedules, label, app.group)
    attach(app, functions)
    return Running(
        app,
        place,
        declared,
        keep_alive=keep_alive,
        prune=prune,
        take_over=take_over,
        by=by,
        name=name,
    )


class Running:
    """What `run` has started; a context manager, for one event loop, and once only."""

    def __init__(
        self,
        app: Consumer,
        place: Place,
        declared: DeclaredSet | None = None,
        *,
        keep_alive: bool = False,
        prune: bool = False,
        take_over: bool = False,
        by: str | None = None,
        name: str | None = None,
    ) -> None:
        self.app = app
        self.applied: Applied[AsyncHandle] | None = None
        """What became of the schedules; None where none were given."""
        self._place = place
        self._declared = declared
        self._keep_alive = keep_alive
        self._prune = prune
        self._take_over = take_over
        self._by = by
        self._name = name
        self._dispatcher: Dispatcher | None = None
        self._starting: asyncio.Future[Any] | None = None
        self._threads = Threads("timerq-run")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._app_place: Place | None = None
        self._serving: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        self._hears_signals = False

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise TimerqError("this run has begun before: make another with timerq.run(…)")
        self._loop = asyncio.get_running_loop()
        try:
            if self._keep_alive:
                self._hear_signals(self._loop)
            await self._apply()
            if not self._asked.is_set():
                url, namespace, *_, options = self._place
                self._dispatcher = Dispatcher(url, namespace=namespace, name=self._name, **options)
                self._starting = self._threads.call(self._dispatcher.start)
                # also where this task is cancelled, it goes on in its thread
                await asyncio.wait({self._starting})
                self._starting.result()
            if not self._asked.is_set():  # nobody has asked to stop in the meantime
                await self._serve()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._keep_alive:
                await self.wait()
        finally:
            await self.stop()
        if kind is None and self._serving is not None and not self._serving.cancelled():
            self._serving.result()  # raises what ended it

    async def wait(self) -> None:
        """Returns when this is asked to stop: by `stop`, `request_stop`, a signal it heeds, or a fault of its own."""
        await self._asked.wait()

    async def stop(self) -> None:
        """Stops all, in order, and returns when what was being handled has ended. Twice is once.

        First nothing new is read or begun, then handlers may end for as long as the app's ``drain`` says (what has not
        begun is handed back to the group at once), and last the dispatcher finishes what it has in hand. Handlers
        would wait for themselves: for them there is `request_stop`.
        """
        self._begin_to_stop()
        if self._ending is not None:
            await asyncio.shield(self._ending)

    def request_stop(self) -> None:
        """Begins to stop, and does not wait for it; from any thread."""
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._begin_to_stop)
        except RuntimeError:
            pass  # the loop has ended, and with it what was to stop

    async def fire_now(
        self, schedule: ScheduledFunction[..., Any] | str, *, fired_at: Instant | None = None
    ) -> bool:
        """Runs one schedule here and now: see `timerq.fire_now`."""
        return await fire_now(self.app, schedule, fired_at=fired_at)

    @property
    def failing(self) -> dict[str, str]:
        """What does not work just now, and why; empty when all is well."""
        firing = {} if self._dispatcher is None else self._dispatcher.health.failing
        return {**firing, **self.app.failing}

    # ------------------------------------------------------------------------------------------------ how

    async def _apply(self) -> None:
        url, namespace, tenant, clock, limit, options = self._place
        queue = AsyncTimerQueue(
            url, namespace=namespace, tenant=tenant, clock=clock, payload_limit=limit, **options
        )
        async with queue:
            if (await queue.init()).manual_clock:
                raise NamespaceMismatch("a namespace with clock=manual is driven by its tests, not by a run")
            if self._declared is None:
                return
            self.applied = await queue.apply_set(
                self._declared.label,
                self._declared.upserts,
                prune=self._prune,
                take_over=self._take_over,
                by=self._by,
            )
        for item in self.applied.items:
            if isinstance(item, TimerqError):
                raise item

    async def _serve(self) -> None:
        """Starts the consumer; returns when it reads."""
        app = self.app
        if not app.is_placed:
            self._app_place, app.place = app.place, self._place
        reads = asyncio.Event()
        self._serving = asyncio.create_task(app.serve(reads.set))
        self._serving.add_done_callback(self._served)
        reading = asyncio.create_task(reads.wait())
        await asyncio.wait({reading, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        if not reads.is_set():
            reading.cancel()
            self._serving.result()  # raises what ended it

    def _served(self, serving: asyncio.Task[None]) -> None:
        """The consumer has ended: asked to, or by a fault that must not pass in silence."""
        if not serving.cancelled() and (error := serving.exception()) is not None:
            logger.error("the consumer has ended: %s", error, exc_info=error)
        self._begin_to_stop()

    def _begin_to_stop(self) -> None:
        self._asked.set()
        if self._ending is None and self._loop is not None:
            self._ending = self._loop.create_task(self._stop())

    async def _stop(self) -> None:
        if self._serving is not None:
            if not self._serving.done():
                self.app.request_stop()
                await asyncio.wait({self._serving})
            if self._app_place is not None:
                self.app.place = self._app_place
        if self._dispatcher is not None and self._starting is not None:
            await asyncio.wait({self._starting})
            await self._threads.call(self._dispatcher.stop)
        self._threads.close()
        if self._loop is not None and self._hears_signals:
            ignore_signals(self._loop)

    def _hear_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        if threading.current_thread() is not threading.main_thread():
            return

        heed_signals(loop, self._begin_to_stop)
        self._hears_signals = True


def _told(place: Place) -> str:
    """Where it is, as it may be shown."""
    return f"{place.namespace} at {redact(place.url)}"
