"""Starts and stops the loops, says that it lives, trims the streams, and destroys owners that are heard no more."""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import threading
import time
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from timerq.clock import ask_redis
from timerq.commands.backlog import tend
from timerq.commands.command import MAX_ITEMS, Namespace
from timerq.commands.dispatch import beat, trim
from timerq.commands.namespace import open_namespace, reopen_namespace
from timerq.dispatcher.decide import backoff_s, rank
from timerq.dispatcher.health import Health
from timerq.dispatcher.listen import SOCKET_TIMEOUT_S, Listener
from timerq.dispatcher.partition import PartitionLoop
from timerq.dispatcher.undertaker import Undertaker
from timerq.errors import NamespaceMismatch, QueueUnavailable
from timerq.link import Link
from timerq.model import check_plain_name
from timerq.timing import Planner, plan
from timerq.topology import Connections

logger = logging.getLogger("timerq.dispatcher")

BEAT_S = 2.0
TRIM_EVERY_BEATS = 5
_TRIM_LIMIT = 1000


class Dispatcher:
    """Fires the schedules of a namespace, all tenants.

    Any number of them may run, on any number of machines; each partition has its first, and the others cover for it
    within 100 ms each. Killed at any instant, it loses and repeats nothing. While Redis is away it waits, and catches
    up when it is back.

    ``batch`` (1 to 200) is the largest number of schedules that one script call fires; ``planner`` answers for
    calendars. ``options`` are redis-py's.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "timerq",
        name: str | None = None,
        batch: int = MAX_ITEMS,
        planner: Planner = plan,
        **options: Any,
    ) -> None:
        self._namespace_name = check_plain_name("namespace", namespace)
        # A suffix that no other process has: two dispatchers of one name would each think the other's place theirs.
        self.name = f"{name or f'{socket.gethostname()}-{os.getpid()}'}-{secrets.token_hex(3)}"
        self._batch = max(1, min(batch, MAX_ITEMS))
        self._planner = planner
        # Re-sending is the loops' own: with their back-off, and never without the log saying so.
        options = {"retries": 0, "max_connections": 10_000, **options}
        self._link = Link(url, ask_redis, **options)
        self._ear = Connections(url, **{**options, "socket_timeout": SOCKET_TIMEOUT_S})
        self.health = Health()
        self._loops: list[PartitionLoop] = []
        self._unbounded: set[int] = set()  # partitions without bounded streams when it was last asked
        self._listeners: list[Listener] = []
        self._keeper: threading.Thread | None = None
        self._stopping = threading.Event()
        self._stop_requests: SimpleQueue[None] = SimpleQueue()
        self._stop_once = threading.Lock()
        self._stopped = False

    def start(self) -> None:
        """Starts the threads and returns; waits for Redis where it is away. Raises `NamespaceMismatch`."""
        namespace = self._open()
        if namespace is None:
            return  # stopped before Redis came
        if namespace.manual_clock:
            raise NamespaceMismatch(
                "a namespace with clock=manual is driven by its tests, not by a dispatcher"
            )
        with self._stop_once:  # a `stop` from another thread finds all of the threads, or none
            if not self._stopped:
                self._start(namespace)

    def _start(self, namespace: Namespace) -> None:
        self._link.remake = lambda: self._link.run(reopen_namespace(namespace))
        self._loops = [
            PartitionLoop(
                self._link, namespace, p, batch=self._batch, planner=self._planner, health=self.health
            )
            for p in range(namespace.partitions)
        ]
        groups = (
            [[p] for p in range(namespace.partitions)]
            if self._ear.is_cluster
            else [list(range(namespace.partitions))]
        )
        self._listeners = [
            Listener(self._ear, namespace, group, self._loops, self.health) for group in groups
        ]
        try:
            self._beat(namespace)
        except QueueUnavailable as error:  # it went away again: the loops wait for it
            self.health.failed("keep", error)
        for thread in (*self._loops, *self._listeners):
            thread.start()
        self._keeper = threading.Thread(target=self._keep, args=(namespace,), name="timerq-keep", daemon=True)
        self._keeper.start()
        logger.info(
            "dispatcher %s fires namespace %s (%d partition%s)",
            self.name,
            namespace.name,
            namespace.partitions,
            "s" * (namespace.partitions > 1),
        )

    def run(self) -> None:
        """Starts, blocks until `request_stop` or `stop`, and stops."""
        self.start()
        self._stop_requests.get()
        self.stop()

    def request_stop(self) -> None:
        """Makes `run` return; for signal handlers, where little else is safe."""
        self._stop_requests.put(None)

    def stop(self) -> None:
        """Finishes the calls in hand, leaves the list of the living, closes the connections. Twice is once."""
        with self._stop_once:
            if not self._stopped:
                self._stop()
                self._stopped = True

    def _stop(self) -> None:
        self._stopping.set()
        self._stop_requests.put(None)  # for a `run` that waits in another thread
        for listener in self._listeners:
            listener.stop()
        for loop in self._loops:
            loop.stop()
        for loop in self._loops:
            if loop.is_alive():
                loop.join()
        if self._keeper is not None:
            self._keeper.join()
        try:
            if self._loops and not self.health.failing:
                self._link.send([beat(self._loops[0].namespace, self.name, leaving=True)])
        except (QueueUnavailable, NamespaceMismatch):
            pass  # the others find out by its silence
        self._link.close()
        for listener in self._listeners:
            while listener.is_alive():
                self._ear.close()  # once more where it was just about to connect: its read would last
                listener.join(0.05)
        self._ear.close()
        if self._loops:
            logger.info("dispatcher %s has stopped", self.name)

    @property
    def fired_total(self) -> int:
        """How many events it has published."""
        return sum(loop.fired_total for loop in self._loops)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _open(self) -> Namespace | None:
        failures = 0
        while True:
            try:
                namespace = self._link.run(open_namespace(self._namespace_name))
                for node, policy in self._link.connections.eviction_policies().items():
                    if policy != "noeviction":
                        logger.warning(
                            "%s evicts (%s): schedules will be lost when memory runs out; "
                            "set maxmemory-policy noeviction",
                            node,
                            policy,
                        )
            except QueueUnavailable as error:
                failures += 1
                self.health.failed("open", error)
                if not self._stop_requests.empty() or self._stopping.wait(
                    backoff_s(failures, random.random())
                ):
                    return None
            else:
                self.health.works("open")
                return namespace

    def _keep(self, namespace: Namespace) -> None:
        beats = 0
        undertaker = Undertaker(self._link, namespace)
        while not self._stopping.wait(BEAT_S):
            try:
                self._beat(namespace)
                beats += 1
                if self.health.failing:
                    undertaker.redis_failed()
                led = [partition for partition, loop in enumerate(self._loops) if loop.rank == 0]
                undertaker.look(led, time.monotonic() + BEAT_S / 2)
                is_long = beats % TRIM_EVERY_BEATS == 0
                if is_long:
                    self._unbounded.clear()
                self._tend(namespace)
                if is_long:
                    self._trim(namespace)
            except Exception as error:  # the keeper must outlive whatever Redis answers
                undertaker.redis_failed()
                self.health.failed("keep", error)
                self._link.connections.forget_after(error)
            else:
                self.health.works("keep")

    def _beat(self, namespace: Namespace) -> None:
        (alive,) = self._link.send([beat(namespace, self.name)])
        for partition, loop in enumerate(self._loops):
            loop.ranked(rank(alive, self.name, partition))

    def _tend(self, namespace: Namespace) -> None:
        """Looks after the streams whose backlog is bounded, for a while; the rest keeps its place."""
        until = time.monotonic() + BEAT_S / 4
        for partition, loop in enumerate(self._loops):
            if partition in self._unbounded:
                continue
            while loop.rank == 0 and not self._stopping.is_set() and time.monotonic() < until:
                (tended,) = self._link.send([tend(namespace, partition)])
                if tended.stream is None:
                    if not tended.is_bounded:
                        self._unbounded.add(partition)
                    break
                if tended.broken:
                    logger.error("stream %s of partition %d: %s", tended.stream, partition, tended.broken)

    def _trim(self, namespace: Namespace) -> None:
        """As much as can be done until the next heartbeat; the rest keeps its place."""
        until = time.monotonic() + BEAT_S
        for partition, loop in enumerate(self._loops):
            while loop.rank == 0 and not self._stopping.is_set() and time.monotonic() < until:
                (trimmed,) = self._link.send([trim(namespace, partition, limit=_TRIM_LIMIT)])
                if trimmed.stream is None and not trimmed.more:
                    break
                if trimmed.broken:
                    logger.error("stream %s of partition %d: %s", trimmed.stream, partition, trimmed.broken)
                if trimmed.unread:
                    logger.warning(
                        "stream %s: %d entries that a group may not have read went beyond max_age or max_length",
                        trimmed.stream,
                        trimmed.unread,
                    )
