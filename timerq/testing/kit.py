"""TestQueue: a queue of a test's own, in which time passes when told."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from timerq.async_client import AsyncTimerQueue
from timerq.client import TimerQueue
from timerq.commands.command import Namespace, Scope
from timerq.commands.dispatch import fire_partition
from timerq.commands.recurring import done
from timerq.errors import InvalidSchedule, TimerqError
from timerq.model import ERRORS, Schedule, check_plain_name, instant_text
from timerq.tail import Published, Unreadable
from timerq.testing.arrivals import Arrivals
from timerq.testing.clients import Clients
from timerq.testing.clock import ManualClock
from timerq.testing.drive import Loop, Play, adrive
from timerq.testing.handling import Drained, Handlers, check_handlers, drains
from timerq.testing.server import place_of
from timerq.timing import Duration, Instant, resolve_instant

MOST_ROUNDS = 1000
"""So many times events and handlers may bring forth each other at one instant before it is taken to go on for ever."""


class TestQueue:
    """A namespace of its own under a manual clock, with a dispatcher's part played by the test.

    Without a URL it is on a fakeredis of its own (the extra ``testing``); ``url`` names a Redis (also a Cluster), where
    it makes a fresh namespace and takes it away again, or is "embedded:" for a server that lives as long as the kit.
    The scripts are the real ones everywhere. ``clock`` is a new `ManualClock` where none is given; ``handlers`` are
    what `advance` hands the events to; ``options`` are redis-py's. A context manager; close it when done.

    Raises `QueueUnavailable` where there is no Redis, and no fakeredis; `InvalidSchedule` for a bad argument.
    """

    __test__ = False  # pytest would take it for a class of tests

    def __init__(
        self,
        url: str | None = None,
        *,
        clock: ManualClock | None = None,
        tenant: str = "default",
        partitions: int = 1,
        handlers: Handlers | None = None,
        **options: Any,
    ) -> None:
        check_handlers(handlers)
        self.clock = ManualClock() if clock is None else clock
        self.handlers = handlers
        self._tenant = check_plain_name("tenant", tenant)
        self._place = place_of(url, options)
        self._async_client: AsyncTimerQueue | None = None
        self._loop = Loop()
        self._all: list[Published] = []
        self._told = 0  # how many of them a call has returned
        self._unhandled: deque[Published] = deque()
        # partition -> when its next is due (epoch ms; None: it has none), where that is known
        self._wakes: dict[int, int | None] = {}
        self._ends: list[Callable[[], Awaitable[None]]] = []
        self._is_playing = self.is_closed = False
        self._clients = Clients(self._place, f"test-{secrets.token_hex(8)}", self.clock)
        try:
            self._queue = self.connect()
            self._namespace = self._queue.init(clock="manual", partitions=partitions)
        except BaseException:
            self._clients.close()
            self._place.close()
            raise
        self._arrivals = Arrivals(self._clients.connections, self._namespace)

    # --------------------------------------------------------------------------------------------------- clients

    @property
    def queue(self) -> TimerQueue:
        """The blocking client."""
        return self._queue

    @property
    def aqueue(self) -> AsyncTimerQueue:
        """The asynchronous client, of the same schedules; for one event loop. `aclose` closes it."""
        if self._async_client is None:
            self._async_client = self.aconnect()
        return self._async_client

    def connect(self, tenant: str | None = None) -> TimerQueue:
        """One more blocking client of the same namespace, of ``tenant`` where one is given; the kit closes it."""
        return self._clients.connect(tenant or self._tenant)

    def aconnect(self, tenant: str | None = None) -> AsyncTimerQueue:
        """One more asynchronous client, for the event loop that first uses it; `aclose` closes it."""
        return self._clients.aconnect(tenant or self._tenant)

    @property
    def namespace(self) -> Namespace:
        """The namespace; its name is made up anew for each kit."""
        return self._namespace

    @property
    def url(self) -> str | None:
        """The URL for clients of the test's own; None on fakeredis, which only the kit's clients reach."""
        return None if self._place.is_fake else self._place.url

    # ------------------------------------------------------------------------------------------------------ time

    @property
    def now(self) -> datetime:
        """The clock's time as an aware UTC datetime."""
        return self.clock.now

    def advance(self, duration: Duration = 0, handlers: Handlers | None = None) -> list[Published]:
        """Lets ``duration`` pass: what becomes due is fired in order, each at its own instant; returns the events.

        A dispatcher that is never late would do the same. What is due already is fired first; 0 fires that alone. With
        ``handlers`` (by default the kit's) each event is handled at its instant, so that what a handler arms is due in
        its turn. A handler may be asynchronous: it runs in an event loop of the kit's own. Consumers of several groups
        or streams are given as a list, and take turns.

        Returned is all that came onto the streams since the last call, also what was triggered or published, in order,
        but for the reports on the stream ``errors``. What a handler raises is raised here: time stands still at that
        instant, the event counts as handled and failed, and the next call goes on behind it.
        """
        return self._loop.drive(self._play(self.clock.after(duration), handlers))

    def set(self, instant: Instant, handlers: Handlers | None = None) -> list[Published]:
        """`advance` to an instant. Raises `InvalidSchedule` for one that the clock has passed."""
        return self._loop.drive(self._play(self._until(instant), handlers))

    async def aadvance(self, duration: Duration = 0, handlers: Handlers | None = None) -> list[Published]:
        """`advance` in a test that is asynchronous itself: asynchronous handlers run in its event loop."""
        return await adrive(self._play(self.clock.after(duration), handlers))

    async def aset(self, instant: Instant, handlers: Handlers | None = None) -> list[Published]:
        """`set` in a test that is asynchronous itself."""
        return await adrive(self._play(self._until(instant), handlers))

    # --------------------------------------------------------------------------------------------------- looking

    def events(
        self,
        type: str | None = None,
        *,
        key: str | None = None,
        owner: str | None = None,
        stream: str | None = None,
    ) -> list[Published]:
        """Every event so far, in order: of one ``type``, ``key``, ``owner`` or ``stream`` where they are given.

        Without ``stream`` of all but ``errors``. `advance` returns what this has shown all the same.
        """
        self._look()
        return [
            event
            for event in self._all
            if (event.stream == stream if stream else event.stream != ERRORS)
            and (type is None or event.type == type)
            and (key is None or event.key == key)
            and (owner is None or event.owner == owner)
        ]

    @property
    def unreadable(self) -> list[Unreadable]:
        """What lies on a stream and is no event of timerq."""
        self._look()
        return list(self._arrivals.unreadable)

    def pending(self, prefix: str = "", *, owner: str | None = None) -> list[Schedule]:
        """The schedules whose key begins with ``prefix``, of one ``owner`` where one is given, soonest first.

        Paused ones are among them, where they would be due.
        """
        return sorted(self._queue.list(prefix, owner=owner), key=lambda found: found.at_ms)

    # --------------------------------------------------------------------------------------------------- closing

    def on_close(self, end: Callable[[], Awaitable[None]]) -> None:
        """``end`` is awaited when the kit closes, before its clients do: for what drains it."""
        self._ends.append(end)

    def close(self) -> None:
        """Closes the clients, and leaves nothing in a Redis that is not the kit's own."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            try:
                self._loop.close(self._end)
            finally:
                if self.url is not None and self._place.embedded is None:
                    self._clients.forget()
        finally:
            self._clients.close()
            self._place.close()

    async def aclose(self) -> None:
        """Closes the asynchronous clients, in their event loop, and then all else."""
        await self._end()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        where = "fakeredis" if self._place.is_fake else "a Redis"
        return f"<TestQueue on {where}: {instant_text(self.clock.now_ms)}, {len(self._all)} events>"

    async def _end(self) -> None:
        try:
            while self._ends:
                await self._ends.pop()()
        finally:
            await self._clients.aclose()

    # ------------------------------------------------------------------------------------------------- the play

    def _until(self, instant: Instant) -> int:
        until_ms = resolve_instant(instant, field="instant")
        if until_ms < self.clock.now_ms:
            raise InvalidSchedule("instant", instant, f"want one that is not before the clock's, {self.now}")
        return until_ms

    def _play(self, until_ms: int, handlers: Handlers | None) -> Play:
        """Time from now to ``until_ms``; returns the events since the last call."""
        check_handlers(handlers)
        if self.is_closed:
            raise TimerqError("this kit is closed")
        if self._is_playing:
            raise TimerqError("time is passing already: a handler cannot advance it")
        self._is_playing = True
        try:
            yield from self._pass(until_ms, self.handlers if handlers is None else handlers)
        finally:
            self._is_playing = False
        self._look()
        new, self._told = self._all[self._told :], len(self._all)
        return [event for event in new if event.stream != ERRORS]

    def _pass(self, until_ms: int, handlers: Handlers | None) -> Generator[Any, Any, None]:
        """From one instant at which something is due to the next."""
        self._wakes.clear()  # the test may have armed anything
        at_ms, rounds = -1, 0
        while True:
            self._fire()
            now_ms = self.clock.now_ms
            wakes = [until_ms]
            if handlers is not None:
                drained = yield from self._hand_over(handlers)
                if drained.handled:
                    here_ms = min(now_ms, until_ms)  # beyond it only a handler that moves the clock has come
                    at_ms, rounds = here_ms, rounds + 1 if at_ms == here_ms else 1
                    if rounds >= MOST_ROUNDS:
                        raise TimerqError(
                            f"handlers have been called {rounds} times over at {instant_text(now_ms)}, and there is "
                            "more to handle: does one arm with no delay what it handles?"
                        )
                    self._wakes.clear()  # the handlers too
                    continue
                if drained.next_ms is not None:
                    wakes.append(max(drained.next_ms, now_ms + 1))
            if now_ms >= until_ms:
                return
            wakes += [wake_ms for wake_ms in self._wakes.values() if wake_ms is not None]
            self.clock.set(min(wakes))

    def _fire(self) -> None:
        """Fires what is due, in every partition that may have any."""
        now_ms = self.clock.now_ms
        for partition in range(self._namespace.partitions):
            wake_ms = self._wakes.get(partition, now_ms)
            if wake_ms is not None and wake_ms <= now_ms:
                wait_us = self._queue.run(fire_partition(self._namespace, partition)).wait_us
                self._wakes[partition] = None if wait_us is None else now_ms + -(-wait_us // 1000)

    def _look(self) -> None:
        """Reads what has come."""
        new = self._arrivals.read()
        self._all += new
        self._unhandled += [event for event in new if event.stream != ERRORS]

    def _hand_over(self, handlers: Handlers) -> Generator[Any, Any, Drained]:
        if not isinstance(handlers, Mapping):
            self._unhandled.clear()  # it reads by itself
            total = Drained(0)
            for each in drains(handlers):
                drained = yield each.drain(self)
                if not isinstance(drained, Drained):
                    raise InvalidSchedule("handlers", drained, "want drain(kit) to return a Drained")
                total = total.also(drained)
            return total
        self._look()
        handled = 0
        while self._unhandled:
            event = self._unhandled.popleft()
            handler = handlers.get(event.type)
            if handler is not None:
                try:
                    yield handler(event)
                except Exception as error:
                    self._done(event, f"{type(error).__name__}: {error}")
                    raise
            self._done(event, None)
            handled += 1
        return Drained(handled)

    def _done(self, event: Published, error: str | None) -> None:
        """What a consumer says of an event that it has handled: ``overlap`` and ``pause_after`` live by it."""
        scope = Scope(self._namespace, event.tenant, event.tenant.encode())
        self._queue.run(done(scope, event.id, error))
