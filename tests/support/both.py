"""Both clients behind one face, so that one test says what holds for each.

with Both("async", url, clock=…) as queue:
    handle = queue.upsert("k", event, delay=5)     # awaited where it must be
    queue.wait(handle.cancel())
"""

from __future__ import annotations

import asyncio
import inspect
from types import TracebackType
from typing import Any

from timerq import AsyncTimerQueue, TimerQueue
from timerq.commands.command import Command
from timerq.commands.dispatch import Advance, Fired, advance, fire
from timerq.link import Link

NOW = 1_750_000_000_000  # 2025-06-15T15:06:40Z


class Time:
    """A manual clock."""

    now = NOW

    def __call__(self) -> int:
        return self.now


class Both:
    """A TimerQueue ("sync") or an AsyncTimerQueue ("async") whose verbs block."""

    def __init__(self, kind: str, url: str, **options: Any) -> None:
        self.kind = kind
        self._loop = asyncio.new_event_loop()
        self._options = {name: options[name] for name in ("clock",) if name in options}
        self._url = url
        self._link: Link | None = None
        if kind == "sync":
            self.real: Any = TimerQueue(url, **options)
        else:
            self.real = self.wait(self._make(url, options))

    @staticmethod
    async def _make(url: str, options: dict[str, Any]) -> AsyncTimerQueue:
        return AsyncTimerQueue(url, **options)

    def wait(self, thing: Any) -> Any:
        """The result of what a verb returned."""
        if inspect.isasyncgen(thing):

            async def collect() -> list[Any]:
                return [item async for item in thing]

            return self._loop.run_until_complete(collect())
        if inspect.isawaitable(thing):
            return self._loop.run_until_complete(thing)
        return list(thing) if inspect.isgenerator(thing) else thing

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.real, name)
        if not callable(verb):
            return verb
        return lambda *args, **words: self.wait(verb(*args, **words))

    # ------------------------------------------------------------------------------------------- a dispatcher's part

    @property
    def link(self) -> Link:
        """A blocking way to the same Redis, with the same clock."""
        if self._link is None:
            self._link = Link(self._url, self._options.get("clock", lambda: None))
        return self._link

    @property
    def client(self) -> Any:
        """A redis-py client."""
        return self.link.connections.open()

    def send(self, command: Command[Any]) -> Any:
        (answer,) = self.link.send([command])
        return answer

    def fire(self) -> list[Fired]:
        """One call of fire for each partition."""
        namespace = self.real.namespace
        return [self.send(fire(namespace, p)) for p in range(namespace.partitions)]

    def advance(self, partition: int, *steps: Advance) -> list[str]:
        answers: list[str] = self.send(advance(self.real.namespace, partition, steps))
        return answers

    def events(self, stream: str = "events") -> list[dict[str, bytes]]:
        """Every event on a stream, partition by partition."""
        found = []
        for tag in self.real.namespace.tags:
            for _, fields in self.client.xrange(tag + b":s:" + stream.encode()):
                found.append({name.decode(): value for name, value in fields.items()})
        return found

    def __enter__(self) -> Both:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait(self.real.close())
        if self._link is not None:
            self._link.close()
        self._loop.close()
