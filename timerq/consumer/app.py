"""Consumer: which handlers there are, and how the process that runs them behaves."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from timerq.async_client import AsyncTimerQueue
from timerq.client import TimerQueue
from timerq.commands.calling import Task
from timerq.consumer.context import once_token
from timerq.consumer.counts import Counts
from timerq.consumer.ending import run_to_end
from timerq.consumer.handlers import RETRIED, Errors, Handler, check_type, make_handler
from timerq.consumer.place import place_of
from timerq.consumer.service import Service
from timerq.declare import ScheduledFunction
from timerq.errors import InvalidSchedule, TimerqError
from timerq.model import Delivery, check_plain_name, check_text
from timerq.signals import heed_signals, ignore_signals
from timerq.timing import Duration, resolve_duration

if TYPE_CHECKING:
    from timerq.consumer.rehearsal import Rehearsal
    from timerq.testing import Drained, TestQueue

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")

Unwanted = Literal["ack", "dead", "leave"]
"""What becomes of an event that no handler wants: acknowledged and counted, a dead letter, or left for another one."""

MAX_CONCURRENCY = 10_000
_MIN_LEASE_MS = 300


class Consumer:
    """Reads a stream for a group and runs handlers, for all tenants of the namespace.

        app = Consumer(queue, group="billing")

        @app.on("order.reminder", attempts=8)
        async def remind(event: Delivery, ctx: AsyncContext) -> None: ...

    ``queue`` is a client, of which only the place is taken, a URL, or None for what the environment says (then with
    ``namespace``). At least once: a handler may run again after a crash, and ``event.id`` is its idempotency key.

    ``concurrency`` is how many handlings run at once in this process. With ``ordered`` the events of one lane are
    handled one at a time, in the order of the stream, whatever the number of consumers. ``unwanted`` says what becomes
    of events without a handler. What is handed out belongs to this process for ``lease``, which is lengthened while it
    runs; after a crash another one takes it over when that has ended. ``drain`` is how long a stop waits for what is in
    hand. ``drop_superseded`` leaves out events whose schedule was armed again or paused since they fired. ``declares``
    names event types that handlers may arm though nobody here handles them; ``arming_memory`` is how long an arming
    by `ctx.schedule` is remembered.

    Raises `InvalidSchedule` for a bad argument.
    """

    def __init__(
        self,
        queue: TimerQueue | AsyncTimerQueue | str | None = None,
        stream: str = "events",
        *,
        group: str,
        namespace: str | None = None,
        name: str | None = None,
        concurrency: int = 100,
        ordered: bool = False,
        unwanted: Unwanted = "ack",
        lease: Duration = "30s",
        drain: Duration = "30s",
        drop_superseded: bool = False,
        declares: Iterable[str] = (),
        arming_memory: Duration = "7d",
    ) -> None:
        self.place = place_of(queue, namespace)
        self.is_placed = queue is not None
        """Whether it was told where its queue is; otherwise the environment says so, or whoever runs it."""
        self.stream = check_plain_name("stream", stream)
        self.group = check_plain_name("group", group)
        self._name = name
        if unwanted not in ("ack", "dead", "leave"):
            raise InvalidSchedule("unwanted", unwanted, 'want "ack", "dead" or "leave"')
        self.concurrency = _check_concurrency(concurrency)
        self.ordered = bool(ordered)
        self.unwanted: Unwanted = unwanted
        self.lease_ms = resolve_duration(lease, field="lease")
        if self.lease_ms < _MIN_LEASE_MS:
            raise InvalidSchedule("lease", lease, f"want at least {_MIN_LEASE_MS} ms")
        self.drain_ms = resolve_duration(drain, field="drain")
        self.drop_superseded = bool(drop_superseded)
        self.memory_ms = resolve_duration(arming_memory, field="arming_memory")
        if self.memory_ms == 0:
            raise InvalidSchedule("arming_memory", arming_memory, "want a duration above 0")
        self.counts = Counts()
        self._handlers: dict[str, Handler] = {}
        self._declared: set[str] = set()
        self.declare(*declares)
        self._service: Service | None = None
        self._lent: list[tuple[asyncio.AbstractEventLoop, Service]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_asked = False
        self._rehearsal: Rehearsal | None = None

    # ------------------------------------------------------------------------------------------------ handlers

    def on(
        self,
        type: str,
        model: Any = None,
        *,
        attempts: int = 5,
        backoff: Duration = "1s",
        max_backoff: Duration | None = None,
        retry_on: Errors = RETRIED,
        give_up_on: Errors = (),
        timeout: Duration | None = None,
    ) -> Callable[[F], F]:
        """Runs the decorated function for events of ``type``.

        It is called with what its parameters ask for, by name or annotation: the `Delivery` (``event``), the context
        (``ctx``) and the payload (``payload``, or one annotated with a pydantic model). ``model`` is what the payload
        must fit; one that does not is a dead letter at once. A sync function runs in a thread.

        It fails where it raises, returns or raises `Incomplete`, or takes longer than ``timeout`` (of a sync one the
        thread goes on until it ends by itself; in an ordered group its lane waits for that). Then it is tried again, up
        to ``attempts`` handlings in all, after ``backoff``, doubled each time up to ``max_backoff`` (None: ten minutes,
        or ``backoff`` where that is longer), for errors of ``retry_on`` and none of ``give_up_on``. After that the
        event is a dead letter.

        Raises `InvalidSchedule`, also for a type that has a handler already.
        """
        check_type(type)

        def decorate(function: F) -> F:
            handler = make_handler(
                type,
                function,
                model=model,
                attempts=attempts,
                backoff=backoff,
                max_backoff=max_backoff,
                retry_on=retry_on,
                give_up_on=give_up_on,
                timeout=timeout,
            )
            if type in self._handlers:
                raise InvalidSchedule("type", type, "want one handler for a type: it has one already")
            self._handlers[type] = handler
            return function

        return decorate

    def add(self, *functions: ScheduledFunction[..., Any], **options: Any) -> None:
        """Runs functions under ``@timerq.schedule`` for the events of their schedules, with the options of `on`.

        Raises `InvalidSchedule` for one whose events go to another stream.
        """
        for function in functions:
            if not isinstance(function, ScheduledFunction):
                raise InvalidSchedule("function", function, "want a function under @timerq.schedule(…)")
            if function.upsert.event.stream != self.stream:
                want = f"want one whose events go to this consumer's stream {self.stream!r}"
                raise InvalidSchedule("stream", function.upsert.event.stream, want)
            self.on(function.name, **options)(function)

    @overload
    def task(self, function: Callable[P, R], /, *, name: str | None = None, **options: Any) -> Task[P, R]: ...

    @overload
    def task(
        self, function: None = None, /, *, name: str | None = None, **options: Any
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(
        self, function: Callable[P, R] | None = None, /, *, name: str | None = None, **options: Any
    ) -> Any:
        """Registers the decorated function, to be called later by ``queue.call_later`` and ``queue.call_every``.

            @app.task
            def send_mail(to: str) -> None: ...

            queue.call_later("30s", send_mail, "ann@example.com")

        Its events have its ``name`` (the function's own, unless given) as their type, and the list of its arguments
        as their payload. ``options`` are those of `on`.

        Raises `InvalidSchedule`, also for a name that is the type of another handler.
        """

        def decorate(function: Callable[P, R]) -> Task[P, R]:
            task = Task(function, name=name, stream=self.stream)
            self.on(task.name, **options)(task.handler())
            return task

        return decorate if function is None else decorate(function)

    def declare(self, *types: str) -> None:
        """Names event types of this stream that handlers may arm or publish, though nobody here handles them."""
        for type_ in types:
            check_text("type", type_)
            self._declared.add(type_)

    def declares(self, type: str) -> bool:
        """Whether an event type is handled here, or was named by `declare`."""
        return type in self._handlers or type in self._declared

    def handler_of(self, type: str) -> Handler | None:
        """The handler of an event type."""
        return self._handlers.get(type)

    @property
    def handlers(self) -> dict[str, Handler]:
        """All handlers, by the types of their events."""
        return dict(self._handlers)

    def configure(
        self,
        *,
        url: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        concurrency: int | None = None,
    ) -> None:
        """What whoever runs it says: the place where the app names none, and its name and concurrency here.

        Raises `InvalidSchedule` for a bad value.
        """
        if not self.is_placed:
            place = self.place
            self.place = place._replace(
                url=place.url if url is None else url,
                namespace=place.namespace if namespace is None else check_plain_name("namespace", namespace),
            )
        if name is not None:
            self._name = name
        if concurrency is not None:
            self.concurrency = _check_concurrency(concurrency)

    # ------------------------------------------------------------------------------------------------ its life

    async def serve(self, ready: Callable[[], None] = lambda: None) -> None:
        """Reads and handles until `request_stop`; then drains and returns. ``ready`` is called once it reads.

        While Redis is away it waits. Raises `NamespaceMismatch`.
        """
        if self._service is not None:
            raise TimerqError("this consumer runs already")
        self._loop = asyncio.get_running_loop()
        self._service = service = Service(self)
        try:
            if self._stop_asked:
                service.stop()
            await service.run(ready)
        finally:
            self._service = self._loop = None
            self._stop_asked = False

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """`serve` for a program that has no event loop. In the main thread, SIGTERM and SIGINT ask it to stop."""
        run_to_end(self._serve_with_signals(ready))

    def request_stop(self) -> None:
        """Makes `serve` and `run` stop reading, drain and return; from any thread, and before they have begun."""
        self._stop_asked = True
        loop, service = self._loop, self._service
        if loop is not None and service is not None:
            with suppress(RuntimeError):  # the loop has ended, and with it what was to stop
                loop.call_soon_threadsafe(service.stop)

    async def drain(self, kit: TestQueue) -> Drained:
        """Handles what can be handled at a test kit's instant: for ``kit.advance("1h", app)``, see docs/testing.md."""
        from timerq.consumer.rehearsal import rehearse  # a consumer at work has no need of a test kit

        if self._rehearsal is None and self._service is not None:
            raise TimerqError("this consumer runs already")
        return await (await rehearse(self, kit, self._rehearsal)).drain()

    def rehearsed(self, rehearsal: Rehearsal | None, service: Service | None) -> None:
        """It is run by a test kit, or no longer."""
        self._rehearsal, self._service = rehearsal, service

    @contextmanager
    def lend(self, service: Service) -> Iterator[None]:
        """Handlers are run by ``service`` on this event loop, though no stream is read."""
        lent = (asyncio.get_running_loop(), service)
        self._lent.append(lent)
        try:
            yield
        finally:
            self._lent.remove(lent)

    def once(self, event: Delivery, name: str = "", *, window: Duration = "24h") -> Awaitable[bool]:
        """True the first time that it is asked for this event (and ``name``) within ``window``, False ever after.

        A stored marker, for effects that must not happen twice though the handler may. It is set before the effect:
        who crashes between the two has marked what did not happen. In a sync handler it is ``ctx.once()``; this raises.
        """
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:  # nobody could await it, and what is not awaited counts as true
            raise TimerqError("once is to be awaited: in a sync handler it is ctx.once()") from None
        service = next((lent for loop, lent in self._lent if loop is here), self._service)
        if service is None:
            raise TimerqError("once is for handlers: this consumer does not run")
        window_ms = resolve_duration(window, field="window")
        return service.mark(service.scope_of(event.tenant), once_token(event, name), window_ms)

    @property
    def failing(self) -> dict[str, str]:
        """What does not work just now, and why; empty when all is well, or when it does not run."""
        return {} if self._service is None else self._service.health.failing

    def new_name(self) -> str:
        """What a run is called in the group: with a suffix that no other has, since a name is whose an event is."""
        given = self._name or f"{socket.gethostname()}-{os.getpid()}"
        return f"{re.sub('[^A-Za-z0-9._-]', '-', given)[:48]}-{secrets.token_hex(4)}"

    async def _serve_with_signals(self, ready: Callable[[], None]) -> None:
        if threading.current_thread() is not threading.main_thread():
            await self.serve(ready)
            return
        loop = asyncio.get_running_loop()
        heed_signals(loop, self.request_stop)
        try:
            await self.serve(ready)
        finally:
            ignore_signals(loop)


def _check_concurrency(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MAX_CONCURRENCY:
        raise InvalidSchedule("concurrency", value, f"want a number from 1 to {MAX_CONCURRENCY}")
    return value
