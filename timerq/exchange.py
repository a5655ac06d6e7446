"""What both links need to talk to a server: sessions, one exchange on a connection, and names for its faults."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hiredis import pack_command
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.sentinel import MasterNotFoundError

from timerq.clock import Clock
from timerq.commands.command import Command, Durability
from timerq.errors import DurabilityUnavailable, QueueUnavailable
from timerq.lua import Word
from timerq.topology import REDIS_FAULTS

VERBS: Final = ("EVALSHA", "EVAL")
"""A script is called by its digest; by its text where the server does not know it."""

REMEMBERED_S = 540.0
"""How long a request may be sent again: the scripts remember it for ten minutes, and would then do it twice."""

TOGETHER_BYTES = 65_536
"""Calls that are not larger together go in one write: each would cost the server a read of its own."""

FRESH_S = 0.5
"""A connection that was silent for longer is looked at before it is used: not every closed one is a fault."""

LAST_BEAT_S = 2.0
"""How long closing waits for a heartbeat that is on its way."""

FRESH_CLOCK_S = 60.0
"""How long what Redis has said of the time is carried on."""

REDIRECTIONS = (MovedError, AskError, TryAgainError, ClusterDownError)


class Place(NamedTuple):
    """Where a client's queue is, and how it talks to it: what another one needs to be the same."""

    url: str
    namespace: str
    tenant: str
    clock: Clock
    payload_limit: int
    options: dict[str, Any]


@dataclass(slots=True)
class Session:
    """One call at a time: the scripts remember the last one's reply under this name.

    ``connection`` is its own where there is one server to talk to, so that a call need not ask a pool for one;
    ``used_s`` says when it last answered (monotonic).
    """

    name: bytes
    seq: int = 0
    connection: Any = None
    used_s: float = 0.0

    @classmethod
    def new(cls) -> Session:
        """A session nobody has used; 96 random bits."""
        return cls(secrets.token_urlsafe(12).encode())


def unavailable(error: BaseException) -> QueueUnavailable:
    """What a fault of Redis is called here, with the fault as its cause."""
    text = str(error) or type(error).__name__
    if isinstance(error, MovedError):
        text = f"this Redis is part of a Cluster, use redis+cluster://… ({text})"
    if isinstance(error, MasterNotFoundError):
        # the rest is redis-py's objects
        text = f"{text.partition(' : ')[0]}: no Sentinel that answers knows it"
    raised = QueueUnavailable(f"Redis is away or refuses: {text}")
    raised.__cause__ = error
    return raised


def check_durability(durability: Durability, server: dict[str, Any], appendfsync: str | None) -> bool:
    """Whether a waiting command must follow the write; raises `DurabilityUnavailable` for what cannot be had.

    ``server`` is INFO; ``appendfsync`` the server's setting, None where it may not be asked.
    """
    if not durability.fsync:
        return True
    if not server.get("aof_enabled"):
        raise DurabilityUnavailable('durable="fsync" needs a server with appendonly yes; nothing was written')
    version = tuple(int(part) for part in str(server.get("redis_version", "0.0")).split(".")[:2])
    if version >= (7, 2):
        return True
    if appendfsync == "always":
        return False  # such a server answers only what is on its disk
    raise DurabilityUnavailable(
        f'durable="fsync" needs Redis 7.2 or newer (this is {server.get("redis_version")}) or a server with '
        "appendfsync always; nothing was written"
    )


def check_wait(durability: Durability, client: Any) -> None:
    """Raises `DurabilityUnavailable` where a redis-py client's connections give up before the wait would end."""
    limit_s = client.connection_pool.connection_kwargs.get("socket_timeout")
    if limit_s is not None and durability.timeout_ms >= limit_s * 1000:
        raise DurabilityUnavailable(
            f"durable= waits up to {durability.timeout_ms} ms, and the connection gives up after "
            f"socket_timeout={limit_s} s: "
            'want a longer one, or a shorter wait as in "replicas=1,timeout=500ms"; nothing was written'
        )


def was_closed(connection: Any) -> bool:
    """Whether the server has closed a redis-py connection meanwhile, as it may do with idle ones; sends nothing."""
    try:
        return bool(connection.is_connected and connection.can_read())
    except REDIS_FAULTS:
        return True


def exchange(
    connection: Any, calls: Sequence[Sequence[Word]], meanwhile: Callable[[], None] | None
) -> list[Any]:
    """Writes all calls to one redis-py connection, then reads as many replies; errors are replies too.

    ``meanwhile`` runs between writing and reading. A fault of the connection sends everything again, as often as the
    connection's retry says; the scripts know a request that comes twice.
    """
    waiting = meanwhile
    first_s: float | None = None

    def once() -> list[Any]:
        nonlocal waiting, first_s
        now_s = time.monotonic()
        if first_s is None:
            first_s = now_s
        elif now_s - first_s > REMEMBERED_S:  # a process that was stopped, or a source that took so long
            raise QueueUnavailable(
                "the answer was lost, and it is too late to ask again; whether the call took effect is unknown"
            )
        if not connection.is_connected:
            connection.connect()  # not left to the sending, which asks no Sentinel where the master is now
        packed: list[bytes] = [pack_command(tuple(call)) for call in calls]  # type: ignore[arg-type]  # its stub means one-element tuples
        if len(packed) > 1 and sum(map(len, packed)) <= TOGETHER_BYTES:
            packed = [b"".join(packed)]
        connection.send_packed_command(packed)
        if waiting is not None:
            work, waiting = waiting, None
            work()
        replies: list[Any] = []
        for _ in calls:
            try:
                replies.append(connection.read_response())
            except ResponseError as error:
                replies.append(error)
        return replies

    try:
        replies: list[Any] = connection.retry.call_with_retry(once, lambda error: connection.disconnect())
    except BaseException:
        connection.disconnect()  # replies may be on their way that nobody will read
        raise
    if isinstance(replies[0], ReadOnlyError):
        connection.disconnect()  # the master has moved: the next call looks for it
    return replies


def plain(command: Command[Any]) -> Command[Any]:
    """The same command without its wait."""
    return Command(command.script, command.words, command.read, command.tag)


def local_clock() -> int:
    """This machine's time in epoch milliseconds, for what no decision hangs on."""
    return time.time_ns() // 1_000_000


class ServerClock:
    """Redis's time as far as this process knows it: asked once a minute, carried on by its own clock in between."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._learned_s: float | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether it need not be asked now."""
        return self._learned_s is not None and time.monotonic() - self._learned_s < FRESH_CLOCK_S

    def learn(self, now_ms: int) -> None:
        """Redis has just said that it is ``now_ms`` (epoch ms)."""
        self._learned_s = time.monotonic()
        self._ahead_ms = now_ms - int(self._learned_s * 1000)

    def __call__(self) -> int:
        """The time in epoch milliseconds."""
        return self._ahead_ms + int(time.monotonic() * 1000)
