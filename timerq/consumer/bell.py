"""Rings when a stream has something new: an XREAD that stands open from the last entry known.

It is only the bell: what is to be handled is read by receive.lua. That call may wait on the same connection, behind
the open read: then Redis runs it the moment there is something, and a handler begins one round trip earlier. A time-out
of a blocked read comes up to 100 ms late, data ends it at once; so nobody waits for its time-out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Protocol

from timerq.commands.command import Command
from timerq.commands.consume import Received
from timerq.commands.entries import read_entries
from timerq.consumer.backoff import Backoff
from timerq.consumer.health import Health
from timerq.errors import TimerqError
from timerq.exchange import Session
from timerq.topology import REDIS_FAULTS, AsyncConnections

BLOCK_MS = 10_000
"""How long a read stands open; the connection's own time-out is longer."""

SOCKET_TIMEOUT_S = BLOCK_MS / 1000 + 5

_CANCEL_EVERY_S = 0.05
_PAUSES = Backoff(100, 5_000)


class Hand(Protocol):
    """Who has the bell read, too."""

    def wish(self) -> Command[Received] | None:
        """What to ask for when there is something; None where the bell is only to ring."""

    def bring(self, received: Received) -> None:
        """What that brought."""

    def lose(self) -> None:
        """It may have brought something, and the answer was lost."""


class Bell:
    """Listens to one stream; ``ring`` is called when something has come behind the last entry it was told of."""

    def __init__(
        self,
        connections: AsyncConnections,
        stream: bytes,
        health: Health,
        ring: Callable[[], None],
        hand: Hand | None = None,
    ) -> None:
        self._connections = connections
        self._stream = stream
        self._health = health
        self._ring = ring
        self._hand = hand
        self._session = Session.new()
        self._seen: bytes | None = None
        self._task: asyncio.Task[None] | None = None

    def seen(self, entry: bytes) -> None:
        """Everything up to ``entry`` is known; after a fault of Redis that may be less than before."""
        self._seen = entry

    def listen(self) -> None:
        """Rings once; one that listens already goes on."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen())

    async def close(self) -> None:
        """Ends the read that stands open."""
        while self._task is not None and not self._task.done():
            self._task.cancel()  # more than once: one that comes just as a connection opens gets lost below
            await asyncio.wait({self._task}, timeout=_CANCEL_EVERY_S)

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                # after a fault the first read does not wait: whether it works is to be known at once
                found = await self._read(None if failures else BLOCK_MS)
            except REDIS_FAULTS as error:
                failures += 1
                if failures > 1:  # a single read that is cut short is nobody's trouble
                    self._health.failed(f"bell {self._stream!r}", error)
                await self._connections.forget_after(error)
                await asyncio.sleep(_PAUSES.wait_ms(failures, random.random()) / 1000)
                continue
            self._health.works(f"bell {self._stream!r}")
            failures = 0
            if found:
                self._ring()
                return

    async def _read(self, block_ms: int | None) -> bool:
        client = await self._connections.node_of(self._stream)
        streams = {self._stream: self._seen or b"0-0"}
        wish = self._hand.wish() if self._hand is not None and block_ms is not None else None
        received = None
        if wish is None:
            found = await client.xread(streams, count=1, block=block_ms)
        else:
            found, received = await self._read_and_take(wish, client, streams, block_ms)
        something = False
        for _, entries in read_entries(found):
            for entry, _ in entries:
                self.seen(entry)
                something = True
        if received is not None and self._hand is not None:
            self._hand.bring(received)  # which has seen more
        return something

    async def _read_and_take(
        self, wish: Command[Received], client: Any, streams: dict[bytes, bytes], block_ms: int | None
    ) -> tuple[Any, Received | None]:
        """The open read, and behind it on the same connection the call that takes what has come."""
        assert self._hand is not None
        self._session.seq += 1
        wish.stamp(self._session.name, self._session.seq, None)
        pipeline = client.pipeline(transaction=False)
        pipeline.xread(streams, count=1, block=block_ms)
        pipeline.execute_command(*wish.call("EVALSHA"))
        try:
            found, reply = await pipeline.execute(raise_on_error=False)
        except BaseException:
            self._hand.lose()
            raise
        if isinstance(found, Exception):
            raise found
        try:
            return found, None if isinstance(reply, Exception) else wish.read(reply)
        except TimerqError:
            return found, None  # as with a script that is not known: who asks after the ring finds out
