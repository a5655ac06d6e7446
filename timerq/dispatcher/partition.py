"""The loop of one partition: sleep until the next is due, fire, ask calendars, again."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence
from itertools import chain
from typing import Any

from timerq.commands.command import MAX_ITEMS, Command, Namespace
from timerq.commands.dispatch import Advance, Fired, Handover, advance, ask, fire
from timerq.dispatcher.decide import Clocks, Watch, adapt_batch, backoff_s
from timerq.dispatcher.health import Health
from timerq.errors import TimerqError
from timerq.link import Link
from timerq.timing import Planner

logger = logging.getLogger("timerq.dispatcher")

Handed = list[tuple[Handover, int]]
"""Calendars to ask, and as of when (epoch ms)."""

_IDLE_TURN_US = 10_000
_HELD_SAID_EVERY_US = 30_000_000
_ASK_US = 50_000
"""How long calendars are asked before what is due meanwhile is fired: the first answer of a calendar of a hundred
expressions may take a second."""


def monotonic_us() -> int:
    """This process's clock for sleeping."""
    return time.monotonic_ns() // 1000


class PartitionLoop(threading.Thread):
    """Fires one partition.

    Its sleep is its own (a server's blocking time-out ends up to 100 ms late); `woken`, `ranked` and `stop` end it.
    """

    def __init__(
        self,
        link: Link,
        namespace: Namespace,
        partition: int,
        *,
        batch: int,
        planner: Planner,
        health: Health,
    ) -> None:
        super().__init__(name=f"timerq-fire-{partition}", daemon=True)
        self._link = link
        self.namespace = namespace
        self._partition = partition
        self._largest = self._batch = min(batch, MAX_ITEMS)
        self._planner = planner
        self._health = health
        self._clocks = Clocks()
        self._watch = Watch()
        self._changed = threading.Condition()
        self._stopping = False
        self._look_now = True
        self._last_look_us = 0
        self._held_said_us = self._refused_said_us = -_HELD_SAID_EVERY_US
        self._planned_us: int | None = None
        self._asked = (self._batch, 0)
        self._command = fire(namespace, partition, batch=self._batch)
        self._handed: Handed = []  # calendars to ask
        self._said: list[Advance] = []  # what they said, to tell the scripts
        self.fired_total = 0

    def ranked(self, rank: int) -> None:
        """Its place among the live dispatchers is now ``rank``."""
        with self._changed:
            if rank != self._watch.rank:
                self._watch.rank = rank
                self._changed.notify()

    @property
    def rank(self) -> int:
        """Its place among the live dispatchers; 0 leads."""
        return self._watch.rank

    def woken(self, head_ms: int, now_us: int) -> None:
        """At ``now_us`` the earliest pending instant became ``head_ms`` (the server's epoch µs and ms)."""
        with self._changed:
            if self._watch.woken(head_ms * 1000, now_us):
                self._changed.notify()

    def stop(self) -> None:
        """Finishes the call in hand and ends the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def run(self) -> None:
        """The loop; only `stop` ends it."""
        failures = 0
        while self._sleep():
            try:
                self._look()
            except Exception as error:
                # Whatever happened, nothing is lost: what was due is still due. A thread that died would be silent.
                failures += 1
                self._health.failed(self.name, error)
                if not isinstance(error, TimerqError):
                    logger.exception("partition %d: a fault of timerq's own", self._partition)
                self._link.connections.forget_after(error)
                if not self._pause(backoff_s(failures, random.random())):
                    return
            else:
                failures = 0
                self._health.works(self.name)

    def _sleep(self) -> bool:
        """Until the next look; False when stopped."""
        self._planned_us = None
        with self._changed:
            while not self._stopping:
                if self._look_now:
                    self._planned_us = None
                    return True
                look_us = self._watch.next_look_us(self._clocks, self._last_look_us)
                left_us = look_us - monotonic_us()
                if left_us <= 0:
                    return True
                woken = self._changed.wait(left_us / 1e6)
                self._planned_us = None if woken else look_us
            return False

    def _pause(self, seconds: float) -> bool:
        """A back-off that only `stop` cuts short; False when stopped."""
        with self._changed:
            self._look_now = True
            return not self._changed.wait_for(lambda: self._stopping, seconds)

    def _look(self) -> None:
        sent_us = monotonic_us()
        lag_ms = self._watch.lag_ms
        fired = self._exchange(self._question(lag_ms))
        received_us = monotonic_us()
        self._clocks.learn(fired.now_us, sent_us, received_us, self._planned_us)
        took_us = received_us - sent_us - (self._clocks.quickest_us or 0)
        self._batch = adapt_batch(
            self._batch, fired.published + fired.held + fired.refused, took_us, self._largest
        )
        self.fired_total += fired.published
        if fired.held:
            self._say_held(fired.held, "each says why")
        if fired.refused:
            self._say_refused(fired.refused)
        idle = not (fired.published or fired.held or fired.dropped or fired.handovers or fired.refused)
        with self._changed:
            self._last_look_us = received_us
            self._watch.looked(fired.now_us, fired.wait_us, lag_ms)
            self._look_now = fired.wait_us == 0 and not idle
            if fired.wait_us == 0 and idle:  # due, but not to be had: never turn without a pause
                self._watch.head_us = fired.now_us + _IDLE_TURN_US
            turning = self._look_now
        if not turning:
            self._settle_calendars()

    def _question(self, lag_ms: int) -> Command[Fired]:
        """The call of fire.lua; made anew only where it differs from the last one, for it is made when it is due."""
        asked = (self._batch, lag_ms)
        if self._asked != asked:
            self._asked = asked
            self._command = fire(self.namespace, self._partition, batch=self._batch, lag_ms=lag_ms)
        return self._command

    def _exchange(self, question: Command[Fired]) -> Fired:
        """Fires. In a backlog what the calendars said travels along, and they are asked while Redis is at work.

        What is handed over is lost with the process or the connection: then it is claimed when it is due.
        """
        handed, self._handed = self._handed, []
        said, self._said = self._said, []
        commands: list[Command[Any]] = [*self._advances(said), question]
        asked = False

        def meanwhile() -> None:
            nonlocal asked
            asked = True
            self._said, self._handed = self._ask(handed)

        question.meanwhile = None  # it is used again and again, and a fault may have left it there
        commands[0].meanwhile = meanwhile if handed else None
        *answers, fired = self._link.send(commands)
        if not asked:
            meanwhile()
        self._tell_broken(said, answers)
        now_ms = fired.now_us // 1000
        if self._handed:  # one that was claimed anew meanwhile is asked about once
            anew = {handover.id for handover in fired.handovers}
            self._handed = [given for given in self._handed if given[0].id not in anew]
        self._handed += [(handover, now_ms) for handover in fired.handovers]
        return fired  # type: ignore[no-any-return]

    def _settle_calendars(self) -> None:
        """Asks and tells what is still open, before the loop sleeps."""
        if not (self._handed or self._said):
            return
        answers, self._handed = self._ask(self._handed)
        said = [*self._said, *answers]
        self._said = []
        self._tell_broken(said, self._link.send(self._advances(said)))
        if self._handed or any(step.handover.word == "claimed" for step in said):
            with self._changed:
                # what was asked about may be due, and what is due must not wait for the others
                self._look_now = True

    def _ask(self, handed: Handed) -> tuple[list[Advance], Handed]:
        """What calendars say, and those that are still to be asked when the time is up."""
        said: list[Advance] = []
        until_us = monotonic_us() + _ASK_US
        for handover, now_ms in handed:
            if said and monotonic_us() > until_us:
                break
            said.append(ask(self._planner, handover, now_ms))
        return said, handed[len(said) :]

    def _advances(self, said: Sequence[Advance]) -> list[Command[list[str]]]:
        return [
            advance(self.namespace, self._partition, said[first : first + MAX_ITEMS])
            for first in range(0, len(said), MAX_ITEMS)
        ]

    def _say_held(self, count: int, why: str) -> None:
        """Says so once in a while, however many are tried again and again."""
        now_us = monotonic_us()
        if now_us - self._held_said_us >= _HELD_SAID_EVERY_US:
            self._held_said_us = now_us
            logger.error(
                "partition %d: %d schedule%s could not be fired; held, and tried again (%s)",
                *(self._partition, count, "s" * (count > 1), why),
            )

    def _say_refused(self, count: int) -> None:
        """The same for streams that are full."""
        now_us = monotonic_us()
        if now_us - self._refused_said_us >= _HELD_SAID_EVERY_US:
            self._refused_said_us = now_us
            logger.warning(
                "partition %d: %d schedule%s due whose stream is full; held back or left out, as its bound says",
                *(self._partition, count, " is" if count == 1 else "s are"),
            )

    def _tell_broken(self, said: Sequence[Advance], answers: Sequence[list[str]]) -> None:
        held = [(step.handover.id, step.hold) for step in said if step.hold is not None]
        if held:
            self._say_held(len(held), f"{held[0][0]!r}: {held[0][1]}")
        for step, answer in zip(said, chain.from_iterable(answers), strict=True):
            if answer.startswith("BROKEN"):
                logger.error("schedule %r: its record cannot be touched: %s", step.handover.id, answer[7:])
