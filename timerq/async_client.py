"""AsyncTimerQueue: the verbs, with await. It sends what `timerq.commands` builds and holds no logic of its own.

Calls on single schedules that are made while one is on its way gather, and go together in the next script of their
partition: no timer, no added delay, and each has its own outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from timerq.async_link import AsyncCalls, AsyncLink
from timerq.async_owner import AsyncOwner
from timerq.clock import Clock, ask_redis
from timerq.commands import backlog, edit, read, recurring
from timerq.commands import cancel as cancelling
from timerq.commands import upsert as upserting
from timerq.commands.arming import Mode, Upsert, Upserted
from timerq.commands.calling import call_every, call_later
from timerq.commands.command import Durability, Namespace, Scope, Steps
from timerq.commands.dead import dead_count, dead_discard, dead_list, dead_replay, dead_show
from timerq.commands.durable import parse_durable
from timerq.commands.history import History, history
from timerq.commands.items import Item, many
from timerq.commands.letters import EVERY, DeadLetter, DeadPage, Which
from timerq.commands.namespace import find_namespace, open_namespace, reopen_namespace
from timerq.commands.planned import Applied, SetPlan
from timerq.commands.sets import apply_set, plan_set
from timerq.errors import TimerqError
from timerq.exchange import Place
from timerq.model import (
    Backfilled,
    Bound,
    BoundRule,
    Change,
    DstGap,
    DstOverlap,
    Event,
    Misfire,
    Outcome,
    Overlap,
    Page,
    Schedule,
    Stats,
    Swept,
    check_plain_name,
)
from timerq.settings import DEFAULT_MAX_PAYLOAD_BYTES
from timerq.timing import Duration, Exclusion, Instant

T = TypeVar("T")

Handles = list["AsyncHandle | TimerqError"]
Changes = list[Change | TimerqError]
Instants = list[datetime]


class AsyncHandle(Upserted):
    """What `AsyncTimerQueue.upsert` returns: what it did, and a way to take it back."""

    __slots__ = ("_queue",)

    def _of(self, queue: AsyncTimerQueue) -> Self:
        """The same handle, of ``queue``."""
        self._queue = queue
        return self

    async def cancel(self) -> bool:
        """Cancels this very version; False where it has fired, was replaced or was cancelled before.

        False too where nothing was stored (VERSION_MISMATCH, OWNER_GONE): what is there is another's. Raises
        `QueueUnavailable`.
        """
        if self.at_ms is None:
            return False
        change = await self._queue.cancel(self.key, owner=self.owner, if_version=self.version)
        self.is_cancelled = self.is_cancelled or change.outcome is Outcome.CANCELLED
        return change.outcome is Outcome.CANCELLED


class AsyncTimerQueue:
    """A timer queue in Redis, for one tenant of one namespace. For one event loop; close it when done.

    Every verb raises `InvalidSchedule` for a bad argument (nothing was written), `QueueUnavailable` where Redis is
    away or refuses (calling again is safe) and `NamespaceMismatch` where the namespace is not what this client knows.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "timerq",
        tenant: str = "default",
        clock: Clock = ask_redis,
        payload_limit: int = DEFAULT_MAX_PAYLOAD_BYTES,
        **options: Any,
    ) -> None:
        self._name = check_plain_name("namespace", namespace)
        self._tenant = check_plain_name("tenant", tenant)
        self._payload_limit = payload_limit
        self._link = AsyncLink(url, clock, **options)
        started = self._link.connections.embedded  # a server of the URL's own: others are to find this one
        self._place = Place(
            url if started is None else started.url, namespace, tenant, clock, payload_limit, options
        )
        self._scope: Scope | None = None
        self._opening = asyncio.Lock()
        self._calls = AsyncCalls(self._link)

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        namespace: str = "timerq",
        tenant: str = "default",
        clock: Clock = ask_redis,
        payload_limit: int = DEFAULT_MAX_PAYLOAD_BYTES,
        **options: Any,
    ) -> Self:
        """A queue at ``url`` (see `timerq.topology`); Redis is asked at the first call, not here.

        ``payload_limit`` is the largest payload accepted, in bytes. ``options`` are redis-py's, as in
        ``socket_timeout=2``.
        """
        return cls(
            url, namespace=namespace, tenant=tenant, clock=clock, payload_limit=payload_limit, **options
        )

    async def init(
        self,
        *,
        partitions: int | None = None,
        clock: str | None = None,
        retention: Duration | None = None,
        max_age: Duration | None = None,
        max_length: int | None = None,
    ) -> Namespace:
        """Makes the namespace where there is none, or changes the settings that are given.

        ``partitions`` (default 1) and ``clock`` ("redis", or "manual" for tests) are chosen for good; another value
        later raises `NamespaceMismatch`. Events stay on their streams for ``retention`` (default 24 h) at least, and
        until every group has acknowledged them; ``max_age`` and ``max_length`` (entries) bound even those, 0 for no
        bound.
        """
        namespace = await self._link.run(
            open_namespace(
                self._name,
                partitions=partitions,
                clock=clock,
                retention=retention,
                max_age=max_age,
                max_length=max_length,
            )
        )
        return self._enter(namespace)

    async def upsert(
        self,
        key: str,
        event: Event,
        *,
        at: Instant | None = None,
        delay: Duration | None = None,
        every: Duration | None = None,
        owner: str | None = None,
        initial_delay: Duration | None = None,
        start: Instant | None = None,
        until: Instant | None = None,
        limit: int | None = None,
        mode: Mode = "replace",
        max_wait: Duration | None = None,
        restart: bool = False,
        paused: bool | None = None,
        reset: bool = False,
        if_version: int | None = None,
        idempotency_key: str | None = None,
        cron: str | Iterable[str] | None = None,
        timezone: str | None = None,
        dst_gap: DstGap | None = None,
        dst_overlap: DstOverlap | None = None,
        exclude: Exclusion | Iterable[Exclusion] | None = None,
        anchor: Instant | None = None,
        jitter: Duration | None = None,
        misfire: Misfire | None = None,
        grace: Duration | None = None,
        max_catch_up: int | None = None,
        overlap: Overlap | None = None,
        ack_group: str | None = None,
        running_timeout: Duration | None = None,
        fixed_delay: bool | None = None,
        pause_after: int | None = None,
        by: str | None = None,
        durable: str | None = None,
    ) -> AsyncHandle:
        """Creates the schedule of ``key`` (and ``owner``), or replaces the one there is.

        Exactly one of ``at`` (aware datetime, epoch ms, RFC 3339 text; one in the past fires at once), ``delay``,
        ``every`` (durations: ms as an int, timedelta, ``"1h30m"``, ``"PT1H30M"``, a mapping) and ``cron``.

        ``every``: the first fire is after one interval, or after ``initial_delay`` (0: at once), or on the grid of
        ``start`` or ``anchor`` (an instant, or "clock": on the hour, on the minute). It keeps its rate, or with
        ``fixed_delay`` comes an interval after the last one was fired (with ``ack_group``: handled). ``cron``: one or
        several expressions, see `timerq.timing.cron`, read in ``timezone`` (an IANA name; UTC). ``dst_gap`` ("shift",
        "skip") and ``dst_overlap`` ("first", "second", "both") say what a clock change does to fixed times; ``exclude``
        leaves out dates ("2026-12-25"), ranges ("2026-12-24/2026-12-26") and expressions. Both kinds: none is due after
        ``until``, there are ``limit`` at the most, each is put off by up to ``jitter``, the same for each occurrence
        every time. ``misfire`` says what becomes of those that nobody was there to fire: "fire_once" folds them into
        one event that says how many it stands for; "skip" leaves out what is overdue by more than ``grace`` (10 s);
        "catch_up" publishes each one, the last ``max_catch_up`` (100) of them. ``overlap`` says what becomes of one
        that is due while the event before it is not handled: "allow", "skip", "queue" (one waits). Handled is what
        `done` was told (``ack_group`` names those whose part it is to tell; an XACK alone tells nothing), or what is
        older than ``running_timeout`` (1 h). ``pause_after`` so many failures in a row it pauses. ``by`` is who sets
        it.

        ``mode``: "replace"; "keep" leaves an existing one in place; "earliest" and "latest" let the one-shot that is
        due earlier or later win. ``max_wait`` is for a debounce: pushed again and again, it fires no later than that
        after it was first armed. Repeating the same recurring definition is UNCHANGED and keeps its phase, unless
        ``restart``; ``reset`` also starts what ``limit`` counts anew. A paused schedule stays paused unless
        ``paused=False``. ``if_version`` makes it a compare-and-set (0: only where there is none). A second call with
        the same ``idempotency_key`` (of the same lane) is a DUPLICATE with the first answer, for as long as events
        are retained, also when the timer has fired meanwhile; with another body it is refused.

        ``durable``: "replicas=N" or "fsync", with ``,timeout=…`` (1 s, 3 s for fsync); the handle says which level was
        reached.
        """
        wanted = Upsert(
            key,
            event,
            at,
            delay,
            every,
            owner,
            initial_delay,
            start,
            until,
            limit,
            mode,
            max_wait,
            restart,
            paused,
            reset,
            if_version,
            idempotency_key,
            cron,
            timezone,
            dst_gap,
            dst_overlap,
            exclude,
            anchor,
            jitter,
            misfire,
            grace,
            max_catch_up,
            overlap,
            ack_group,
            running_timeout,
            fixed_delay,
            pause_after,
            by,
        )
        scope = await self._open()
        now = await self._link.server_clock(scope.namespace) if wanted.needs_time else None
        item = upserting.item(scope, wanted, AsyncHandle, now=now)
        return (await self._call(item, parse_durable(durable)))._of(self)

    async def upsert_many(
        self, items: Iterable[Upsert | Mapping[str, Any]], *, durable: str | None = None
    ) -> Handles:
        """Many upserts in few round trips; a handle or an exception an item, in order.

        An item is an `Upsert` or a mapping with the words of `upsert`. One bad item is an `InvalidSchedule` in the
        results and does not sink the rest.
        """
        scope = await self._open()
        now = await self._link.server_clock(scope.namespace)
        return await self._link.run(
            many(
                scope,
                lambda thing: upserting.item(scope, thing, AsyncHandle, now=now),
                items,
                parse_durable(durable),
                lambda handle: handle._of(self),
            )
        )

    async def call_later(
        self, delay: Duration, function: Callable[..., Any], /, *args: Any, key: str | None = None
    ) -> AsyncHandle:
        """Calls a function under ``@app.task`` with ``args`` once, after ``delay``, in a process that runs the app.

        Every call stands for itself; one with a ``key`` replaces the one before. Cancel it as any schedule. Raises
        `InvalidSchedule` for a function that is not registered, or cannot be called with ``args``.
        """
        key, event = call_later(function, args, key)
        return await self.upsert(key, event, delay=delay)

    async def call_every(
        self, interval: Duration, function: Callable[..., Any], /, *args: Any, key: str | None = None
    ) -> AsyncHandle:
        """Calls a function under ``@app.task`` with ``args`` again and again, every ``interval``.

        Saying it again changes nothing but the interval: the key, unless given, is that of the function's name and its
        ``args``. Cancel it as any schedule. Raises as `call_later` does.
        """
        key, event = call_every(function, args, key)
        return await self.upsert(key, event, every=interval)

    async def cancel(
        self,
        key: str,
        *,
        owner: str | None = None,
        if_version: int | None = None,
        by: str | None = None,
        durable: str | None = None,
    ) -> Change:
        """Cancels the schedule of ``key`` (and ``owner``): CANCELLED, NOT_PENDING or VERSION_MISMATCH.

        After CANCELLED it never fires. ``by`` is who does it: `why` tells.
        """
        scope = await self._open()
        return await self._call(cancelling.item(scope, key, owner, if_version, by), parse_durable(durable))

    async def cancel_many(
        self, keys: Iterable[str], *, owner: str | None = None, durable: str | None = None
    ) -> Changes:
        """Cancels many keys (of one ``owner``) in few round trips; a change or an exception a key, in order."""
        scope = await self._open()
        return await self._link.run(
            many(scope, lambda key: cancelling.item(scope, key, owner), keys, parse_durable(durable))
        )

    async def cancel_prefix(
        self, prefix: str, *, owner: str | None = None, durable: str | None = None
    ) -> Swept:
        """Cancels every schedule whose key begins with ``prefix`` (of one ``owner``); returns how many there were.

        A prefix is a prefix, never a pattern; the empty one is every key. What is armed after the call began stays.
        """
        return await self._link.run(
            cancelling.sweep(await self._open(), prefix, owner, parse_durable(durable))
        )

    async def cancel_owner(self, owner: str, *, durable: str | None = None) -> Swept:
        """Cancels every schedule of ``owner``; returns how many there were. What is armed meanwhile stays."""
        return await self._link.run(cancelling.sweep(await self._open(), "", owner, parse_durable(durable)))

    async def get(self, key: str, *, owner: str | None = None) -> Schedule | None:
        """The schedule of ``key`` (and ``owner``) as it is stored, or None."""
        return await self._link.run(read.get(await self._look(), key, owner))

    async def list(
        self,
        prefix: str = "",
        *,
        owner: str | None = None,
        due_from: Instant | None = None,
        due_to: Instant | None = None,
    ) -> AsyncIterator[Schedule]:
        """The schedules whose key begins with ``prefix``, of one ``owner`` where one is given, in key order.

        With ``due_from`` or ``due_to`` (instants, both included): those that are due in that time, soonest first;
        paused ones are in no such list. Read page by page, so it may be as long as you like.
        """
        scope = await self._look()
        if due_from is None and due_to is None:
            cursor: str | None = None
            while True:
                page = await self._link.run(read.list_page(scope, prefix, owner, cursor, read.MAX_PAGE))
                for schedule in page.items:
                    yield schedule
                if (cursor := page.cursor) is None:
                    return
        place = None
        while True:
            items, place = await self._link.run(read.due_page(scope, due_from, due_to, place, read.MAX_PAGE))
            for schedule in read.of(items, prefix, owner):
                yield schedule
            if place is None:
                return

    async def list_page(
        self, prefix: str = "", *, owner: str | None = None, after: str | None = None, limit: int = 100
    ) -> Page:
        """One page of `list` in key order: up to ``limit`` (1 to 200) schedules behind the cursor ``after``.

        The page's cursor is for the next one, None at the end. Keys that come and go neither repeat nor skip others.
        """
        return await self._link.run(read.list_page(await self._look(), prefix, owner, after, limit))

    async def count(self, prefix: str = "", *, owner: str | None = None) -> int:
        """How many schedules there are whose key begins with ``prefix``, of one ``owner`` where one is given."""
        return await self._link.run(read.count(await self._look(), prefix, owner))

    async def trigger(
        self,
        key: str,
        *,
        owner: str | None = None,
        consume: bool = False,
        if_version: int | None = None,
        by: str | None = None,
        durable: str | None = None,
    ) -> Change:
        """Publishes the schedule's event now, with an id of its own: TRIGGERED, NOT_PENDING or VERSION_MISMATCH.

        Twice within one second of Redis's clock is once: DUPLICATE, with the first one's ``event_id``.
        Its count, limit and timing stay; a pending one-shot still fires, unless ``consume`` takes it out.
        """
        scope = await self._open()
        item = edit.item(scope, "consume" if consume else "trigger", key, owner, if_version, by=by)
        return await self._call(item, parse_durable(durable))

    async def pause(
        self,
        key: str,
        *,
        owner: str | None = None,
        if_version: int | None = None,
        note: str | None = None,
        by: str | None = None,
        durable: str | None = None,
    ) -> Change:
        """Keeps the schedule from firing until `resume`: PAUSED, UNCHANGED, NOT_PENDING or VERSION_MISMATCH.

        ``note`` (up to 1,000 bytes) says why and ``by`` who: `get` and `why` show them.
        """
        scope = await self._open()
        item = edit.item(scope, "pause", key, owner, if_version, by=by, note=note)
        return await self._call(item, parse_durable(durable))

    async def resume(
        self,
        key: str,
        *,
        owner: str | None = None,
        if_version: int | None = None,
        from_now: bool = False,
        by: str | None = None,
        durable: str | None = None,
    ) -> Change:
        """Arms a paused schedule again: RESUMED, UNCHANGED, NOT_PENDING or VERSION_MISMATCH.

        An overdue one-shot fires now; of a recurring one, what was missed follows its ``misfire``, or with ``from_now``
        is left out and counted, and it goes on with its next occurrence.
        """
        scope = await self._open()
        if from_now:
            now = await self._link.server_clock(scope.namespace)
            return await self._link.run(
                recurring.resume_from_now(scope, key, owner, if_version, by, now, parse_durable(durable))
            )
        item = edit.item(scope, "resume", key, owner, if_version, by=by)
        return await self._call(item, parse_durable(durable))

    async def backfill(
        self, key: str, start: Instant, end: Instant, *, owner: str | None = None, by: str | None = None
    ) -> Backfilled:
        """Publishes the occurrences of a past range, both ends included, marked ``backfill``.

        Each has the id ``…-b<at>``, however often one version of the schedule is asked for it; the schedule's timing,
        ``n`` and counters stay. At most 100,000 at a time. Raises `InvalidSchedule` for a range that is not of the
        past, and for a schedule without a grid.
        """
        scope = await self._open()
        now = await self._link.server_clock(scope.namespace)
        return await self._link.run(recurring.backfill(scope, key, owner, start, end, by, now()))

    async def done(self, event_id: str, *, error: str | None = None) -> Change:
        """Says that an event is handled, or with ``error`` that handling it failed: DONE, PAUSED or NOT_PENDING.

        For schedules with ``overlap``, ``fixed_delay`` or ``pause_after``: what waits for the handling goes on. PAUSED:
        it was the last of ``pause_after`` failures. NOT_PENDING: nobody waits for this event (any more).
        """
        return await self._link.run(recurring.done(await self._open(), event_id, error))

    async def next(self, key: str, n: int = 10, *, owner: str | None = None) -> Instants:
        """The next ``n`` (1 to 1,000) instants of the stored schedule, aware and in UTC; none where there is none.

        The first is the armed one; there are fewer where it ends before, and one where only that is known.
        """
        return await self._link.run(recurring.next_of(await self._look(), key, owner, n))

    async def why(self, key: str, *, owner: str | None = None) -> History:
        """What is known of ``key`` (and ``owner``): the schedule as it is stored, and what the log remembers.

        `timerq.explain.sentences` puts it into words.
        """
        return await self._link.run(history(await self._look(), key, owner))

    async def plan_set(self, label: str, items: Iterable[Upsert | Mapping[str, Any]]) -> SetPlan:
        """What `apply_set` would do; nothing is written."""
        scope = await self._look()
        now = await self._link.server_clock(scope.namespace)
        return await self._link.run(plan_set(scope, label, items, now()))

    async def apply_set(
        self,
        label: str,
        items: Iterable[Upsert | Mapping[str, Any]],
        *,
        prune: bool = False,
        take_over: bool = False,
        by: str | None = None,
        durable: str | None = None,
    ) -> Applied[AsyncHandle]:
        """Makes the set ``label`` what ``items`` say: recurring schedules without owners, each stored atomically.

        What is so already is not touched. ``prune`` cancels what the set had before and has no longer, never anything
        of another set or of none; a key that another set declares is refused unless ``take_over``. Where a later apply
        of the set begins meanwhile, this one stops and says SUPERSEDED, so that the set ends as the later one has it.
        ``by`` is who does it, also who sets the items that do not say so.
        """
        scope = await self._open()
        level = parse_durable(durable)
        steps = apply_set(
            scope, label, items, AsyncHandle, prune_others=prune, take_over=take_over, by=by, durable=level
        )
        applied = await self._link.run(steps)
        for item in applied.items:
            if isinstance(item, AsyncHandle):
                item._of(self)
        return applied

    async def publish(
        self, event: Event, *, key: str, owner: str | None = None, durable: str | None = None
    ) -> Change:
        """Puts an event straight onto the stream of its lane (``owner``, or ``key`` without one): PUBLISHED."""
        scope = await self._open()
        return await self._call(edit.publish_item(scope, event, key, owner), parse_durable(durable))

    async def dead_list(
        self, group: str, which: Which = EVERY, *, stream: str = "events"
    ) -> AsyncIterator[DeadLetter]:
        """The events of ``stream`` that ``group`` has given up, each partition's oldest first; see `Which`.

        What dies meanwhile is not among them. Read page by page, so they may be as many as you like.
        """
        cursor: str | None = None
        while True:
            page = await self.dead_list_page(group, which, stream=stream, after=cursor, limit=read.MAX_PAGE)
            for letter in page.letters:
                yield letter
            if (cursor := page.after) is None:
                return

    async def dead_list_page(
        self,
        group: str,
        which: Which = EVERY,
        *,
        stream: str = "events",
        after: str | None = None,
        limit: int = 100,
    ) -> DeadPage:
        """One page of `dead_list`: up to ``limit`` (1 to 200) letters behind the cursor ``after``.

        A page may be shorter, also empty, with more behind it: the last one has no cursor.
        """
        steps = dead_list(await self._look(), stream, group, which, after=after, limit=limit)
        return await self._link.run(steps)

    async def dead_count(self, group: str, which: Which = EVERY, *, stream: str = "events") -> int:
        """How many dead letters of ``group`` there are."""
        return await self._link.run(dead_count(await self._look(), stream, group, which))

    async def dead_show(self, group: str, id: str, *, stream: str = "events") -> DeadLetter | None:
        """The latest dead letter of the event ``id`` (or at this `DeadLetter.place`), or None."""
        return await self._link.run(dead_show(await self._look(), stream, group, id))

    async def dead_replay(
        self, group: str, which: Which, *, stream: str = "events", limit: int | None = None
    ) -> int:
        """Publishes dead letters again, for ``group`` alone, at the end of their stream; returns how many.

        Each keeps its id, its attempts begin anew, and what dies meanwhile is not replayed again. ``limit``: so many at
        the most, each partition's oldest first. After `QueueUnavailable` call it again: none is published twice.
        """
        return await self._link.run(dead_replay(await self._look(), stream, group, which, limit=limit))

    async def dead_discard(
        self, group: str, which: Which, *, stream: str = "events", limit: int | None = None
    ) -> int:
        """Throws dead letters away, for good; returns how many. ``limit`` is that of `dead_replay`."""
        return await self._link.run(dead_discard(await self._look(), stream, group, which, limit=limit))

    def owner(self, name: str, ttl: Duration | None = None) -> AsyncOwner:
        """A handle of the timers of one owner, such as a session or an actor: every verb is scoped to it; see `Owner`.

        They die with the owner: with its `destroy`, with the end of its ``with`` block and, where a ``ttl`` is given
        (100 ms or more), when its heartbeat stops: a handle sends one three times in that time, so a process that is
        killed takes its timers with it, as soon as a dispatcher has noticed. Nothing is sent yet.
        """
        return AsyncOwner(self, name, ttl, AsyncHandle)

    async def bound(
        self,
        stream: str,
        *,
        group: str,
        limit: int | None = None,
        lane_limit: int | None = None,
        rule: BoundRule = "hold",
    ) -> Bound:
        """Bounds how many events of ``stream`` may wait for ``group``: ``limit`` of all, ``lane_limit`` of each lane.

        Of what comes beyond, ``rule`` says: "hold" keeps it from firing until there is room, and refuses `publish` with
        `BacklogFull`; "drop_newest" drops it; "drop_oldest" drops what waits for longest. In force, for every process,
        when this returns; a stream has one bound, and another one takes its place. Each partition has an equal part of
        ``limit``, rounded up. Raises `InvalidSchedule`.
        """
        return await self._link.run(backlog.bound(await self._open(), stream, group, limit, lane_limit, rule))

    async def unbound(self, stream: str) -> bool:
        """Ends the bound of ``stream``; what was held back fires. Whether there was one."""
        return await self._link.run(backlog.unbound(await self._look(), stream))

    async def stats(self) -> Stats:
        """Numbers of the tenant's schedules, and counters of the whole namespace."""
        return await self._link.run(read.stats(await self._look()))

    async def run(self, steps: Steps[T]) -> T:
        """Drives a verb of `timerq.commands` that has no method here, and returns its result."""
        return await self._link.run(steps)

    @property
    def namespace(self) -> Namespace | None:
        """The namespace as its meta describes it; None before the first call."""
        return None if self._scope is None else self._scope.namespace

    @property
    def tenant(self) -> str:
        """Whose schedules these are."""
        return self._tenant

    @property
    def place(self) -> Place:
        """Where the queue is, for another client of it; an embedded server's own URL."""
        server = self._link.connections.embedded
        return self._place if server is None else self._place._replace(url=server.url)

    async def close(self) -> None:
        """Closes every connection."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _look(self) -> Scope:
        """For verbs that only read: they make no namespace."""
        if self._scope is not None:
            return self._scope
        namespace = await self._link.run(find_namespace(self._name))
        if namespace.layout:
            return await self._open()
        return self._scope_of(namespace)

    async def _open(self) -> Scope:
        if self._scope is None:
            async with self._opening:
                if self._scope is None:
                    self._enter(await self._link.run(open_namespace(self._name)))
        assert self._scope is not None
        return self._scope

    def _scope_of(self, namespace: Namespace) -> Scope:
        return Scope(namespace, self._tenant, self._tenant.encode(), self._payload_limit)

    def _enter(self, namespace: Namespace) -> Namespace:
        self._scope = self._scope_of(namespace)
        self._link.remake = lambda: self._link.run(reopen_namespace(namespace))
        return namespace

    async def _call(self, item: Item[T], durable: Durability | None) -> T:
        """Joins the calls of the item's partition: alone at once, or with the others in the next script."""
        assert self._scope is not None
        return await self._calls.call(self._scope, item, durable)
