"""What one reader has in hand: starts handlings, says what became of them, and keeps their leases alive."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from timerq.commands.consume import RawDelivery, Settlement, settle
from timerq.consumer.decode import decode, lane_of
from timerq.consumer.handlers import Handler
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


@dataclass(eq=False, slots=True)
class Held:
    """One delivery that this consumer holds; ``task`` runs its handler, ``verb`` is what is said of it when it has."""

    raw: RawDelivery
    task: asyncio.Task[None] | None = None
    verb: str = ""
    begins: asyncio.Future[str] | None = None


class Desk:
    """The deliveries of one partition, from their start until Redis has answered what became of them."""

    def __init__(self, service: Service, partition: int, wake: Callable[[], None]) -> None:
        self._service = service
        self._partition = partition
        self._wake = wake
        self._held: dict[bytes, Held] = {}
        self.lanes: Lanes[RawDelivery] = Lanes()
        self.wake_below = 0  # the reader waits until so few are left in the lanes
        self.outbox = Outbox(self._send, self._answered)
        self._lately: dict[bytes, Held] | None = None
        self.is_in_doubt = False  # a lane may stand for what never comes

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The handlings under way."""
        return [held.task for held in self._held.values() if held.task is not None and not held.task.done()]

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
            verdict = Verdict(
                "reject", error=f"no handling of it has ended: {begun} of {handler.attempts} had begun"
            )
            service.reporter.failed(replace(event, attempt=begun), handler, verdict, None, 0)
            self._put(Held(raw), self._not_begun(raw, verdict.error), "reject")
            return 0
        held = Held(raw)
        self._held[raw.entry] = held
        # an empty context: nothing of what this process is doing just now belongs to the event
        held.task = asyncio.get_running_loop().create_task(
            self._handle(held, event, handler), context=contextvars.Context()
        )
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

    def forget_waiting(self) -> None:
        """What has not begun is not its own any more, or it will be told of it anew."""
        self.lanes.drop_waiting()

    def extend(self, also: Sequence[RawDelivery] = ()) -> None:
        """Lengthens all leases; not while Redis is away, for then the next round says it."""
        if self.outbox.failures:
            return
        lease_ms = self._service.app.lease_ms
        for raw in (*[held.raw for held in self._held.values()], *self.lanes.waiting(), *also):
            self.outbox.put(Settlement(raw.entry, raw.delivery, "extend", lease_ms=lease_ms))

    async def _handle(self, held: Held, event: Delivery, handler: Handler) -> None:
        thread: asyncio.Future[Any] | None = None
        try:
            if held.raw.counts:
                verdict, error, thread = await self._service.runner.run(handler, event)
            else:  # taken over: it may be what its last consumer died of
                async with self._service.suspects.turn(event.attempt):
                    if not await self._begin(held):
                        return
                    verdict, error, thread = await self._service.runner.run(handler, event)
        except asyncio.CancelledError:  # its time to drain is up
            self._service.counts.handed_back += 1
            self._put(held, Settlement(event.entry.encode(), event.delivery, "back"))
            raise
        except Exception:
            logger.exception("entry %s: a fault of timerq's own; it comes again", event.entry)
            del self._held[held.raw.entry]
            self.lanes.done(held.raw.entry)
        else:
            self._ended(held, event, handler, verdict, error)
            if verdict.verb == "retry":
                self.lanes.stand(held.raw.entry)
            else:
                self.lanes.done(held.raw.entry)
        finally:
            if thread is None:
                self._service.slots.give(1)
            else:
                thread.add_done_callback(self._thread_ended)
            if self._service.app.ordered:
                self._next_of_lanes()

    async def _begin(self, held: Held) -> bool:
        """Has Redis count an attempt of what was taken over from a dead one; False where it is not held."""
        held.begins = asyncio.get_running_loop().create_future()
        self.outbox.put(Settlement(held.raw.entry, held.raw.delivery, "begin"), held, "begin")
        word = await held.begins
        if word == "SETTLED":
            return True
        if word == "STALE":
            self._service.counts.stale += 1
            del self._held[held.raw.entry]
            self.lanes.done(held.raw.entry)
            return False
        self._answered(held, "", word, False)
        self.lanes.stand(held.raw.entry)  # it has not been handled: nobody overtakes it
        return False

    def _next_of_lanes(self) -> None:
        if not self._service.is_stopping:
            self.start_ready()
        if len(self.lanes) < self.wake_below:
            self.wake_below = 0
            self._wake()

    def _thread_ended(self, thread: asyncio.Future[Any]) -> None:
        """A thread that took too long has ended after all: its place is free, what came of it is nobody's."""
        if not thread.cancelled():
            thread.exception()
        self._service.slots.give(1)

    def _unwanted(self, raw: RawDelivery, event: Delivery) -> None:
        service = self._service
        service.counts.unwanted += 1
        how = service.app.unwanted
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
        return Settlement(raw.entry, raw.delivery, "reject", error=error, begun=False)

    def _ended(
        self, held: Held, event: Delivery, handler: Handler, verdict: Verdict, error: BaseException | None
    ) -> None:
        if verdict is DONE:
            self._put(held, Settlement(held.raw.entry, held.raw.delivery, "ack"), "ack")
            return
        settlement = Settlement(
            held.raw.entry,
            held.raw.delivery,
            verdict.verb,
            at_ms=self._service.now_ms() + verdict.wait_ms if verdict.verb == "retry" else 0,
            error=verdict.error,
            traceback=verdict.traceback,
            outcome=verdict.outcome,
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
