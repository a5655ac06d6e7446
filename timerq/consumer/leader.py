"""Which partitions this process reads for an ordered group: each under a lease, lengthened well before it ends.

The partitions are shared out evenly among the processes of the group that are alive: lead.lua tells how many there are.
Who leads more than its share gives up the least busy ones, as soon as what has begun there has ended; who leads less
takes those that are free. No view of these numbers, however old, does harm: the lease alone says who reads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

from timerq.commands.lead import Lead, lead_partition
from timerq.errors import TimerqError

if TYPE_CHECKING:
    from timerq.consumer.service import Service

ASK_AGAIN_S = 1.0

PATIENCE_S, AGAIN_S = 5.0, 60.0
"""A lead is kept after all, and not to be given up again so soon, where what has begun does not end within its time."""


def share_of(partitions: int, count: int, rank: int) -> int:
    """How many of the partitions one of ``count`` consumers leads; the first ones by name lead what is left over."""
    return partitions // count + (rank < partitions % count) if count else 0


def surplus(leads: Iterable[tuple[int, bool, int]], share: int) -> set[int]:
    """Which partitions to give up: those that are being given up already first, then the least busy ones.

    ``leads`` are all that one process leads, each with whether it is being given up, and how many handlings run there.
    """
    ranked = sorted((not leaving, busy, partition) for partition, leaving, busy in leads)
    return {partition for _, _, partition in ranked[: max(0, len(ranked) - share)]}


class Leader:
    """This consumer's part in one partition. receive.lua checks the epoch: who only believes to lead gets nothing."""

    def __init__(self, service: Service, partition: int, busy: Callable[[], int]) -> None:
        self._service = service
        self._partition = partition
        self._busy = busy
        self._leads: dict[int, Leader] = service.leads
        self._asking = asyncio.Lock()
        self._asked_s = 0.0
        self._share: int | None = None
        self._leaving_s = 0.0  # since when it is being given up
        self._stays_until_s = 0.0
        self.epoch: int | None = None
        self.is_new = False

    @property
    def ask_again_s(self) -> float:
        """How long to wait before asking again (s): well within the lease for which it is counted."""
        service = self._service
        return min(max(ASK_AGAIN_S, service.namespace.partitions / 50), service.app.lease_ms / 3000)

    async def leads(self, *, anew: bool = True) -> bool:
        """Whether it leads, asking Redis where it does not, and now and then where it does; raises `TimerqError`.

        Without ``anew`` only what it leads already.
        """
        if self._is_fresh():
            return True
        async with self._asking:
            if self._is_fresh():
                return True
            if self.epoch is None and not anew:
                return False
            lead = await self._take()
            if lead.epoch == lead.wait_ms == 0 and len(self._leads) < (self._share or 0):
                lead = await self._take()  # it is free, and its share has just grown
            if lead.epoch and self.epoch is None and len(self._leads) >= (self._share or 0):
                lead = await self._ask("stay")  # others were taken while it asked
            self._now(lead.epoch)
            return self.epoch is not None

    def _is_fresh(self) -> bool:
        return self.epoch is not None and time.monotonic() - self._asked_s < self.ask_again_s

    def gives_up(self) -> bool:
        """Whether this lead is to be given up, for the process has more than its share."""
        if self._share is None or len(self._leads) <= self._share:
            self._leaving_s = 0.0
            return False
        now_s = time.monotonic()
        leads = [
            (partition, leader._leaving_s > 0, leader._busy())
            for partition, leader in self._leads.items()
            if leader._stays_until_s <= now_s
        ]
        kept = len(self._leads) - len(leads)
        if self._partition not in surplus(leads, max(0, self._share - kept)):
            self._leaving_s = 0.0
            return False
        self._leaving_s = self._leaving_s or now_s
        return True

    @property
    def is_leaving(self) -> bool:
        """Whether this lead is being given up."""
        return self._leaving_s > 0

    def is_patient(self) -> bool:
        """Whether to wait longer for what has begun to end; where not, the lead is kept for a while."""
        now_s = time.monotonic()
        if now_s - self._leaving_s < PATIENCE_S:
            return True
        self._leaving_s, self._stays_until_s = 0.0, now_s + AGAIN_S
        return False

    def lost(self) -> None:
        """Another one leads."""
        self._now(0)

    async def give_up(self) -> None:
        """Gives the lead up to another one, and stays among those who share them; raises `TimerqError`."""
        async with self._asking:
            self._now(0)
            await self._ask("stay")

    async def leave(self) -> None:
        """Gives the lead up, so that another one need not wait for its end, and its share; never raises."""
        async with self._asking:
            self._now(0)
            if not self._asked_s:
                return
            self._asked_s, self._share = 0.0, None
            try:
                await self._ask("leave")
            except TimerqError:
                pass  # it ends by itself

    def _now(self, epoch: int) -> None:
        self.is_new = epoch != 0 and (self.is_new or epoch != self.epoch)
        self.epoch = epoch or None
        if epoch:
            self._leads[self._partition] = self
        else:
            self._leads.pop(self._partition, None)
            self._leaving_s = 0.0

    async def _take(self) -> Lead:
        may = self.epoch is not None or self._share is None or len(self._leads) < self._share
        asked_s = time.monotonic()
        lead = await self._ask("take" if may else "stay")
        self._asked_s = asked_s
        self._share = share_of(self._service.namespace.partitions, lead.count, lead.rank)
        return lead

    async def _ask(self, what: Literal["take", "stay", "leave"]) -> Lead:
        service = self._service
        app = service.app
        (lead,) = await service.link.send(
            [
                lead_partition(
                    service.namespace,
                    self._partition,
                    app.stream,
                    app.group,
                    service.name,
                    app.lease_ms,
                    what,
                )
            ]
        )
        return lead  # type: ignore[no-any-return]
