"""What became of events, on its way to Redis: what gathers while a call is under way goes together in the next one."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from timerq.commands.command import MAX_BYTES, MAX_ITEMS
from timerq.commands.consume import Settlement
from timerq.consumer.backoff import Backoff
from timerq.errors import TimerqError

logger = logging.getLogger("timerq.consumer")

_PAUSES = Backoff(50, 2_000)

H = TypeVar("H")

Answered = Callable[[H, str, str, bool], None]
"""Told whose settlement it was, the verb that counts, the status word, and whether it was sent more than once."""


@dataclass(slots=True)
class _Letter(Generic[H]):
    settlement: Settlement
    whose: H | None
    counted: str = ""
    again: bool = False


class Outbox(Generic[H]):
    """The settlements of one partition, in order. While Redis is away they wait and are sent again.

    ``send`` sends up to `MAX_ITEMS` of them and returns a status word for each, which ``answered`` is told.
    """

    def __init__(
        self, send: Callable[[Sequence[Settlement]], Awaitable[Sequence[str]]], answered: Answered[H]
    ) -> None:
        self._send = send
        self._answered = answered
        self._letters: deque[_Letter[H]] = deque()
        self._pump: asyncio.Task[None] | None = None
        self.failures = 0

    def __len__(self) -> int:
        """How many wait to be sent."""
        return len(self._letters)

    def put(self, settlement: Settlement, whose: H | None = None, counted: str = "") -> None:
        """Sends it with those that gather meanwhile; nobody is told the answer where it is nobody's."""
        self._letters.append(_Letter(settlement, whose, counted))
        if self._pump is None:
            self._pump = asyncio.get_running_loop().create_task(self._run())

    async def flush(self) -> None:
        """Waits until everything is sent and answered."""
        while self._pump is not None:
            await asyncio.wait({self._pump})

    async def close(self) -> None:
        """Sends no more; what waits is lost, and its events come again when their leases end."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait({self._pump})

    async def _run(self) -> None:
        try:
            while batch := self._take():
                try:
                    words = await self._send([letter.settlement for letter in batch])
                except TimerqError:
                    await self._put_back(batch)
                    continue
                self.failures = 0
                for letter, word in zip(batch, words, strict=True):
                    if letter.whose is not None:
                        self._answered(letter.whose, letter.counted, word, letter.again)
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("settling: a fault of timerq's own; its events come again when their leases end")
        finally:
            self._pump = None
            if self._letters and not asyncio.current_task().cancelling():  # type: ignore[union-attr]
                self._pump = asyncio.get_running_loop().create_task(self._run())

    async def _put_back(self, batch: list[_Letter[H]]) -> None:
        self.failures += 1
        for letter in batch:
            letter.again = True
        # what only lengthened a lease is of no use any more: the next round says it anew
        self._letters.extendleft(reversed([one for one in batch if one.settlement.verb != "extend"]))
        await asyncio.sleep(_PAUSES.wait_ms(self.failures, random.random()) / 1000)

    def _take(self) -> list[_Letter[H]]:
        batch: list[_Letter[H]] = []
        size = 0
        while self._letters and len(batch) < MAX_ITEMS:
            settlement = self._letters[0].settlement
            size += 100
            if settlement.verb != "ack":  # of a character up to four bytes
                size += 4 * (len(settlement.error) + len(settlement.traceback)) + settlement.copied_bytes
            if batch and size > MAX_BYTES:
                break
            batch.append(self._letters.popleft())
        return batch
