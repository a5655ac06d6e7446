"""Says again and again that an owner lives, for as long as somebody has a handle of it.

A thread for `timerq.owner`, a task for `timerq.async_owner`. Neither keeps the handle alive: one that nobody has any
more is not heard any more, and its owner is destroyed when its time is up.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from timerq.async_owner import AsyncOwner
    from timerq.owner import Owner

logger = logging.getLogger("timerq.owner")

RETRY_S = 1.0
"""How soon a beat that Redis did not answer is sent again, at the latest."""


class _Pace:
    """How long until the next beat (s); and what the log is told."""

    def __init__(self, ttl_ms: int) -> None:
        self._usual_s = ttl_ms / 3000
        self.pause_s = self._usual_s

    def answered(self, of: Owner | AsyncOwner, goes_on: bool) -> bool:
        self.pause_s = self._usual_s
        if of.is_gone and not goes_on:
            logger.warning("owner %s is gone: it was not heard in time, or was destroyed elsewhere", of.name)
        return goes_on

    def failed(self, of: Owner | AsyncOwner, error: Exception) -> bool:
        """Redis is away, which ends no owner: it may be back in time."""
        self.pause_s = min(self._usual_s, RETRY_S)
        logger.warning("the heartbeat of owner %s was not heard: %s", of.name, error)
        return True


class Heartbeat(threading.Thread):
    """The beats of an `Owner`: three in ``ttl_ms``, from a daemon thread."""

    def __init__(self, of: Owner, ttl_ms: int) -> None:
        super().__init__(name="timerq-owner", daemon=True)
        self._pace = _Pace(ttl_ms)
        self._owner = weakref.ref(of)
        self._stopped = threading.Event()
        weakref.finalize(of, self._stopped.set).atexit = False

    def stop(self) -> None:
        """No more of them; one that is on its way is heard to its end."""
        self._stopped.set()

    def run(self) -> None:
        """Until it is stopped, the owner is gone, nobody has the handle any more, or its queue is closed."""
        while not self._stopped.wait(self._pace.pause_s):
            if (of := self._owner()) is None or not self._beat(of):
                return
            del of

    def _beat(self, of: Owner) -> bool:
        try:
            goes_on = of._beat()
        except Exception as error:
            return self._pace.failed(of, error)
        return self._pace.answered(of, goes_on) and not self._stopped.is_set()


class AsyncHeartbeat:
    """The beats of an `AsyncOwner`: three in ``ttl_ms``, from a task of the running loop."""

    def __init__(self, of: AsyncOwner, ttl_ms: int) -> None:
        self._pace = _Pace(ttl_ms)
        self._owner = weakref.ref(of)
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins, in the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="timerq-owner")

    def stop(self) -> None:
        """No more of them; one that is on its way is heard to its end."""
        self._stopped.set()

    async def join(self, timeout_s: float) -> None:
        """Waits until the last one has been answered, for so long at the most."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)

    async def _run(self) -> None:
        while not await self._pause():
            if (of := self._owner()) is None or not await self._beat(of):
                return
            del of

    async def _pause(self) -> bool:
        """Until the next one; True when there is to be none."""
        try:
            await asyncio.wait_for(self._stopped.wait(), self._pace.pause_s)
        except TimeoutError:
            return False
        return True

    async def _beat(self, of: AsyncOwner) -> bool:
        try:
            goes_on = await of._beat()
        except Exception as error:
            return self._pace.failed(of, error)
        return self._pace.answered(of, goes_on)
