"""Who alone reads a partition for an ordered group: a lease, lengthened well before it ends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from timerq.commands.lead import lead_partition
from timerq.errors import TimerqError

if TYPE_CHECKING:
    from timerq.consumer.service import Service

ASK_AGAIN_S = 1.0


class Leader:
    """This consumer's part in one partition. receive.lua checks the epoch: who only believes to lead gets nothing."""

    def __init__(self, service: Service, partition: int) -> None:
        self._service = service
        self._partition = partition
        self._asked_s = 0.0
        self.epoch: int | None = None
        self.is_new = False

    @property
    def ask_again_s(self) -> float:
        """How long to wait before asking again whether the one that leads has gone (s)."""
        return ASK_AGAIN_S

    async def leads(self) -> bool:
        """Whether it leads, asking Redis where it does not, and now and then where it does; raises `TimerqError`."""
        lease_s = self._service.app.lease_ms / 1000
        now_s = time.monotonic()
        if self.epoch is not None and now_s - self._asked_s < lease_s / 3:
            return True
        epoch = await self._ask(self._service.app.lease_ms)
        self._asked_s = now_s
        self.is_new = self.is_new or (epoch != 0 and epoch != self.epoch)
        self.epoch = epoch or None
        return self.epoch is not None

    def lost(self) -> None:
        """Another one leads."""
        self.epoch = None

    async def leave(self) -> None:
        """Gives the lead up, so that another one need not wait for its end; never raises."""
        if self.epoch is None:
            return
        self.epoch = None
        try:
            await self._ask(0)
        except TimerqError:
            pass  # it ends by itself

    async def _ask(self, lease_ms: int) -> int:
        service = self._service
        app = service.app
        (epoch,) = await service.link.send(
            [
                lead_partition(
                    service.namespace, self._partition, app.stream, app.group, service.name, lease_ms
                )
            ]
        )
        return int(epoch)
