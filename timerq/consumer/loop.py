"""Reads one partition for the group: takes places, reads what they can hold, starts it, and waits for the bell."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from timerq import keys
from timerq.commands.command import MAX_ITEMS
from timerq.commands.consume import FROM_START, RawDelivery, Received
from timerq.commands.lead import leave
from timerq.consumer.asking import Ahead, Asking
from timerq.consumer.backoff import Backoff
from timerq.consumer.bell import Bell
from timerq.consumer.desk import Desk
from timerq.consumer.hand import Hand
from timerq.consumer.leader import Leader
from timerq.errors import TimerqError

if TYPE_CHECKING:
    from timerq.consumer.service import Service

logger = logging.getLogger("timerq.consumer")

LOOK_S = 1.0
"""How long a reader waits for its bell at the most: what another one hands back, or leaves behind, rings none."""

_PAUSES = Backoff(100, 5_000)


class Reader:
    """The loop of one partition."""

    def __init__(self, service: Service, partition: int) -> None:
        self._service = service
        self._partition = partition
        app = service.app
        tag = service.namespace.tags[partition]
        self.desk = Desk(service, partition, self.wake)
        self._leader = Leader(service, partition, lambda: len(self.desk.tasks)) if app.ordered else None
        self._backlog: deque[RawDelivery] = deque()
        self._woken = asyncio.Event()
        self._stopping = False
        # where the next page of what is held already begins; None where that is known
        self._page: bytes | None = FROM_START if app.ordered else None
        # A share of the places for each, so that one partition's backlog does not take them all at once; and of that
        # one half, so that the handlers of one read run while the next one is on its way.
        self._most = min(MAX_ITEMS, max(10, app.concurrency // service.namespace.partitions // 2))
        self._ahead = 2 * max(MAX_ITEMS, 2 * app.concurrency)
        self._asking = Asking(service, partition, self._leader, self.desk)
        self._next = Ahead(self._asking)
        self._hand = (
            Hand(service, self._asking, self._most, self._take, self.wake) if not app.ordered else None
        )
        stream = keys.stream(tag, app.stream.encode())
        self._bell = Bell(service.ear, stream, service.health, ring=self.wake, hand=self._hand)
        self._flows = False
        self._is_full = False  # and was asked only for what is known
        self._look_s = max(LOOK_S, service.namespace.partitions / 50)

    def wake(self) -> None:
        """There may be something to do."""
        self._woken.set()

    def stop(self) -> None:
        """Reads no more."""
        self._stopping = True
        self._woken.set()

    async def run(self) -> None:
        """The loop; only `stop` ends it."""
        failures = 0
        name = f"partition {self._partition}"
        while not self._stopping:
            try:
                idle_s = await self.turn()
            except TimerqError as error:
                failures += 1
                self._service.health.failed(name, error)
                self._page = FROM_START  # whatever was handed out and did not arrive is held under this name
                await self._service.link.connections.forget_after(error)
                await self._pause(_PAUSES.wait_ms(failures, random.random()) / 1000)
            except Exception:
                failures += 1
                logger.exception("partition %d: a fault of timerq's own", self._partition)
                self._page = FROM_START
                await self._pause(_PAUSES.wait_ms(failures, random.random()) / 1000)
            else:
                failures = 0
                self._service.health.works(name)
                if idle_s > 0 and not self._stopping:
                    # who does not read would ask at each ring
                    if self._leader is None or (
                        self._leader.epoch is not None and not (self._leader.is_leaving or self._is_full)
                    ):
                        self._bell.listen()
                    await self._pause(idle_s)
        await self._drop_next(hand_back=True)
        if self._hand is not None:
            await self._hush(self._hand)

    async def _hush(self, hand: Hand) -> None:
        """Ends the open read; what it took in its last moment is known of before the rest is handed back."""
        await self._bell.close()
        try:
            page = FROM_START if hand.is_unsure() else None
            while page is not None:
                received = await self._asking.ask(MAX_ITEMS, page)
                self._backlog += [raw for raw in received.deliveries if not self.desk.has(raw)]
                page = received.more
        except TimerqError:
            pass  # it comes again when its lease ends

    def hand_back(self) -> None:
        """Hands back what was not started."""
        while self._backlog:
            self.desk.hand_back(self._backlog.popleft())
        self.desk.hand_back_waiting()

    async def keep(self) -> None:
        """Lengthens the leases; raises `TimerqError`."""
        self.desk.extend(self._backlog)
        if self._leader is not None:
            await self._leader.leads(anew=False)

    async def yield_lead(self) -> None:
        """Gives up the lead, where it has it."""
        if self._leader is not None:
            await self._leader.leave()

    async def close(self) -> None:
        """Leaves the lead and the group, once nothing runs any more, and ends the read that stands open."""
        await self.yield_lead()  # others wait for it; the bell's connection may take its time
        await self._bell.close()
        service, app = self._service, self._service.app
        try:
            await service.link.send(
                [leave(service.namespace, self._partition, app.stream, app.group, service.name)]
            )
        except TimerqError:
            pass  # another one that leaves does it for those unheard of

    async def turn(self) -> float:
        """One step: leads, reads and starts; returns for how long there is nothing to do but to wait (s)."""
        self._woken.clear()
        if self._hand is not None:
            brought = self._hand.brought()
            if self._hand.is_unsure():
                self._page = FROM_START
            if brought is not None and self._page is None and not self._next and not self._backlog:
                return self._idle_s(brought)
        if self._leader is not None:
            if not await self._leader.leads():
                self.desk.forget_waiting()
                return self._leader.ask_again_s
            if self._leader.gives_up() and await self._give_up(self._leader):
                return self._leader.ask_again_s
            if self._leader.is_new:  # another one may have read meanwhile
                self._leader.is_new = False
                self._page = FROM_START
            if self.desk.is_in_doubt:
                self.desk.is_in_doubt = False
                self._page = FROM_START
            if self._page == FROM_START:
                self.desk.forget_waiting()  # the pages tell of all that is pending
        if self._page == FROM_START:
            self._backlog.clear()  # it is held, so the pages tell of it again
            await self._drop_next()
        if self._backlog:
            return await self._start_backlog()
        page = self._page
        if self._next:
            reading: Awaitable[Received]
            reading, places = self._next.take()
            self._is_full = False
        else:
            places = await self._places()
            if places == 0 and self._leader is None:
                return self._look_s
            reading = self._asking.ask(places, page)
        try:
            received = await reading
            await self._read_on(received)
            if page is not None:
                self._page = received.more
            if self._leader is None:
                wanted = len(received.deliveries) - places
                places += self._service.slots.take_now(wanted) if wanted > 0 else 0
            places -= self._take(received, places)
        finally:
            if self._leader is None:
                self._service.slots.give(places)
        return self._idle_s(received)

    async def _start_backlog(self) -> float:
        """What was read is started as places come free; or handed back, where others may have places sooner."""
        slots = self._service.slots
        try:
            async with asyncio.timeout(self._look_s):
                places = await slots.take(len(self._backlog))
        except TimeoutError:
            while self._backlog:
                self.desk.hand_back(self._backlog.popleft())
            return 0
        if places == 0:
            return self._look_s
        try:
            while self._backlog and places:
                places -= self.desk.start(self._backlog.popleft())
        finally:
            slots.give(places)
        return 0

    async def _read_on(self, received: Received) -> None:
        """Where there is more, it is on its way while what has come is handled."""
        flows = self._flows
        self._flows = bool(received.deliveries) and received.end is None and received.leads
        if not self._flows or self._page is not None or self._stopping:
            return
        slots = self._service.slots
        places = 0
        if self._leader is not None:
            room = self.desk.lanes.room(self._ahead, self._asking.largest)
            count = min(MAX_ITEMS, room - len(received.deliveries))
        elif flows and not self.desk.under_way:  # all that came before has ended: places will be free
            count = min(MAX_ITEMS, slots.total)
        else:
            count = places = 0 if slots.is_wanted else slots.take_now(self._most)
        if count <= 0:
            return
        await self._next.send(count, places)

    async def _drop_next(self, *, hand_back: bool = False) -> None:
        """Waits for the read under way, and does nothing with what it brings: it is held, and will be told of."""
        if not self._next:
            return
        reading, places = self._next.take()
        if self._leader is None:
            self._service.slots.give(places)
        try:
            received = await reading
        except TimerqError:
            return
        if hand_back:
            self._backlog += [
                raw for raw in received.deliveries if not (raw.waits_until_ms or self.desk.has(raw))
            ]

    async def _give_up(self, leader: Leader) -> bool:
        """Begins nothing more, and leaves the lead once what has begun has ended. False where that takes too long."""
        await self._drop_next(hand_back=True)
        self.hand_back()
        if self.desk.tasks:
            self.desk.wake_at_each_end()
            if leader.is_patient():
                return True
            self._page = FROM_START  # it reads on
            return False
        await self.desk.outbox.flush()
        await leader.give_up()
        self.desk.forget_waiting()
        return True

    async def _places(self) -> int:
        """How many may be read now."""
        if self._leader is not None:
            places = min(MAX_ITEMS, self.desk.lanes.room(self._ahead, self._asking.largest))
            self._is_full = not places and self._page is None
            self.desk.wake_below = 0 if self.desk.lanes.live < self._ahead else self._ahead * 3 // 4
            return places
        return await self._service.slots.take(self._most)

    def _take(self, received: Received, places: int) -> int:
        """Starts what was received, or keeps it for its turn; returns how many places it took."""
        service = self._service
        service.counts.stale += received.stale
        service.counts.gone += received.gone
        if received.again:
            self._page = FROM_START
            return 0
        if self._leader is not None and not received.leads:
            self._leader.lost()
            return 0
        if received.end:
            self._bell.seen(received.end)
        if received.void:
            self.desk.forget_waiting()
        for entry in received.cleared:
            if (behind := self.desk.lanes.behind(entry)) is not None:
                behind.fresh_until_s = 0.0  # what ended that one may have ended it, too
            self.desk.lanes.gone(entry)
        taken = 0
        for raw in received.deliveries:
            if self.desk.has(raw):
                if self._leader is not None:
                    self.desk.stay_in_line(raw)
                continue
            if self._leader is not None:
                self.desk.line_up(raw)
            elif raw.waits_until_ms:
                continue  # it comes again when its time has come
            elif taken < places:
                taken += self.desk.start(raw)
            else:
                self._backlog.append(raw)
        if self._leader is not None:
            self.desk.start_ready()
        return taken

    def _idle_s(self, received: Received) -> float:
        if self._page is not None or self._backlog or received.again or not received.leads:
            return 0
        if self._next or not (received.end or self._is_full):  # it was cut short: there may be more
            return 0
        if received.wait_us is None:
            return self._look_s
        return min(self._look_s, max(received.wait_us / 1e6, 0.001))

    async def _pause(self, seconds: float) -> None:
        """A wait that `wake` and `stop` cut short."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass
