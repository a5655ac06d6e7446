"""``ctx``: what a handler may do with the queue, on behalf of the event it handles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, TypeVar

from timerq.commands import owned
from timerq.commands.arming import Upsert, Upserted
from timerq.commands.command import Scope, Steps
from timerq.commands.items import Item
from timerq.consumer.arming import Arming, WhoseLane, fitted
from timerq.model import Change, Codec, Delivery, Event, Schedule, Swept, check_text
from timerq.timing import Duration, Instant, resolve_duration

T = TypeVar("T")
P = ParamSpec("P")

Schedules = list[Schedule]
Keys = list[str]


class Reach(Protocol):
    """How a context's commands get to Redis."""

    async def call(self, scope: Scope, item: Item[T]) -> T:
        """Sends one; raises `QueueUnavailable`."""
        ...

    async def drive(self, steps: Steps[T]) -> T:
        """Drives a verb to its result; raises `QueueUnavailable`."""
        ...

    async def mark(self, scope: Scope, token: str, window_ms: int) -> bool:
        """Sets a marker for so long; whether it was not there."""
        ...

    async def clock(self) -> Callable[[], int]:
        """Tells Redis's time (epoch ms)."""
        ...


class AsyncContext:
    """What an async handler gets besides its event. For the time of its handling only."""

    is_handler_context: ClassVar[bool] = True
    is_awaited: ClassVar[bool] = True
    __slots__ = ("_arming", "_reach", "event")

    def __init__(self, arming: Arming, reach: Reach) -> None:
        self.event: Delivery = arming.event
        self._arming = arming
        self._reach = reach

    async def schedule(
        self,
        type: str,
        payload: Any = None,
        *,
        delay: Duration | None = None,
        at: Instant | None = None,
        name: str | None = None,
        correlation: Mapping[str, str] | None = None,
        codec: Codec = "msgpack",
    ) -> Upserted:
        """Arms a one-shot that belongs to the event's lane: its owner, or its key where it has none.

        Exactly one of ``delay``, which counts from the event's ``fired_ms``, and ``at``. A handler that runs again
        arms nothing anew: the timer's key is ``name`` (by default the type) scoped to the event's id, and every later
        arming of it is a DUPLICATE, also when the timer has fired or was cancelled meanwhile. One handling arms one
        timer under a name; give several toward one type names of their own. OWNER_GONE where the owner was destroyed
        after the event was armed.

        Raises `InvalidSchedule`, also for a type that the app neither handles nor declares, and `QueueUnavailable`.
        """
        item = self._arming.schedule(type, payload, delay, at, name, correlation, codec)
        return await self._reach.call(self._arming.scope, item)

    async def schedule_upsert(
        self, key: str, event: Event, *, owner: WhoseLane = ..., **words: Any
    ) -> Upserted:
        """`upsert` with its words, in the event's lane unless ``owner`` says otherwise (None: no owner).

        A one-shot's ``delay`` counts from the event's ``fired_ms``. Each call replaces what is there; one with an
        ``idempotency_key`` is remembered as long as those of `schedule`, and whatever its body a second is a DUPLICATE,
        also of what recurs.
        """
        arming = self._arming
        item = arming.upsert(key, event, owner, words, await self._reach.clock())
        return await self._reach.call(arming.scope, item)

    async def start_single(self, key: str, event: Event, delay: Duration) -> Upserted:
        """Starts a timer of the event's lane that fires once, ``delay`` after the event's ``fired_ms``.

        Starting a key again replaces its timer, as with the other two.
        """
        return await self._start(owned.single(self.event.lane, key, event, delay))

    async def start_fixed_delay(
        self,
        key: str,
        event: Event,
        delay: Duration,
        initial_delay: Duration | None = None,
        *,
        ack_group: str | None = None,
    ) -> Upserted:
        """`Owner.start_fixed_delay` for the event's lane: starts anew, from now."""
        lane = self.event.lane
        return await self._start(
            owned.recurring(lane, key, event, delay, initial_delay, ack_group, fixed_delay=True)
        )

    async def start_fixed_rate(
        self, key: str, event: Event, every: Duration, initial_delay: Duration | None = None
    ) -> Upserted:
        """`Owner.start_fixed_rate` for the event's lane: starts anew, from now."""
        return await self._start(owned.recurring(self.event.lane, key, event, every, initial_delay))

    async def cancel(self, key: str, *, owner: WhoseLane = ...) -> Change:
        """Cancels the schedule of ``key`` in the event's lane, or of another ``owner``: CANCELLED or NOT_PENDING.

        OWNER_GONE where the lane's owner was destroyed after the event was armed: what is there now is another's.
        """
        return await self._reach.call(self._arming.scope, self._arming.cancel(key, owner))

    async def cancel_prefix(self, prefix: str) -> Swept:
        """Cancels every timer of the event's lane whose key begins with ``prefix``; returns how many there were.

        What is armed meanwhile stays. This event is handled to its end.
        """
        return await self._reach.drive(self._arming.sweep(prefix))

    async def cancel_all(self) -> Swept:
        """Cancels every timer of the event's lane, which lives on; returns how many there were."""
        return await self.cancel_prefix("")

    async def destroy(self) -> Swept:
        """Destroys the owner that the event's lane is, as `Owner.destroy`; returns how many timers went.

        Nothing that was armed before is fired or handed out once it returns. This event is handled to its end, but what
        its handler arms after this is OWNER_GONE. Where the owner was destroyed since the event was armed, nothing is
        done: what lives by now is another one.
        """
        return (await self._reach.drive(self._arming.destroy())).swept

    async def get(self, key: str) -> Schedule | None:
        """The schedule of ``key`` in the event's lane as it is stored, or None."""
        return await self._reach.drive(self._arming.get(key))

    async def list(self, prefix: str = "") -> Schedules:
        """The schedules of the event's lane whose key begins with ``prefix``, in key order."""
        found: Schedules = []
        after: str | None = None
        while True:
            page = await self._reach.drive(self._arming.list_page(prefix, after))
            found += page.items
            if (after := page.cursor) is None:
                return found

    async def is_active(self, key: str) -> bool:
        """Whether there is a timer under ``key`` in the event's lane: one that waits, is paused, or is being fired."""
        return await self.get(key) is not None

    async def active_keys(self, prefix: str = "") -> Keys:
        """The keys of the timers of the event's lane that begin with ``prefix``, in order."""
        return await self._reach.drive(self._arming.active_keys(prefix))

    async def publish(self, event: Event, *, key: str | None = None, owner: WhoseLane = ...) -> Change:
        """Puts an event straight onto the event's lane, under its key unless another is given: PUBLISHED.

        A handler that runs again publishes again.
        """
        return await self._reach.call(self._arming.scope, self._arming.publish(event, key, owner))

    async def once(self, name: str = "", *, window: Duration = "24h") -> bool:
        """True the first time that it is asked for this event (and ``name``) within ``window``; see `Consumer.once`."""
        window_ms = resolve_duration(window, field="window")
        token = once_token(self.event, name)
        return await self._reach.mark(self._arming.scope, token, window_ms)

    async def run(
        self,
        pattern: Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs one of `timerq.patterns`, or any such function of an `AsyncContext`, with this one."""
        return await pattern(self, *args, **kwargs)

    async def _start(self, wanted: Upsert) -> Upserted:
        arming = self._arming
        return await self._reach.call(arming.scope, arming.start(wanted, await self._reach.clock()))


class Context:
    """What a sync handler gets besides its event: the verbs of `AsyncContext`, blocking."""

    is_handler_context: ClassVar[bool] = True
    is_awaited: ClassVar[bool] = False
    __slots__ = ("_context", "_loop", "event")

    def __init__(self, context: AsyncContext, loop: asyncio.AbstractEventLoop) -> None:
        self.event: Delivery = context.event
        self._context = context
        self._loop = loop

    def schedule(
        self,
        type: str,
        payload: Any = None,
        *,
        delay: Duration | None = None,
        at: Instant | None = None,
        name: str | None = None,
        correlation: Mapping[str, str] | None = None,
        codec: Codec = "msgpack",
    ) -> Upserted:
        """See `AsyncContext.schedule`."""
        return self._wait(
            self._context.schedule(
                type, payload, delay=delay, at=at, name=name, correlation=correlation, codec=codec
            )
        )

    def schedule_upsert(self, key: str, event: Event, *, owner: WhoseLane = ..., **words: Any) -> Upserted:
        """See `AsyncContext.schedule_upsert`."""
        return self._wait(self._context.schedule_upsert(key, event, owner=owner, **words))

    def start_single(self, key: str, event: Event, delay: Duration) -> Upserted:
        """See `AsyncContext.start_single`."""
        return self._wait(self._context.start_single(key, event, delay))

    def start_fixed_delay(
        self,
        key: str,
        event: Event,
        delay: Duration,
        initial_delay: Duration | None = None,
        *,
        ack_group: str | None = None,
    ) -> Upserted:
        """See `AsyncContext.start_fixed_delay`."""
        return self._wait(
            self._context.start_fixed_delay(key, event, delay, initial_delay, ack_group=ack_group)
        )

    def start_fixed_rate(
        self, key: str, event: Event, every: Duration, initial_delay: Duration | None = None
    ) -> Upserted:
        """See `AsyncContext.start_fixed_rate`."""
        return self._wait(self._context.start_fixed_rate(key, event, every, initial_delay))

    def cancel(self, key: str, *, owner: WhoseLane = ...) -> Change:
        """See `AsyncContext.cancel`."""
        return self._wait(self._context.cancel(key, owner=owner))

    def cancel_prefix(self, prefix: str) -> Swept:
        """See `AsyncContext.cancel_prefix`."""
        return self._wait(self._context.cancel_prefix(prefix))

    def cancel_all(self) -> Swept:
        """See `AsyncContext.cancel_all`."""
        return self._wait(self._context.cancel_all())

    def destroy(self) -> Swept:
        """See `AsyncContext.destroy`."""
        return self._wait(self._context.destroy())

    def get(self, key: str) -> Schedule | None:
        """See `AsyncContext.get`."""
        return self._wait(self._context.get(key))

    def list(self, prefix: str = "") -> Schedules:
        """See `AsyncContext.list`."""
        return self._wait(self._context.list(prefix))

    def is_active(self, key: str) -> bool:
        """See `AsyncContext.is_active`."""
        return self._wait(self._context.is_active(key))

    def active_keys(self, prefix: str = "") -> Keys:
        """See `AsyncContext.active_keys`."""
        return self._wait(self._context.active_keys(prefix))

    def publish(self, event: Event, *, key: str | None = None, owner: WhoseLane = ...) -> Change:
        """See `AsyncContext.publish`."""
        return self._wait(self._context.publish(event, key=key, owner=owner))

    def once(self, name: str = "", *, window: Duration = "24h") -> bool:
        """See `AsyncContext.once`."""
        return self._wait(self._context.once(name, window=window))

    def run(
        self,
        pattern: Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """See `AsyncContext.run`: what patterns are called with in a sync handler."""
        return self._wait(pattern(self._context, *args, **kwargs))

    def _wait(self, verb: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(verb, self._loop).result()


def once_token(event: Delivery, name: str) -> str:
    """What marks an event's effect; raises `InvalidSchedule` for a bad name."""
    if not name:
        return fitted(f"{event.group}/{event.id}")
    check_text("name", name)
    return fitted(f"{event.group}/{event.id}/{name}")
