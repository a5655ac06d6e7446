"""Sends commands and reads their replies, with await; what `timerq.link` says holds here too."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from redis.exceptions import NoScriptError, RedisError

from timerq.clock import Clock
from timerq.commands.command import Command, Durability, Namespace, PartitionUnmade, Scope, Steps
from timerq.commands.durable import reached, wait_words
from timerq.commands.items import Item, Later, gather
from timerq.commands.queue import CallQueue
from timerq.commands.read import server_time
from timerq.errors import NamespaceMismatch
from timerq.exchange import (
    REDIRECTIONS,
    VERBS,
    ServerClock,
    Session,
    check_durability,
    check_wait,
    local_clock,
    plain,
    unavailable,
)
from timerq.heartbeat import AsyncHeartbeats
from timerq.topology import REDIS_FAULTS, AsyncConnections

T = TypeVar("T")


class AsyncLink:
    """The asynchronous way to Redis, for one event loop."""

    def __init__(self, url: str, clock: Clock, **options: Any) -> None:
        """``options`` are redis-py's. Nothing is sent yet; raises `InvalidSchedule` for a bad URL."""
        self.connections = AsyncConnections(url, **options)
        self._clock = clock
        self._server_clock = ServerClock()
        self._sessions: deque[Session] = deque()
        self._pid = os.getpid()
        self.remake: Callable[[], Awaitable[None]] | None = None
        self.beats = AsyncHeartbeats(self.send)

    async def server_clock(self, namespace: Namespace) -> Callable[[], int]:
        """Tells Redis's time (epoch ms), or the manual clock's."""
        now_ms = self._clock()
        if now_ms is not None:
            return partial(int, now_ms)
        if not namespace.layout:
            return local_clock  # there is no Redis to ask yet, and nothing will be stored by it
        if not self._server_clock.is_fresh:
            (learned_ms,) = await self.send([server_time(namespace)])
            self._server_clock.learn(learned_ms)
        return self._server_clock

    async def run(self, steps: Steps[T]) -> T:
        """Drives a verb to its result."""
        try:
            commands = next(steps)
            while True:
                commands = steps.send(await self.send(commands))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def send(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Sends commands of different partitions at once and reads their replies.

        Raises `QueueUnavailable` or `NamespaceMismatch`; whether a command took effect is then unknown.
        """
        if os.getpid() != self._pid:
            self._sessions, self._pid = deque(), os.getpid()
        session = self._sessions.popleft() if self._sessions else Session.new()
        task = asyncio.current_task()
        cancels = 0 if task is None else task.cancelling()
        try:
            answers = await self._exchange(session, commands)
            unmade = [i for i, answer in enumerate(answers) if isinstance(answer, PartitionUnmade)]
            if unmade:
                if self.remake is None:
                    raise NamespaceMismatch("the namespace has gone from Redis")
                await self.remake()
                again = await self._exchange(session, [commands[i] for i in unmade])
                for i, answer in zip(unmade, again, strict=True):
                    answers[i] = answer
        finally:
            self._sessions.append(session)
        if task is not None and task.cancelling() > cancels:
            # `asyncio.wait_for` of Python 3.11, which the driver writes with, forgets that it was cancelled
            raise asyncio.CancelledError
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    async def _exchange(self, session: Session, commands: Sequence[Command[Any]]) -> list[Any]:
        session.seq += 1
        now_ms = self._clock()
        for command in commands:
            command.stamp(session.name, session.seq, now_ms)
        if len(commands) == 1:
            replies: list[Any] = [await self._one(commands[0])]
        else:
            # all of them to their ends, so that no command is still on its way when its session is used again
            replies = await asyncio.gather(*map(self._one, commands), return_exceptions=True)
        answers: list[Any] = []
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, BaseException):
                if not isinstance(reply, Exception):
                    raise reply
                answers.append(reply)
                continue
            try:
                answers.append(command.read(reply))
            except Exception as error:  # kept beside the others' answers until all of them are read
                answers.append(error)
        return answers

    async def _one(self, command: Command[Any]) -> Any:
        try:
            if command.durable is not None:
                return await self._durable(command, command.durable)
            client = await self.connections.open()
            try:
                return await client.execute_command(*command.call("EVALSHA"))
            except NoScriptError:
                return await client.execute_command(*command.call("EVAL"))
        except REDIS_FAULTS as error:
            raise unavailable(error) from error

    async def _durable(self, command: Command[Any], durability: Durability) -> Any:
        """The write and, behind it on the same connection, the command that waits."""
        client = await self.connections.node_of(command.tag)
        if not await self._must_wait(durability, client):
            reply = await self._one(plain(command))
            command.reached = "fsync"
            return reply
        check_wait(durability, client)
        for verb in VERBS:
            pipeline = client.pipeline(transaction=False)
            pipeline.execute_command(*command.call(verb))
            pipeline.execute_command(*wait_words(durability))
            reply, answer = await pipeline.execute(raise_on_error=False)
            if isinstance(reply, NoScriptError):
                continue
            if isinstance(reply, REDIRECTIONS) and self.connections.is_cluster:
                await self._one(plain(command))  # follows the slot, and makes the client learn where it is
                client = await self.connections.node_of(command.tag)
                continue
            break
        for outcome in (reply, answer):
            if isinstance(outcome, Exception):
                raise outcome
        command.reached = reached(durability, answer)
        return reply

    async def _must_wait(self, durability: Durability, client: Any) -> bool:
        if not durability.fsync:
            return True
        info = await client.info()
        setting = None
        try:
            setting = (await client.config_get("appendfsync")).get("appendfsync")
        except RedisError:
            pass  # the server may not let us ask; then only WAITAOF can tell
        return check_durability(durability, info, setting)

    async def close(self) -> None:
        """Closes every connection."""
        await self.beats.close()
        await self.connections.close()


class AsyncCalls:
    """Calls on single schedules: those made while one is on its way go together in their partition's next script."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link
        self._queues: dict[int, CallQueue[asyncio.Future[Any]]] = {}
        self._pumps: dict[int, asyncio.Task[None]] = {}

    async def call(self, scope: Scope, item: Item[T], durable: Durability | None) -> T:
        """The item's result. A caller that is cancelled before its call is sent has not made it."""
        queue = self._queues.setdefault(item.partition, CallQueue())
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        queue.add(item, durable, answer)
        if item.partition not in self._pumps:
            self._start(scope, item.partition, answer.get_loop())
        return await answer

    def _start(self, scope: Scope, partition: int, loop: asyncio.AbstractEventLoop) -> None:
        self._pumps[partition] = loop.create_task(self._pump(scope, partition, loop))

    async def _pump(self, scope: Scope, partition: int, loop: asyncio.AbstractEventLoop) -> None:
        queue = self._queues[partition]
        calls = queue.take()
        try:
            while calls:
                wanted = [call for call in calls if not call[2].done()]
                answers: list[Any] = []
                if wanted:
                    try:
                        command = gather(scope, [item for item, _, _ in wanted], wanted[0][1])
                        (answers,) = await self._link.send([command])
                    except Exception as error:
                        answers = [error] * len(wanted)
                late = []
                for call, answer in zip(wanted, answers, strict=True):
                    future = call[2]
                    if isinstance(answer, Later):
                        late.append(call)
                    elif future.done():
                        pass  # whoever asked was cancelled; the call was made all the same
                    elif isinstance(answer, Exception):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
                queue.again(late)
                calls = queue.take()
        finally:
            # Something is left only where this task is cancelled: a loop that shuts down cancels all it finds. Whoever
            # waits for what was on its way is told so; who has come since, to clean up, has a task anew.
            del self._pumps[partition]
            if not loop.is_closed():
                for _, _, future in calls:
                    future.cancel()
                if queue.waiting:
                    self._start(scope, partition, loop)
