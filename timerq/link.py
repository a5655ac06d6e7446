"""Sends commands and reads their replies, blocking: lost scripts, redirections, durability.

`Link.run` drives a verb's steps; there is no logic of any verb here.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from redis.exceptions import (
    NoScriptError,
    RedisError,
)

from timerq.clock import Clock
from timerq.commands.command import Command, Durability, Namespace, PartitionUnmade, Steps
from timerq.commands.durable import reached, wait_words
from timerq.commands.read import server_time
from timerq.errors import NamespaceMismatch
from timerq.exchange import (
    FRESH_S,
    REDIRECTIONS,
    VERBS,
    ServerClock,
    Session,
    check_durability,
    check_wait,
    exchange,
    local_clock,
    plain,
    unavailable,
    was_closed,
)
from timerq.heartbeat import Heartbeats
from timerq.lua import Word
from timerq.topology import REDIS_FAULTS, Connections

T = TypeVar("T")


class Link:
    """The blocking way to Redis, for threads of one process; a forked child starts with sessions of its own."""

    def __init__(self, url: str, clock: Clock, **options: Any) -> None:
        """``options`` are redis-py's. Nothing is sent yet; raises `InvalidSchedule` for a bad URL."""
        self.connections = Connections(url, **options)
        self._clock = clock
        self._server_clock = ServerClock()
        self._sessions: deque[Session] = deque()
        self._pid = os.getpid()
        self._pool: ThreadPoolExecutor | None = None
        self.remake: Callable[[], None] | None = None
        self.beats = Heartbeats(self.send, lambda tag: self.connections.node_of(tag)[0])

    def server_clock(self, namespace: Namespace) -> Callable[[], int]:
        """Tells Redis's time (epoch ms), or the manual clock's."""
        now_ms = self._clock()
        if now_ms is not None:
            return partial(int, now_ms)
        if not namespace.layout:
            return local_clock  # there is no Redis to ask yet, and nothing will be stored by it
        if not self._server_clock.is_fresh:
            (learned_ms,) = self.send([server_time(namespace)])
            self._server_clock.learn(learned_ms)
        return self._server_clock

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
        # a forked child in its parent's session would be told its parent's answers
        if os.getpid() != self._pid:
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
            replies = (
                [self._one(session, commands[0])] if len(commands) == 1 else self._many(session, commands)
            )
        except REDIS_FAULTS as error:
            raise unavailable(error) from error
        answers = []
        for command, reply in zip(commands, replies, strict=True):
            try:
                answers.append(command.read(reply))
            except Exception as error:  # kept beside the others' answers until all of them are read
                answers.append(error)
        return answers

    def _exchange_on(
        self, session: Session, client: Any, calls: Sequence[Sequence[Word]], meanwhile: Any = None
    ) -> list[Any]:
        """On the session's own connection, or on one of a Cluster node's pool."""
        if not self.connections.is_cluster:
            if session.connection is None:
                session.connection = client.connection_pool.get_connection()
            elif time.monotonic() - session.used_s > FRESH_S and was_closed(session.connection):
                session.connection.disconnect()
            replies = exchange(session.connection, calls, meanwhile)
            session.used_s = time.monotonic()
            return replies
        pool = client.connection_pool
        connection = pool.get_connection()
        try:
            return exchange(connection, calls, meanwhile)
        finally:
            pool.release(connection)

    def _one(self, session: Session, command: Command[Any]) -> Any:
        if command.durable is not None:
            return self._durable(session, command, command.durable)
        client = self.connections.open()
        if self.connections.is_cluster:
            try:
                return client.execute_command(*command.call("EVALSHA"))
            except NoScriptError:
                return client.execute_command(*command.call("EVAL"))
        (reply,) = self._exchange_on(session, client, [command.call("EVALSHA")], command.meanwhile)
        if isinstance(reply, NoScriptError):
            (reply,) = self._exchange_on(session, client, [command.call("EVAL")])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _many(self, session: Session, commands: Sequence[Command[Any]]) -> list[Any]:
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
                commands[positions[0]].meanwhile = meanwhile
                replies[positions[0]] = self._one(session, commands[positions[0]])
                return
            calls = [commands[i].call("EVALSHA") for i in positions]
            for i, reply in zip(positions, self._exchange_on(session, client, calls, meanwhile), strict=True):
                if isinstance(reply, (NoScriptError, *REDIRECTIONS)):
                    reply = self._one(session, commands[i])  # alone, it is loaded or follows its slot
                elif isinstance(reply, Exception):
                    raise reply
                replies[i] = reply

        # handed on by hand from here, so that no two threads do it, and none a second time
        meanwhile, commands[0].meanwhile = commands[0].meanwhile, None
        if len(groups) == 1 or not self.connections.is_cluster:
            for group in groups.values():
                one_node(*group, meanwhile)
                meanwhile = None
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

    def _durable(self, session: Session, command: Command[Any], durability: Durability) -> Any:
        """The write and, behind it on the same connection, the command that waits."""
        _, client = self.connections.node_of(command.tag)
        if not self._must_wait(durability, client):
            reply = self._one(session, plain(command))
            command.reached = "fsync"
            return reply
        check_wait(durability, client)
        wait = wait_words(durability)
        meanwhile = command.meanwhile
        for verb in VERBS:
            calls = [command.call(verb), wait]
            reply, answer = self._exchange_on(session, client, calls, meanwhile)
            meanwhile = None
            if isinstance(reply, NoScriptError):
                continue
            if isinstance(reply, REDIRECTIONS) and self.connections.is_cluster:
                self._one(session, plain(command))  # follows the slot, and makes the client learn where it is
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
        self.beats.close()
        if self._pool is not None:
            self._pool.shutdown()
        self.connections.close()
