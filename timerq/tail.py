"""Follows a stream over every partition of a namespace, without a group: it reads and leaves no trace.

For people and for checks; programs that must handle each event read with a group. Events of one lane come in the
order of their publication, those of different partitions as they arrive.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from queue import Full, Queue
from types import TracebackType
from typing import Any, Literal, Self

from timerq import codec, keys
from timerq.commands.command import Namespace
from timerq.commands.entries import NUMBERS, read_entries, what_is_wrong
from timerq.errors import ContractBroken
from timerq.exchange import unavailable
from timerq.model import check_plain_name, to_datetime
from timerq.topology import REDIS_FAULTS, Connections

BLOCK_MS = 5_000
"""How long a read stands open; the connection's own time-out is longer."""

SOCKET_TIMEOUT_S = BLOCK_MS / 1000 + 5
_COUNT = 500
_AHEAD = 5_000
_BACKOFF_FIRST_S, _BACKOFF_MAX_S = 0.05, 2.0


@dataclass(frozen=True, slots=True)
class Published:
    """An event as it lies on a stream: what docs/events.md describes, read.

    ``at_ms`` is when it was due, ``fired_ms`` when it was published, both by Redis; ``read_us`` when the read that
    brought it returned here (epoch µs, this machine's clock). ``entry`` is its place in the stream of ``partition``,
    ``backfill`` whether a backfill published it, ``stream`` the stream's name.
    """

    partition: int
    entry: str
    id: str
    type: str
    key: str
    tenant: str
    owner: str | None
    at_ms: int
    fired_ms: int
    n: int
    version: int
    missed: int
    payload: Any
    content_type: str
    correlation: Mapping[str, str]
    read_us: int
    backfill: bool = False
    stream: str = "events"

    @property
    def at(self) -> datetime:
        """When it was due, as an aware UTC datetime."""
        return to_datetime(self.at_ms)

    @property
    def fired_at(self) -> datetime:
        """When it was published, as an aware UTC datetime."""
        return to_datetime(self.fired_ms)

    @property
    def origin(self) -> Literal["timing", "triggered", "published", "backfilled", "report"]:
        """How it came to be published: by its timing, or outside of that, which its id tells."""
        if self.backfill:
            return "backfilled"
        last = self.id.rpartition("-")[2]
        return "published" if last == "0" else _REASONS.get(last[:1], "timing")


_REASONS: Mapping[str, Literal["triggered", "report"]] = {
    "t": "triggered",
    "s": "report",
    "h": "report",
    "p": "report",
    "f": "report",
}
"""How events came that no timing published, by the letter in front of their id's last number."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry that is no event of timerq, or one that cannot be read; ``why`` says which."""

    partition: int
    entry: str
    why: str
    fields: Mapping[bytes, bytes] = field(default_factory=dict)


def read_event(
    partition: int, entry: bytes, fields: Mapping[bytes, bytes], read_us: int = 0, stream: str = "events"
) -> Published | Unreadable:
    """One stream entry as an event."""
    try:
        text = {name: fields[name.encode()].decode() for name in _TEXTS}
        number = {name: int(fields[name.encode()]) for name in NUMBERS}
        return Published(
            partition=partition,
            entry=entry.decode(),
            id=text["id"],
            type=text["type"],
            key=text["key"],
            tenant=text["tenant"],
            owner=text["owner"] or None,
            at_ms=number["at"],
            fired_ms=number["fired_ms"],
            n=number["n"],
            version=number["version"],
            missed=number["missed"],
            payload=codec.decode(text["content_type"], fields[b"payload"]),
            content_type=text["content_type"],
            correlation=codec.decode_correlation(fields[b"correlation"]),
            read_us=read_us,
            backfill=fields.get(b"backfill") == b"1",
            stream=stream,
        )
    except (KeyError, ValueError, ContractBroken) as error:
        why = what_is_wrong(fields, error)
    return Unreadable(partition, entry.decode(errors="replace"), why, dict(fields))


_TEXTS = ("id", "type", "key", "tenant", "owner", "content_type")


