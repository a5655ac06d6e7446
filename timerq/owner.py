"""Owner: the timers of one owner, such as a session or an actor, which die with it.

`timerq.async_owner` is the same with ``await``; a test compares their methods, parameters and docstrings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from timerq.beats import Beat
from timerq.commands import cancel as cancelling
from timerq.commands import edit, owned, owner, read, recurring
from timerq.commands import upsert as upserting
from timerq.commands.arming import Upsert
from timerq.commands.command import Scope, Steps
from timerq.commands.durable import parse_durable
from timerq.commands.history import History, history
from timerq.commands.items import Item, many, one
from timerq.commands.owned import Life, OwnedWords
from timerq.model import Backfilled, Change, Event, Page, Schedule, Swept
from timerq.timing import Duration, Instant

if TYPE_CHECKING:
    from timerq.client import Changes, Handle, Handles, Instants, TimerQueue

T = TypeVar("T")

Place = tuple[int, bytes]
Due = tuple[list[Schedule], Place | None]
Keys = list[str]


class Owner:
    """A handle of an owner, made by `TimerQueue.owner`: its timers die with it, at the latest with `destroy`.

    At its first call that is no mere look (or by `open`, or as a context manager) it takes its incarnation. When the
    owner is destroyed, through this or another handle or because its heartbeat stopped, the incarnations of that time
    are gone for good: nothing armed before is fired, and what is asked through their handles changes nothing. Upserts
    and changes are then answered OWNER_GONE, `cancel` False, sweeps 0, and reads as if there was nothing. A handle
    made after that has an incarnation of its own and starts clean. Several handles of one owner may live at once.

    As a context manager it destroys the owner on exit. It may be shared as its queue may.
    """

    def __init__(self, queue: TimerQueue, name: str, ttl: Duration | None, make: type[Handle]) -> None:
        self._queue = queue
        self._life = Life.of(name, ttl)
        self._make = make
        self._changing = threading.RLock()  # who takes an incarnation or ends one
        self._heartbeat: Beat | None = None

    @property
    def name(self) -> str:
        """The owner's name."""
        return self._life.owner

    @property
    def incarnation(self) -> int | None:
        """The version by which this handle is known; None before its first call."""
        return self._life.incarnation

    @property
    def is_gone(self) -> bool:
        """Whether this incarnation was destroyed, as far as this handle has heard; Redis is not asked."""
        return self._life.is_gone

    def open(self) -> Self:
        """Takes the incarnation now, and starts the heartbeat where it has a ``ttl``; returns itself. Twice is once."""
        self._open()
        return self

    def upsert(
        self, key: str, event: Event, *, durable: str | None = None, **words: Unpack[OwnedWords]
    ) -> Handle:
        """`TimerQueue.upsert` for this owner, with all its words (at, delay, every, cron …)."""
        return self._arm(Upsert(key, event, owner=self.name, **words), durable)

    def upsert_many(
        self, items: Iterable[Upsert | Mapping[str, Any]], *, durable: str | None = None
    ) -> Handles:
        """`TimerQueue.upsert_many` for this owner; an item that names another owner is an `InvalidSchedule`."""
        scope = self._open()
        life, queue = self._life, self._queue
        if life.is_gone:
            return [*life.upserted_many(items, scope.tenant, self._make)]
        now = queue._link.server_clock(scope.namespace)
        return queue.run(
            many(
                scope,
                lambda thing: upserting.item(scope, life.mine(thing), self._make, life.incarnation, now),
                items,
                parse_durable(durable),
                lambda handle: life.heard(handle)._of(queue),
            )
        )

    def start_single(self, key: str, event: Event, delay: Duration) -> Handle:
        """Starts a timer that fires once, after ``delay``. Starting a key again replaces its timer, whatever it was."""
        return self._arm(owned.single(self.name, key, event, delay), None)

    def start_fixed_delay(
        self,
        key: str,
        event: Event,
        delay: Duration,
        initial_delay: Duration | None = None,
        *,
        ack_group: str | None = None,
    ) -> Handle:
        """Starts a timer that comes again ``delay`` after it was fired; with ``ack_group``, after that was handled.

        The first comes after ``initial_delay`` (0: at once), or one ``delay``. Starting a key again replaces its timer
        and begins anew.
        """
        wanted = owned.recurring(self.name, key, event, delay, initial_delay, ack_group, fixed_delay=True)
        return self._arm(wanted, None)

    def start_fixed_rate(
        self, key: str, event: Event, every: Duration, initial_delay: Duration | None = None
    ) -> Handle:
        """Starts a timer that comes every ``every``, however late the last one was; missed ones fold into the next.

        The first comes after ``initial_delay`` (0: at once), or one ``every``. Starting a key again replaces its timer
        and begins anew.
        """
        return self._arm(owned.recurring(self.name, key, event, every, initial_delay), None)

    def cancel(
        self, key: str, *, if_version: int | None = None, by: str | None = None, durable: str | None = None
    ) -> bool:
        """Cancels the timer of ``key``; whether there was one. After True it never fires."""
        return bool(
            self._change(
                key,
                lambda scope, life: cancelling.item(scope, key, life.owner, if_version, by, life.incarnation),
                durable,
            )
        )

    def cancel_many(self, keys: Iterable[str], *, durable: str | None = None) -> Changes:
        """Cancels many keys in few round trips; a change or an exception a key, in order."""
        scope = self._open()
        life = self._life
        if life.is_gone:
            return [life.change(key) for key in keys]
        return self._queue.run(
            many(
                scope,
                lambda key: cancelling.item(scope, key, life.owner, incarnation=life.incarnation),
                keys,
                parse_durable(durable),
                life.heard,
            )
        )

    def cancel_prefix(self, prefix: str, *, durable: str | None = None) -> Swept:
        """Cancels every timer whose key begins with ``prefix``; returns how many there were.

        What is armed after the call began stays.
        """
        scope = self._open()
        life, level = self._life, parse_durable(durable)
        if life.is_gone:
            return Swept()
        place = life.owned(scope)
        return self._queue.run(owner.sweep_prefix(scope, place, prefix, level, life.lost(Swept())))

    def cancel_all(self, *, durable: str | None = None) -> Swept:
        """Cancels every timer; the owner lives on. Returns how many there were. What is armed meanwhile stays."""
        return self.cancel_prefix("", durable=durable)

    def get(self, key: str) -> Schedule | None:
        """The schedule of ``key`` as it is stored, or None."""
        return self._look(lambda scope: read.get(scope, key, self.name), None)

    def list(
        self, prefix: str = "", *, due_from: Instant | None = None, due_to: Instant | None = None
    ) -> Iterator[Schedule]:
        """Its schedules whose key begins with ``prefix``, in key order; with instants by due, see `TimerQueue.list`."""
        if due_from is None and due_to is None:
            cursor: str | None = None
            while True:
                page = self.list_page(prefix, after=cursor, limit=read.MAX_PAGE)
                yield from page.items
                if (cursor := page.cursor) is None:
                    return
        place: Place | None = None
        end: Due = ([], None)
        while True:
            items, place = self._look(self._due_page(due_from, due_to, place), end)
            yield from read.of(items, prefix, self.name)
            if place is None:
                return

    def list_page(self, prefix: str = "", *, after: str | None = None, limit: int = 100) -> Page:
        """One page of `list` in key order: up to ``limit`` (1 to 200) schedules behind the cursor ``after``."""
        return self._look(
            lambda scope: read.list_page(scope, prefix, self.name, after, limit), Page([], None)
        )

    def count(self, prefix: str = "") -> int:
        """How many schedules it has whose key begins with ``prefix``."""
        return self._look(lambda scope: read.count(scope, prefix, self.name), 0)

    def is_active(self, key: str) -> bool:
        """Whether there is a timer under ``key``: one that waits, is paused, or is being fired."""
        return self.get(key) is not None

    def active_keys(self, prefix: str = "") -> Keys:
        """The keys of its timers that begin with ``prefix``, in order."""
        nothing: Keys = []
        return self._look(lambda scope: owner.list_keys(scope, self._life.owned(scope), prefix), nothing)

    def trigger(
        self,
        key: str,
        *,
        consume: bool = False,
        if_version: int | None = None,
        by: str | None = None,
        durable: str | None = None,
    ) -> Change:
        """`TimerQueue.trigger` for this owner."""
        verb: edit.Verb = "consume" if consume else "trigger"
        return self._edit(verb, key, if_version, by, None, durable)

    def pause(
        self,
        key: str,
        *,
        if_version: int | None = None,
        note: str | None = None,
        by: str | None = None,
        durable: str | None = None,
    ) -> Change:
        """`TimerQueue.pause` for this owner."""
        return self._edit("pause", key, if_version, by, note, durable)

    def resume(
        self,
        key: str,
        *,
        if_version: int | None = None,
        from_now: bool = False,
        by: str | None = None,
        durable: str | None = None,
    ) -> Change:
        """`TimerQueue.resume` for this owner."""
        if not from_now:
            return self._edit("resume", key, if_version, by, None, durable)
        scope = self._open()
        life = self._life
        if life.is_gone:
            return life.change(key)
        now, level = self._queue._link.server_clock(scope.namespace), parse_durable(durable)
        steps = recurring.resume_from_now(scope, key, self.name, if_version, by, now, level, life.incarnation)
        return life.heard(self._queue.run(steps))

    def publish(self, event: Event, *, key: str, durable: str | None = None) -> Change:
        """Puts an event straight onto the stream of this owner's lane: PUBLISHED."""
        return self._change(
            key,
            lambda scope, life: edit.publish_item(scope, event, key, life.owner, life.incarnation),
            durable,
        )

    def backfill(self, key: str, start: Instant, end: Instant, *, by: str | None = None) -> Backfilled:
        """`TimerQueue.backfill` for this owner."""
        now = self._queue._link.server_clock(self._open().namespace)()
        return self._look(
            lambda scope: recurring.backfill(scope, key, self.name, start, end, by, now),
            self._life.backfilled(key),
        )

    def next(self, key: str, n: int = 10) -> Instants:
        """The next ``n`` (1 to 1,000) instants of the stored schedule, aware and in UTC; none where there is none."""
        return self._look(lambda scope: recurring.next_of(scope, key, self.name, n), [])

    def why(self, key: str) -> History:
        """What is known of ``key``, as `TimerQueue.why` tells it; also when this incarnation is gone."""
        return self._queue.run(history(self._queue._look(), key, self.name))

    def restart(self, *, durable: str | None = None) -> Swept:
        """Destroys what there is, whoever armed it, and starts a new incarnation; returns how many timers went."""
        scope = self._queue._open()
        place, level = self._life.owned(scope)._replace(incarnation=None), parse_durable(durable)
        with self._changing:
            self._stop_heartbeat()
            destroyed = self._queue.run(owner.destroy(scope, place, level))
            self._begin(scope)
        return destroyed.swept

    def destroy(self, *, durable: str | None = None) -> Swept:
        """Destroys the owner: once it returns, nothing armed before is fired or handed out; returns how many went.

        An incarnation that is gone destroys nothing of a later one. Where it raises `QueueUnavailable`, call it again;
        else a dispatcher ends what was begun. A handle without an incarnation destroys what there is.
        """
        scope = self._queue._open()
        level = parse_durable(durable)
        with self._changing:
            self._stop_heartbeat()
            if self._life.is_gone:
                return Swept()
            destroyed = self._queue.run(owner.destroy(scope, self._life.owned(scope), level))
            self._life.ended(destroyed)
        return destroyed.swept

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()

    def __repr__(self) -> str:
        return f"<Owner {self.name!r}{', gone' if self.is_gone else ''}>"

    # ------------------------------------------------------------------------------------------- how they are sent

    def _open(self) -> Scope:
        scope = self._queue._open()
        if self._life.must_begin:
            with self._changing:
                if self._life.must_begin:
                    self._begin(scope)
        return scope

    def _begin(self, scope: Scope) -> None:
        life = self._life
        life.began(self._queue.run(owner.begin(scope, life.owned(scope), life.ttl_ms)))
        if life.ttl_ms:
            place = life.owned(scope)
            self._heartbeat = self._queue._link.beats.start(self, life, scope.namespace, place)

    def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    def _arm(self, wanted: Upsert, durable: str | None) -> Handle:
        scope = self._open()
        life, queue = self._life, self._queue
        if life.is_gone:
            return life.upserted(wanted, scope.tenant, self._make)._of(queue)
        now = queue._link.server_clock(scope.namespace) if wanted.needs_time else None
        item = upserting.item(scope, wanted, self._make, life.incarnation, now)
        return life.heard(queue.run(one(scope, item, parse_durable(durable))))._of(queue)

    def _change(self, key: str, make: Callable[[Scope, Life], Item[Change]], durable: str | None) -> Change:
        scope = self._open()
        if self._life.is_gone:
            return self._life.change(key)
        item = make(scope, self._life)
        return self._life.heard(self._queue.run(one(scope, item, parse_durable(durable))))

    def _edit(
        self,
        verb: edit.Verb,
        key: str,
        if_version: int | None,
        by: str | None,
        note: str | None,
        durable: str | None,
    ) -> Change:
        def make(scope: Scope, life: Life) -> Item[Change]:
            return edit.item(
                scope, verb, key, life.owner, if_version, by=by, note=note, incarnation=life.incarnation
            )

        return self._change(key, make, durable)

    def _look(self, make: Callable[[Scope], Steps[T]], otherwise: T) -> T:
        scope = self._queue._look()
        life = self._life
        if life.is_gone:
            return otherwise
        steps = make(scope)
        if life.incarnation is not None:
            steps = owner.guarded(scope, life.owned(scope), steps, life.lost(otherwise))
        return self._queue.run(steps)

    def _due_page(
        self, due_from: Instant | None, due_to: Instant | None, place: Place | None
    ) -> Callable[[Scope], Steps[Due]]:
        return lambda scope: read.due_page(scope, due_from, due_to, place, read.MAX_PAGE)
