"""Sends commands and reads their replies, blocking: sessions, lost scripts, redirections, durability.

`Link.run` drives a verb's steps; there is no logic of any verb here.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)

from timerq.clock import Clock
from timerq.commands.command import Command, Durability, PartitionUnmade, Steps
from timerq.commands.durable import reached, wait_words
from timerq.errors import DurabilityUnavailable, NamespaceMismatch, QueueUnavailable
from timerq.lua import Word
from timerq.topology import Connections

T = TypeVar("T")

REDIRECTIONS = (MovedError, AskError, TryAgainError, ClusterDownError)
REDIS_FAULTS = (RedisError, RedisClusterException, OSError)


@dataclass(slots=True)
class Session:
    """One call at a time: the scripts remember the last one's reply under this name."""

    name: bytes
    seq: int = 0

    @classmethod
    def new(cls) -> Session:
        """A session nobody has used; 96 random bits."""
        return cls(secrets.token_urlsafe(12).encode())


def unavailable(error: BaseException) -> QueueUnavailable:
    """What a fault of Redis is called here, with the fault as its cause."""
    text = str(error) or type(error).__name__
    if isinstance(error, MovedError):
        text = f"this Redis is part of a Cluster, use redis+cluster://… ({text})"
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


def exchange(client: Any, calls: Sequence[Sequence[Word]], meanwhile: Callable[[], None] | None) -> list[Any]:
    """Writes all calls to one connection of a redis-py client, then reads as many replies; errors are replies too.

    ``meanwhile`` runs between writing and reading. A fault of the connection sends everything again, as often as the
    client's retry says; the scripts know a request that comes twice.
    """
    pool = client.connection_pool
    connection = pool.get_connection()
    waiting = meanwhile

    def once() -> list[Any]:
        nonlocal waiting
        connection.send_packed_command([part for call in calls for part in connection.pack_command(*call)])
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
        return connection.retry.call_with_retry(once, lambda error: connection.disconnect())  # type: ignore[no-any-return]
    except BaseException:
        connection.disconnect()  # replies may be on their way that nobody will read
        raise
    finally:
        pool.release(connection)