class Tail:
    """An iterator over a stream's events, from now on, or ``from_start``; also a context manager.

    With ``follow`` it never ends by itself: while Redis is away it tries again with back-off and goes on behind the
    last entry seen. ``trouble`` is called with a text when Redis goes away and when it is back, from a thread of its
    own. Without ``follow`` it ends at the end of the stream, and raises `QueueUnavailable` where Redis goes away.

    Where it starts is settled in the constructor, which raises `InvalidSchedule` for a bad URL or stream name and
    `QueueUnavailable`. ``options`` are redis-py's.
    """

    def __init__(
        self,
        url: str,
        namespace: Namespace,
        stream: str = "events",
        *,
        from_start: bool = False,
        follow: bool = True,
        trouble: Callable[[str], None] = lambda text: None,
        **options: Any,
    ) -> None:
        name = check_plain_name("stream", stream).encode()
        self._stream = stream
        self._partition_of = {keys.stream(tag, name): p for p, tag in enumerate(namespace.tags)}
        self._follow = follow
        self._trouble = trouble
        self._stopping = threading.Event()
        self._queue: Queue[Published | Unreadable | BaseException | None] = Queue(_AHEAD)
        self._connections = Connections(
            url, **{"socket_timeout": SOCKET_TIMEOUT_S, "max_connections": 10_000, "retries": 0, **options}
        )
        try:
            after = {key: b"0-0" if from_start else self._last(key) for key in self._partition_of}
            if from_start:
                self._last(next(iter(after)))  # a Redis that is away from the start is an error, not a wait
        except REDIS_FAULTS as error:
            self._connections.close()
            raise unavailable(error) from error
        # A Cluster has a read for each slot; elsewhere one connection reads them all.
        groups = [{key: entry} for key, entry in after.items()] if self._connections.is_cluster else [after]
        self._running = len(groups)
        self._threads = [
            threading.Thread(target=self._read_all, args=(group,), name=f"timerq-tail-{i}", daemon=True)
            for i, group in enumerate(groups)
        ]
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[Published | Unreadable]:
        """The events, as they come; ends after `close`."""
        while self._running:
            thing = self._queue.get()
            if self._stopping.is_set():
                return
            if thing is None:
                self._running -= 1
            elif isinstance(thing, BaseException):
                raise thing
            else:
                yield thing

    def close(self) -> None:
        """Ends the reads and the iteration, and closes the connections."""
        self._stopping.set()
        try:
            self._queue.put_nowait(None)  # lets go of whoever waits in another thread
        except Full:
            pass  # then nobody waits
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _last(self, key: bytes) -> bytes:
        """The last entry there is: where "from now on" begins, settled once (``$`` would skip what comes meanwhile)."""
        newest: Sequence[Any] = self._connections.open().xrevrange(key, count=1)
        entry: bytes = newest[0][0] if newest else b"0-0"
        return entry

    def _hand_over(self, thing: Published | Unreadable | BaseException | None) -> None:
        while not self._stopping.is_set():
            try:
                self._queue.put(thing, timeout=0.5)
                return
            except Full:
                continue

    def _read_all(self, after: dict[bytes, bytes]) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                found = self._read(after, wait=self._follow and not failures)
            except Exception as error:
                if self._stopping.is_set():
                    return
                if not self._follow:
                    self._hand_over(unavailable(error) if isinstance(error, REDIS_FAULTS) else error)
                    return
                failures += 1
                if failures == 1:
                    self._trouble(f"{unavailable(error)}; trying again")
                longest_s = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2.0 ** min(failures, 16))
                self._stopping.wait(longest_s * random.uniform(0.5, 1))
                continue
            if failures:
                failures = 0
                self._trouble("Redis is back")
            if not found and not self._follow:
                break
        self._hand_over(None)

    def _read(self, after: dict[bytes, bytes], *, wait: bool) -> bool:
        """One read of the streams behind the entries in ``after``, which it moves on; whether there was anything.

        After a failure it does not wait for something to come, so that "Redis is back" is said when it is.
        """
        block_ms = BLOCK_MS if wait else None
        found = read_entries(self._connections.open().xread(after, count=_COUNT, block=block_ms))
        read_us = time.time_ns() // 1000
        for stream, entries in found:
            for entry, fields in entries:
                after[stream] = entry
                self._hand_over(read_event(self._partition_of[stream], entry, fields, read_us, self._stream))
        return bool(found)
