"""TimerQueue: the verbs, blocking. It sends what `timerq.commands` builds and holds no logic of its own.

`timerq.async_client` is the same with ``await``; a test compares their methods, parameters and docstrings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from timerq.clock import Clock, ask_redis
from timerq.commands import backlog, edit, read, recurring
from timerq.commands import cancel as cancelling
from timerq.commands import upsert as upserting
from timerq.commands.arming import Mode, Upsert, Upserted
from timerq.commands.calling import call_every, call_later
from timerq.commands.command import Namespace, Scope, Steps
from timerq.commands.dead import dead_count, dead_discard, dead_list, dead_replay, dead_show
from timerq.commands.durable import parse_durable
from timerq.commands.history import History, history
from timerq.commands.items import many, one
from timerq.commands.letters import EVERY, DeadLetter, DeadPage, Which
from timerq.commands.namespace import find_namespace, open_namespace, reopen_namespace
from timerq.commands.planned import Applied, SetPlan
from timerq.commands.sets import apply_set, plan_set
from timerq.errors import TimerqError
from timerq.exchange import Place
from timerq.link import Link
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
from timerq.owner import Owner
from timerq.settings import DEFAULT_MAX_PAYLOAD_BYTES
from timerq.timing import Duration, Exclusion, Instant

T = TypeVar("T")

Handles = list["Handle | TimerqError"]
Changes = list[Change | TimerqError]
Instants = list[datetime]


class Handle(Upserted):
    """What `TimerQueue.upsert` returns: what it did, and a way to take it back."""

    __slots__ = ("_queue",)

    def _of(self, queue: TimerQueue) -> Self:
        """The same handle, of ``queue``."""
        self._queue = queue
        return self

    def cancel(self) -> bool:
        """Cancels this very version; False where it has fired, was replaced or was cancelled before.

        False too where nothing was stored (VERSION_MISMATCH, OWNER_GONE): what is there is another's. Raises
        `QueueUnavailable`.
        """
        if self.at_ms is None:
            return False
        change = self._queue.cancel(self.key, owner=self.owner, if_version=self.version)
        self.is_cancelled = self.is_cancelled or change.outcome is Outcome.CANCELLED
        return change.outcome is Outcome.CANCELLED


class TimerQueue:
    """A timer queue in Redis, for one tenant of one namespace. Threads may share it; close it when done.

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
        self._link = Link(url, clock, **options)
        started = self._link.connections.embedded  # a server of the URL's own: others are to find this one
        self._place = Place(
            url if started is None else started.url, namespace, tenant, clock, payload_limit, options
        )
        self._scope: Scope | None = None

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

    def init(
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
        namespace = self._link.run(
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

    def upsert(
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
    ) -> Handle:
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
        scope = self._open()
        now = self._link.server_clock(scope.namespace) if wanted.needs_time else None
        item = upserting.item(scope, wanted, Handle, now=now)
        return self._link.run(one(scope, item, parse_durable(durable)))._of(self)

    def upsert_many(
        self, items: Iterable[Upsert | Mapping[str, Any]], *, durable: str | None = None
    ) -> Handles:
        """Many upserts in few round trips; a handle or an exception an item, in order.

        An item is an `Upsert` or a mapping with the words of `upsert`. One bad item is an `InvalidSchedule` in the
        results and does not sink the rest.
        """
        scope = self._open()
        now = self._link.server_clock(scope.namespace)
        return self._link.run(
            many(
                scope,
                lambda thing: upserting.item(scope, thing, Handle, now=now),
                items,
                parse_durable(durable),
                lambda handle: handle._of(self),
            )
        )

    def call_later(
        self, delay: Duration, function: Callable[..., Any], /, *args: Any, key: str | None = None
    ) -> Handle:
        """Calls a function under ``@app.task`` with ``args`` once, after ``delay``, in a process that runs the app.

        Every call stands for itself; one with a ``key`` replaces the one before. Cancel it as any schedule. Raises
        `InvalidSchedule` for a function that is not registered, or cannot be called with ``args``.
        """
        key, event = call_later(function, args, key)
        return self.upsert(key, event, delay=delay)

    def call_every(
        self, interval: Duration, function: Callable[..., Any], /, *args: Any, key: str | None = None
    ) -> Handle:
        """Calls a function under ``@app.task`` with ``args`` again and again, every ``interval``.

        Saying it again changes nothing but the interval: the key, unless given, is that of the function's name and its
        ``args``. Cancel it as any schedule. Raises as `call_later` does.
        """
        key, event = call_every(function, args, key)
        return self.upsert(key, event, every=interval)

    def cancel(
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
        scope = self._open()
        return self._link.run(
            one(scope, cancelling.item(scope, key, owner, if_version, by), parse_durable(durable))
        )

    def cancel_many(
        self, keys: Iterable[str], *, owner: str | None = None, durable: str | None = None
    ) -> Changes:
        """Cancels many keys (of one ``owner``) in few round trips; a change or an exception a key, in order."""
        scope = self._open()
        return self._link.run(
            many(scope, lambda key: cancelling.item(scope, key, owner), keys, parse_durable(durable))
        )

    def cancel_prefix(self, prefix: str, *, owner: str | None = None, durable: str | None = None) -> Swept:
        """Cancels every schedule whose key begins with ``prefix`` (of one ``owner``); returns how many there were.

        A prefix is a prefix, never a pattern; the empty one is every key. What is armed after the call began stays.
        """
        return self._link.run(cancelling.sweep(self._open(), prefix, owner, parse_durable(durable)))

    def cancel_owner(self, owner: str, *, durable: str | None = None) -> Swept:
        """Cancels every schedule of ``owner``; returns how many there were. What is armed meanwhile stays."""
        return self._link.run(cancelling.sweep(self._open(), "", owner, parse_durable(durable)))

    def get(self, key: str, *, owner: str | None = None) -> Schedule | None:
        """The schedule of ``key`` (and ``owner``) as it is stored, or None."""
        return self._link.run(read.get(self._look(), key, owner))

    def list(
        self,
        prefix: str = "",
        *,
        owner: str | None = None,
        due_from: Instant | None = None,
        due_to: Instant | None = None,
    ) -> Iterator[Schedule]:
        """The schedules whose key begins with ``prefix``, of one ``owner`` where one is given, in key order.

        With ``due_from`` or ``due_to`` (instants, both included): those that are due in that time, soonest first;
        paused ones are in no such list. Read page by page, so it may be as long as you like.
        """
        scope = self._look()
        if due_from is None and due_to is None:
            cursor: str | None = None
            while True:
                page = self._link.run(read.list_page(scope, prefix, owner, cursor, read.MAX_PAGE))
                yield from page.items
                if (cursor := page.cursor) is None:
                    return
        place = None
        while True:
            items, place = self._link.run(read.due_page(scope, due_from, due_to, place, read.MAX_PAGE))
            yield from read.of(items, prefix, owner)
            if place is None:
                return

    def list_page(
        self, prefix: str = "", *, owner: str | None = None, after: str | None = None, limit: int = 100
    ) -> Page:
        """One page of `list` in key order: up to ``limit`` (1 to 200) schedules behind the cursor ``after``.

        The page's cursor is for the next one, None at the end. Keys that come and go neither repeat nor skip others.
        """
        return self._link.run(read.list_page(self._look(), prefix, owner, after, limit))

    def count(self, prefix: str = "", *, owner: str | None = None) -> int:
        """How many schedules there are whose key begins with ``prefix``, of one ``owner`` where one is given."""
        return self._link.run(read.count(self._look(), prefix, owner))

    def trigger(
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
        scope = self._open()
        item = edit.item(scope, "consume" if consume else "trigger", key, owner, if_version, by=by)
        return self._link.run(one(scope, item, parse_durable(durable)))

    def pause(
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
        scope = self._open()
        item = edit.item(scope, "pause", key, owner, if_version, by=by, note=note)
        return self._link.run(one(scope, item, parse_durable(durable)))

    def resume(
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
        scope = self._open()
        if from_now:
            now = self._link.server_clock(scope.namespace)
            return self._link.run(
                recurring.resume_from_now(scope, key, owner, if_version, by, now, parse_durable(durable))
            )
        item = edit.item(scope, "resume", key, owner, if_version, by=by)
        return self._link.run(one(scope, item, parse_durable(durable)))

    def backfill(
        self, key: str, start: Instant, end: Instant, *, owner: str | None = None, by: str | None = None
    ) -> Backfilled:
        """Publishes the occurrences of a past range, both ends included, marked ``backfill``.

        Each has the id ``…-b<at>``, however often one version of the schedule is asked for it; the schedule's timing,
        ``n`` and counters stay. At most 100,000 at a time. Raises `InvalidSchedule` for a range that is not of the
        past, and for a schedule without a grid.
        """
        scope = self._open()
        now = self._link.server_clock(scope.namespace)
        return self._link.run(recurring.backfill(scope, key, owner, start, end, by, now()))

    def done(self, event_id: str, *, error: str | None = None) -> Change:
        """Says that an event is handled, or with ``error`` that handling it failed: DONE, PAUSED or NOT_PENDING.

        For schedules with ``overlap``, ``fixed_delay`` or ``pause_after``: what waits for the handling goes on. PAUSED:
        it was the last of ``pause_after`` failures. NOT_PENDING: nobody waits for this event (any more).
        """
        return self._link.run(recurring.done(self._open(), event_id, error))

    def next(self, key: str, n: int = 10, *, owner: str | None = None) -> Instants:
        """The next ``n`` (1 to 1,000) instants of the stored schedule, aware and in UTC; none where there is none.

        The first is the armed one; there are fewer where it ends before, and one where only that is known.
        """
        return self._link.run(recurring.next_of(self._look(), key, owner, n))

    def why(self, key: str, *, owner: str | None = None) -> History:
        """What is known of ``key`` (and ``owner``): the schedule as it is stored, and what the log remembers.

        `timerq.explain.sentences` puts it into words.
        """
        return self._link.run(history(self._look(), key, owner))

    def plan_set(self, label: str, items: Iterable[Upsert | Mapping[str, Any]]) -> SetPlan:
        """What `apply_set` would do; nothing is written."""
        scope = self._look()
        now = self._link.server_clock(scope.namespace)
        return self._link.run(plan_set(scope, label, items, now()))

    def apply_set(
        self,
        label: str,
        items: Iterable[Upsert | Mapping[str, Any]],
        *,
        prune: bool = False,
        take_over: bool = False,
        by: str | None = None,
        durable: str | None = None,
    ) -> Applied[Handle]:
        """Makes the set ``label`` what ``items`` say: recurring schedules without owners, each stored atomically.

        What is so already is not touched. ``prune`` cancels what the set had before and has no longer, never anything
        of another set or of none; a key that another set declares is refused unless ``take_over``. Where a later apply
        of the set begins meanwhile, this one stops and says SUPERSEDED, so that the set ends as the later one has it.
        ``by`` is who does it, also who sets the items that do not say so.
        """
        scope = self._open()
        level = parse_durable(durable)
        steps = apply_set(
            scope, label, items, Handle, prune_others=prune, take_over=take_over, by=by, durable=level
        )
        applied = self._link.run(steps)
        for item in applied.items:
            if isinstance(item, Handle):
                item._of(self)
        return applied

    def publish(
        self, event: Event, *, key: str, owner: str | None = None, durable: str | None = None
    ) -> Change:
        """Puts an event straight onto the stream of its lane (``owner``, or ``key`` without one): PUBLISHED."""
        scope = self._open()
        return self._link.run(one(scope, edit.publish_item(scope, event, key, owner), parse_durable(durable)))

    def dead_list(self, group: str, which: Which = EVERY, *, stream: str = "events") -> Iterator[DeadLetter]:
        """The events of ``stream`` that ``group`` has given up, each partition's oldest first; see `Which`.

        What dies meanwhile is not among them. Read page by page, so they may be as many as you like.
        """
        cursor: str | None = None
        while True:
            page = self.dead_list_page(group, which, stream=stream, after=cursor, limit=read.MAX_PAGE)
            yield from page.letters
            if (cursor := page.after) is None:
                return

    def dead_list_page(
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
        steps = dead_list(self._look(), stream, group, which, after=after, limit=limit)
        return self._link.run(steps)

    def dead_count(self, group: str, which: Which = EVERY, *, stream: str = "events") -> int:
        """How many dead letters of ``group`` there are."""
        return self._link.run(dead_count(self._look(), stream, group, which))

    def dead_show(self, group: str, id: str, *, stream: str = "events") -> DeadLetter | None:
        """The latest dead letter of the event ``id`` (or at this `DeadLetter.place`), or None."""
        return self._link.run(dead_show(self._look(), stream, group, id))

    def dead_replay(
        self, group: str, which: Which, *, stream: str = "events", limit: int | None = None
    ) -> int:
        """Publishes dead letters again, for ``group`` alone, at the end of their stream; returns how many.

        Each keeps its id, its attempts begin anew, and what dies meanwhile is not replayed again. ``limit``: so many at
        the most, each partition's oldest first. After `QueueUnavailable` call it again: none is published twice.
        """
        return self._link.run(dead_replay(self._look(), stream, group, which, limit=limit))

    def dead_discard(
        self, group: str, which: Which, *, stream: str = "events", limit: int | None = None
    ) -> int:
        """Throws dead letters away, for good; returns how many. ``limit`` is that of `dead_replay`."""
        return self._link.run(dead_discard(self._look(), stream, group, which, limit=limit))

    def owner(self, name: str, ttl: Duration | None = None) -> Owner:
        """A handle of the timers of one owner, such as a session or an actor: every verb is scoped to it; see `Owner`.

        They die with the owner: with its `destroy`, with the end of its ``with`` block and, where a ``ttl`` is given
        (100 ms or more), when its heartbeat stops: a handle sends one three times in that time, so a process that is
        killed takes its timers with it, as soon as a dispatcher has noticed. Nothing is sent yet.
        """
        return Owner(self, name, ttl, Handle)

    def bound(
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
        return self._link.run(backlog.bound(self._open(), stream, group, limit, lane_limit, rule))

    def unbound(self, stream: str) -> bool:
        """Ends the bound of ``stream``; what was held back fires. Whether there was one."""
        return self._link.run(backlog.unbound(self._look(), stream))

    def stats(self) -> Stats:
        """Numbers of the tenant's schedules, and counters of the whole namespace."""
        return self._link.run(read.stats(self._look()))

    def run(self, steps: Steps[T]) -> T:
        """Drives a verb of `timerq.commands` that has no method here, and returns its result."""
        return self._link.run(steps)

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

    def close(self) -> None:
        """Closes every connection."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _look(self) -> Scope:
        """For verbs that only read: they make no namespace."""
        if self._scope is not None:
            return self._scope
        namespace = self._link.run(find_namespace(self._name))
        if namespace.layout:
            return self._open()
        return self._scope_of(namespace)

    def _open(self) -> Scope:
        if self._scope is None:
            self._enter(self._link.run(open_namespace(self._name)))
        assert self._scope is not None
        return self._scope

    def _scope_of(self, namespace: Namespace) -> Scope:
        return Scope(namespace, self._tenant, self._tenant.encode(), self._payload_limit)

    def _enter(self, namespace: Namespace) -> Namespace:
        self._scope = self._scope_of(namespace)
        self._link.remake = lambda: self._link.run(reopen_namespace(namespace))
        return namespace