class Link:
    """The blocking way to Redis, for threads of one process; a forked child starts with sessions of its own."""

    def __init__(self, url: str, clock: Clock, **options: Any) -> None:
        """``options`` are redis-py's. Nothing is sent yet; raises `InvalidSchedule` for a bad URL."""
        self.connections = Connections(url, **options)
        self._clock = clock
        self._sessions: deque[Session] = deque()
        self._pid = os.getpid()
        self._pool: ThreadPoolExecutor | None = None
        self.remake: Callable[[], None] | None = None

    def run(self, steps: Steps[T]) -> T:
        """Drives a verb to its result."""
        try:
            commands = next(steps)
            while True:
                commands = steps.send(self.send(commands))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    def send(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Sends commands of different partitions at once and reads their replies.

        Raises `QueueUnavailable` or `NamespaceMismatch`; whether a command took effect is then unknown.
        """
        if (
            os.getpid() != self._pid
        ):  # a forked child in its parent's session would be told its parent's answers
            self._sessions, self._pid, self._pool = deque(), os.getpid(), None
        try:
            session = self._sessions.popleft()
        except IndexError:
            session = Session.new()
        try:
            answers = self._exchange(session, commands)
            unmade = [i for i, answer in enumerate(answers) if isinstance(answer, PartitionUnmade)]
            if unmade:
                if self.remake is None:
                    raise NamespaceMismatch("the namespace has gone from Redis")
                self.remake()
                again = self._exchange(session, [commands[i] for i in unmade])
                for i, answer in zip(unmade, again, strict=True):
                    answers[i] = answer
        finally:
            self._sessions.append(session)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _exchange(self, session: Session, commands: Sequence[Command[Any]]) -> list[Any]:
        session.seq += 1
        now_ms = self._clock()
        for command in commands:
            command.stamp(session.name, session.seq, now_ms)
        try:
            replies = [self._one(commands[0])] if len(commands) == 1 else self._many(commands)
        except REDIS_FAULTS as error:
            raise unavailable(error) from error
        answers = []
        for command, reply in zip(commands, replies, strict=True):
            try:
                answers.append(command.read(reply))
            except Exception as error:  # kept beside the others' answers until all of them are read
                answers.append(error)
        return answers

    def _one(self, command: Command[Any]) -> Any:
        if command.durable is not None:
            return self._durable(command, command.durable)
        client = self.connections.open()
        if self.connections.is_cluster:
            try:
                return client.execute_command("EVALSHA", command.script.sha, *command.words)
            except NoScriptError:
                return client.execute_command("EVAL", command.script.text, *command.words)
        (reply,) = exchange(client, [("EVALSHA", command.script.sha, *command.words)], command.meanwhile)
        if isinstance(reply, NoScriptError):
            (reply,) = exchange(client, [("EVAL", command.script.text, *command.words)], None)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _many(self, commands: Sequence[Command[Any]]) -> list[Any]:
        groups: dict[Any, tuple[Any, list[int]]] = {}
        for i, command in enumerate(commands):
            if command.durable is not None:
                groups[i] = (None, [i])
                continue
            node, client = self.connections.node_of(command.tag)
            groups.setdefault(node, (client, []))[1].append(i)
        replies: list[Any] = [None] * len(commands)

        def one_node(client: Any, positions: list[int], meanwhile: Callable[[], None] | None) -> None:
            if client is None:
                replies[positions[0]] = self._one(commands[positions[0]])
                return
            calls = [("EVALSHA", commands[i].script.sha, *commands[i].words) for i in positions]
            for i, reply in zip(positions, exchange(client, calls, meanwhile), strict=True):
                if isinstance(reply, (NoScriptError, *REDIRECTIONS)):
                    reply = self._one(commands[i])  # alone, it is loaded or follows its slot
                elif isinstance(reply, Exception):
                    raise reply
                replies[i] = reply

        meanwhile = commands[0].meanwhile
        if len(groups) == 1:
            one_node(*next(iter(groups.values())), meanwhile)
            return replies
        if self._pool is None:
            self._pool = ThreadPoolExecutor(thread_name_prefix="timerq-link")
        futures = [self._pool.submit(one_node, *group, None) for group in groups.values()]
        if meanwhile is not None:
            meanwhile()
        for failure in [future.exception() for future in futures]:  # all of them to their ends
            if failure is not None:
                raise failure
        return replies

    def _durable(self, command: Command[Any], durability: Durability) -> Any:
        """The write and, behind it on the same connection, the command that waits."""
        _, client = self.connections.node_of(command.tag)
        if not self._must_wait(durability, client):
            reply = self._one(plain(command))
            command.reached = "fsync"
            return reply
        wait = wait_words(durability)
        for verb, script in (("EVALSHA", command.script.sha), ("EVAL", command.script.text)):
            reply, answer = exchange(client, [(verb, script, *command.words), wait], command.meanwhile)
            if isinstance(reply, NoScriptError):
                continue
            if isinstance(reply, REDIRECTIONS) and self.connections.is_cluster:
                self._one(plain(command))  # follows the slot, and makes the client learn where it is
                _, client = self.connections.node_of(command.tag)
                continue
            break
        for outcome in (reply, answer):
            if isinstance(outcome, Exception):
                raise outcome
        command.reached = reached(durability, answer)
        return reply

    def _must_wait(self, durability: Durability, client: Any) -> bool:
        if not durability.fsync:
            return True
        info = client.info()
        setting = None
        try:
            setting = client.config_get("appendfsync").get("appendfsync")
        except RedisError:
            pass  # the server may not let us ask; then only WAITAOF can tell
        return check_durability(durability, info, setting)

    def close(self) -> None:
        """Closes every connection."""
        if self._pool is not None:
            self._pool.shutdown()
        self.connections.close()


def plain(command: Command[Any]) -> Command[Any]:
    """The same command without its wait."""
    return Command(command.script, command.words, command.read, command.tag)
