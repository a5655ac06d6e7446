"""What one reader has in hand: starts handlings, says what became of them, and keeps their leases alive."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from timerq.commands.consume import RawDelivery, Settlement, settle
from timerq.consumer.decode import decode, lane_of
from timerq.consumer.handlers import Handler
from timerq.consumer.handling import Handlings, Held
from timerq.consumer.lanes import Lanes
from timerq.consumer.outbox import Outbox
from timerq.consumer.verdict import DONE, Verdict
from timerq.errors import ContractBroken, TimerqError
from timerq.model import Delivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from timerq.consumer.service import Service

logger = logging.getLogger("timerq.consumer")

LEFT_FOR_MS = 30_000
"""How long an event that nobody here wants is left, before somebody else may be asked."""

LATE_S = 0.1
"""What was handed out longer ago does not begin before Redis has said again that it may: meanwhile its key may have
been cancelled, or this process have stood still for longer than its lease. The same holds for what was behind another
one in its lane that had to wait."""

MOST_AHEAD = 50
"""Of how many in one lane that is asked at once."""


class Desk:
    """The deliveries of one partition, from their start until Redis has answered what became of them."""

    def __init__(self, service: Service, partition: int, wake: Callable[[], None]) -> None:
        self._service = service
        self._partition = partition
        self._wake = wake
        self._held: dict[bytes, Held] = {}
        self.lanes: Lanes[RawDelivery] = Lanes()
        self.wake_below = 0  # the reader waits until so few are left in lanes that do not stand
        self.outbox = Outbox(self._send, self._answered)
        self._lately: dict[bytes, Held] | None = None
        self.is_in_doubt = False  # a lane may stand for what never comes
        self._handlings = Handlings(service, self)
        self._most_ahead = 0  # for how many behind one in its lane it is asked whether they may begin

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The handlings under way."""
        tasks = [held.task for held in self._held.values() if held.task is not None and not held.task.done()]
        return [*tasks, *self._handlings.worker]

    @property
    def under_way(self) -> int:
        """How many handlings were started and have not ended."""
        return self._handlings.count

    def has(self, raw: RawDelivery) -> bool:
        """Whether this very delivery is in hand, or was until a moment ago."""
        return self._find(raw) is not None

    def _find(self, raw: RawDelivery) -> Held | None:
        for known in (self._held, self._lately or {}):
            held = known.get(raw.entry)
            if held is not None and held.raw.delivery == raw.delivery:
                return held
        return None

    def asks_what_it_holds(self, asks: bool) -> None:
        """What is settled while that question is under way may be in the answer, and is not held any more."""
        self._lately = {} if asks else None

    def start(self, raw: RawDelivery) -> int:
        """Starts its handling; 1 where it takes a place, 0 where it is settled without."""
        service, app = self._service, self._service.app
        try:
            event = decode(raw, partition=self._partition, stream=app.stream, group=app.group)
        except ContractBroken as error:
            service.counts.unreadable += 1
            service.reporter.unreadable(raw, error)
            self._put(Held(raw), self._not_begun(raw, f"unreadable: {error}"))
            return 0
        handler = app.handler_of(event.type)
        if handler is None:
            self._unwanted(raw, event)
            return 0
        if event.attempt > handler.attempts:  # its handlings began, and none was heard of again
            begun = event.attempt - 1
            what = f"handling {begun} of {handler.attempts} never ended: its process died, or lost the event"
            verdict = Verdict("reject", error=what)
            service.reporter.failed(replace(event, attempt=begun), handler, verdict, None, 0)
            self._put(Held(raw), self._not_begun(raw, verdict.error), "reject")
            return 0
        held = Held(raw)
        self._held[raw.entry] = held
        self._handlings.start(held, event, handler)
        return 1

    def line_up(self, raw: RawDelivery) -> None:
        """Of an ordered group: it has its place in its lane."""
        self.lanes.add(lane_of(raw.fields), raw.entry, None if raw.waits_until_ms else raw)

    def stay_in_line(self, raw: RawDelivery) -> None:
        """Of an ordered group: it is in hand. Where it is to be tried again, its lane stands, whoever has led since."""
        held = self._find(raw)
        if held is not None and held.verb == "retry":
            self.lanes.add(lane_of(raw.fields), raw.entry, None)

    def start_ready(self) -> None:
        """Of an ordered group: starts what may run, as far as there are places."""
        slots = self._service.slots
        while self.lanes.has_ready:
            if not slots.take_now(1):
                self._service.hungry[self] = None
                return
            raw = self.lanes.next()
            if raw is None:
                slots.free += 1
            elif not self.start(raw):
                slots.free += 1
                self.lanes.done(raw.entry)

    def hand_back(self, raw: RawDelivery) -> None:
        """It was not begun: the next one who asks gets it at once."""
        self._service.counts.handed_back += 1
        self._put(Held(raw), Settlement(raw.entry, raw.delivery, "back"))

    def wake_at_each_end(self) -> None:
        """The reader waits for what has begun to end."""
        self.wake_below = sys.maxsize

    def hand_back_waiting(self) -> None:
        """The same for all that wait for their turn in a lane."""
        for raw in self.lanes.drop_waiting():
            self.hand_back(raw)

    def hand_back_queued(self) -> None:
        """The same for all that nobody will begin any more: there is no time left."""
        for raw in self._handlings.give_up():
            self.hand_back(raw)

    def forget_waiting(self) -> None:
        """What has not begun is not its own any more, or it will be told of it anew."""
        self.lanes.drop_waiting()

    def extend(self, also: Sequence[RawDelivery] = ()) -> None:
        """Lengthens all leases; not while Redis is away, for then the next round says it."""
        if self.outbox.failures:
            return
        for raw in (*[held.raw for held in self._held.values()], *self.lanes.waiting(), *also):
            self.outbox.put(self._extension(raw))

    def conclude(
        self, held: Held, event: Delivery, handler: Handler, verdict: Verdict, error: BaseException | None
    ) -> None:
        """Its handling has ended, in a task of its own or in one of many; never raises."""
        try:
            self._ended(held, event, handler, verdict, error)
            if verdict.verb == "retry":
                self.lanes.stand(held.raw.entry)
            else:
                self._over(held)
        except Exception:
            self.failed(held)

    def _over(self, held: Held) -> None:
        """The next of its lane may run; not fresh any more where others went on since Redis was asked about it."""
        behind = self.lanes.behind(held.raw.entry)
        if behind is not None and (held.waited or behind.fresh_until_s < held.raw.fresh_until_s):
            behind.fresh_until_s = 0.0
        self._most_ahead = 0 if held.waited else min(MOST_AHEAD, 2 * self._most_ahead + 1)
        self.lanes.done(held.raw.entry)

    def failed(self, held: Held) -> None:
        """Its handling has met a fault of timerq's own; to be called where that is caught."""
        logger.exception("entry %s: a fault of timerq's own; it comes again", held.raw.entry.decode())
        self._held.pop(held.raw.entry, None)
        self.lanes.done(held.raw.entry)

    def cut_short(self, held: Held) -> None:
        """Its handling was interrupted, since the time to drain is up."""
        self._service.counts.handed_back += 1
        self._put(held, Settlement(held.raw.entry, held.raw.delivery, "back"))

    async def may_begin(self, held: Held) -> bool:
        """Has Redis say that it may begin, and count an attempt of what was taken over; False where it is not to."""
        raw, lease_ms = held.raw, self._service.app.lease_ms
        word, asked_s = "", time.monotonic()
        while not word or (word == "SETTLED" and time.monotonic() - asked_s >= lease_ms / 1000):
            asked_s = time.monotonic()
            held.begins = asyncio.get_running_loop().create_future()
            if raw.counts:  # its lease may have ended without anybody's taking it over
                self.outbox.put(self._extension(raw))
            self.outbox.put(Settlement(raw.entry, raw.delivery, "begin"), held, "begin")
            self._ask_for_those_behind(raw, asked_s)
            word = await held.begins
        raw.fresh_until_s = asked_s + LATE_S
        if word == "SETTLED":
            return True
        if word == "STALE":
            self._service.counts.stale += 1
            del self._held[held.raw.entry]
            self._over(held)
            return False
        self._answered(held, "", word, False)
        self.lanes.stand(held.raw.entry)  # it has not been handled: nobody overtakes it
        return False

    def _ask_for_those_behind(self, raw: RawDelivery, asked_s: float) -> None:
        """Of a deep lane whose handlers do not wait, many are asked for in one call: else each would cost one."""
        for one in self.lanes.line(raw.entry, self._most_ahead):
            if one.counts:
                self.outbox.put(self._extension(one))
                begin = Settlement(one.entry, one.delivery, "begin")
                self.outbox.put(begin, Held(one, asked_s=asked_s), "begin ahead")

    def _may_begin_later(self, behind: Held, word: str) -> None:
        if word == "SETTLED":
            behind.raw.fresh_until_s = behind.asked_s + LATE_S
        elif word == "STALE":
            self._service.counts.stale += 1
            self.lanes.done(behind.raw.entry)

    def _extension(self, raw: RawDelivery) -> Settlement:
        return Settlement(raw.entry, raw.delivery, "extend", lease_ms=self._service.app.lease_ms)

    def go_on(self) -> None:
        """A handling has ended: of an ordered group, the next of its lane may begin."""
        if not self._service.app.ordered:
            return
        if not self._service.is_stopping:
            self.start_ready()
        if self.lanes.live < self.wake_below:
            self.wake_below = 0
            self._wake()

    def _unwanted(self, raw: RawDelivery, event: Delivery) -> None:
        service = self._service
        service.counts.unwanted += 1
        how = service.app.unwanted
        service.reporter.unwanted(event.type, how)
        if how == "ack":
            settlement = Settlement(raw.entry, raw.delivery, "ack")
        elif how == "dead":
            settlement = self._not_begun(raw, f"no handler for events of type {event.type!r}")
        else:
            at_ms = service.now_ms() + LEFT_FOR_MS
            settlement = Settlement(raw.entry, raw.delivery, "back", at_ms=at_ms)
        self._put(Held(raw), settlement)

    def _not_begun(self, raw: RawDelivery, error: str) -> Settlement:
        """It is given up without this attempt."""
        return Settlement(raw.entry, raw.delivery, "reject", error=error, begun=False, copied_bytes=raw.bytes)

    def _ended(
        self, held: Held, event: Delivery, handler: Handler, verdict: Verdict, error: BaseException | None
    ) -> None:
        if verdict is DONE:
            self._put(held, Settlement(held.raw.entry, held.raw.delivery, "ack"), "ack")
            return
        settlement = Settlement(
            *(held.raw.entry, held.raw.delivery, verdict.verb),
            at_ms=self._service.now_ms() + verdict.wait_ms if verdict.verb == "retry" else 0,
            error=verdict.error,
            traceback=verdict.traceback,
            outcome=verdict.outcome,
            copied_bytes=held.raw.bytes if verdict.verb == "reject" else 0,
        )
        if verdict.verb != "ack":
            self._service.reporter.failed(event, handler, verdict, error, settlement.at_ms)
        self._put(held, settlement, settlement.verb)

    def _put(self, held: Held, settlement: Settlement, counted: str = "") -> None:
        """Sends what became of it; ``counted`` is the verb where a handler has run."""
        held.verb = settlement.verb
        self._held[held.raw.entry] = held
        self.outbox.put(settlement, held, counted)

    def _answered(self, held: Held, verb: str, word: str, again: bool) -> None:
        entry = held.raw.entry
        if verb == "begin ahead":
            return self._may_begin_later(held, word)
        if verb == "begin":
            if held.begins is not None and not held.begins.done():
                held.begins.set_result(word)
            return
        if self._held.get(entry) is held:
            del self._held[entry]
        if self._lately is not None:
            self._lately[entry] = held
        counts = self._service.counts
        if word == "SETTLED":
            counts.handled += verb == "ack"
            counts.retried += verb == "retry"
            counts.dead += verb == "reject"
        elif word == "NOT_HELD":
            if not again:  # of one that was sent twice, the first may have been taken
                counts.lost += 1
                logger.warning("entry %s has gone to another consumer meanwhile", entry.decode())
            if self._service.app.ordered:
                self.is_in_doubt = True
                self._wake()
        else:
            logger.error("entry %s could not be settled, and comes again: %s", entry.decode(), word)
        if verb == "retry":
            self._wake()  # the reader asks when that is: no bell rings for it

    async def _send(self, items: Sequence[Settlement]) -> Sequence[str]:
        service, app = self._service, self._service.app
        command = settle(service.namespace, self._partition, app.stream, app.group, service.name, items)
        name = f"settling {self._partition}"
        try:
            (words,) = await service.link.send([command])
        except TimerqError as error:
            service.health.failed(name, error)
            raise
        service.health.works(name)
        return words  # type: ignore[no-any-return]
