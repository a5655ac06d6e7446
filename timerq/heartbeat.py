"""Says again and again that owners live, for as long as somebody has handles of them.

All handles of a queue share a thread (`timerq.owner`; on a Cluster one for each node, so that one that does not answer
makes no other's beats late) or a task (`timerq.async_owner`): what is due together goes together, in one script a
partition. None keeps a handle alive: one that nobody has any more is not heard any more, and its owner is destroyed
when its time is up.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from timerq.beats import Beat, Load, News, Rounds
from timerq.commands.command import Command, Namespace
from timerq.commands.owned import Life
from timerq.commands.owner import Owned
from timerq.errors import QueueUnavailable
from timerq.exchange import LAST_BEAT_S


class Pulse:
    """The thread of beats, which is there while there are any."""

    def __init__(self, send: Callable[[Sequence[Command[Any]]], list[Any]]) -> None:
        self._send = send
        self._rounds = Rounds()
        # what a finalizer puts things into takes no lock: it may run in whoever holds that
        self._news: SimpleQueue[News] = SimpleQueue()
        self._lock = threading.Lock()  # whether there is a thread
        self._thread: threading.Thread | None = None
        self._closes = False

    def add(self, beat: Beat, handle: object) -> None:
        """Begins the beats of a handle."""
        beat.of(handle, self.drop)
        with self._lock:
            self._news.put(News("add", beat))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="timerq-owner", daemon=True)
                thread.start()
                self._thread = thread

    def drop(self, beat: Beat) -> None:
        """Ends them."""
        self._news.put(News("drop", beat))

    def close(self) -> threading.Thread | None:
        """Ends all of them; the thread that does."""
        with self._lock:
            if self._thread is not None:
                self._closes = True
                self._news.put(News("close"))
            return self._thread

    def _run(self) -> None:
        rounds = self._rounds
        while True:
            self._listen()
            if rounds.beats:
                self._beat(rounds.due(time.monotonic()))
                continue
            with self._lock:
                if self._news.empty():
                    self._thread = None
                    return

    def _listen(self) -> None:
        """Until something is due, begins or ends."""
        rounds = self._rounds
        try:
            wait_s = rounds.wait_s(time.monotonic()) if rounds.beats else 0.0
            news = (
                self._news.get(timeout=min(wait_s, threading.TIMEOUT_MAX))
                if wait_s
                else self._news.get_nowait()
            )
            while True:
                if news.word == "close":
                    self._closes = False
                rounds.take(news, time.monotonic())
                news = self._news.get_nowait()
        except Empty:
            return

    def _beat(self, places: Sequence[list[Load]]) -> None:
        """One call of each partition at once; and then those that follow."""
        while loads := [place.pop(0) for place in places if place]:
            if self._closes:
                return
            try:
                answers = self._send([load.command for load in loads])
            except Exception as error:
                self._each(loads, error)
                continue
            for load, told in zip(loads, answers, strict=True):
                self._rounds.heard(load, told, time.monotonic())

    def _each(self, loads: Sequence[Load], error: Exception) -> None:
        """Each by itself: what is wrong with one partition is no fault of the others."""
        for load in loads:
            if self._closes:
                return
            try:
                if len(loads) == 1:
                    raise error
                (answers,) = self._send([load.command])
            except Exception as fault:
                self._rounds.missed(load, fault, time.monotonic())
            else:
                self._rounds.heard(load, answers, time.monotonic())


class Heartbeats:
    """Those of all handles of a queue; a forked child has none of its parent's."""

    def __init__(
        self, send: Callable[[Sequence[Command[Any]]], list[Any]], node_of: Callable[[bytes], Any]
    ) -> None:
        """``node_of`` tells which node a partition's tag is on."""
        self._send = send
        self._node_of = node_of
        self._pulses: dict[Any, Pulse] = {}
        self._pid = os.getpid()

    def start(self, handle: object, life: Life, namespace: Namespace, place: Owned) -> Beat:
        """Begins the beats of a handle, for its incarnation."""
        if os.getpid() != self._pid:  # neither the threads nor their locks are of any use here
            self._pulses, self._pid = {}, os.getpid()
        try:
            node = self._node_of(namespace.tags[place.partition])
        except QueueUnavailable:
            node = None  # none that is known: they go by the thread that follows slots about
        beat = Beat(life, namespace, place)
        self._pulses.setdefault(node, Pulse(self._send)).add(beat, handle)
        return beat

    def close(self) -> None:
        """Ends them all; what is on its way is waited for, for a little."""
        if os.getpid() == self._pid:
            for thread in [pulse.close() for pulse in [*self._pulses.values()]]:
                if thread is not None:
                    thread.join(LAST_BEAT_S)


class AsyncHeartbeats:
    """Those of all handles of an asynchronous queue: a task that is there while there are any."""

    def __init__(self, send: Callable[[Sequence[Command[Any]]], Awaitable[list[Any]]]) -> None:
        self._send = send
        self._begin()

    def _begin(self) -> None:
        self._rounds = Rounds()
        self._news: deque[News] = deque()
        self._told: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def start(self, handle: object, life: Life, namespace: Namespace, place: Owned) -> Beat:
        """Begins the beats of a handle, for its incarnation, in the running loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._begin()
            self._loop, self._told = loop, asyncio.Event()
        beat = Beat(life, namespace, place)
        beat.of(handle, self._drop)
        self._tell(News("add", beat))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run(), name="timerq-owner")
        return beat

    async def close(self) -> None:
        """Ends them all; what is on its way is waited for, for a little."""
        if self._task is None or self._loop is not asyncio.get_running_loop():
            return
        self._tell(News("close"))
        await asyncio.wait([self._task, *self._sending], timeout=LAST_BEAT_S)

    def _drop(self, beat: Beat) -> None:
        self._tell(News("drop", beat))

    def _tell(self, news: News) -> None:
        """Also from a finalizer, in whatever thread that runs."""
        self._news.append(news)
        if self._loop is not None and self._told is not None:
            try:
                self._loop.call_soon_threadsafe(self._told.set)
            except RuntimeError:
                pass  # the loop is closed, and its task with it

    async def _run(self) -> None:
        rounds, loop, told = self._rounds, self._loop, self._told
        assert loop is not None
        assert told is not None
        while True:
            told.clear()
            while self._news:
                rounds.take(self._news.popleft(), loop.time())
            if not rounds.beats:
                return
            for loads in rounds.due(loop.time()):
                # a partition that does not answer makes no other's beats late
                task = loop.create_task(self._beat(loads), name="timerq-owner-beat")
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
            try:
                wait_s = rounds.wait_s(loop.time())
                await asyncio.wait_for(told.wait(), None if wait_s == float("inf") else wait_s)
            except TimeoutError:
                pass

    async def _beat(self, loads: Sequence[Load]) -> None:
        rounds, loop, told = self._rounds, asyncio.get_running_loop(), self._told
        for load in loads:
            try:
                (answers,) = await self._send([load.command])
            except Exception as error:
                rounds.missed(load, error, loop.time())
            else:
                rounds.heard(load, answers, loop.time())
        if told is not None:
            told.set()
