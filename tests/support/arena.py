"""Where two things happen at one instant: threads that go from a barrier, each with a connection of its own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import redis

from timerq import Event, TimerQueue
from timerq.clock import ask_redis
from timerq.commands.dispatch import Advance, Fired, Handover, advance, ask, fire
from timerq.link import Link
from timerq.testing import ManualClock
from timerq.timing import Planner, plan

Told = dict[str, str]


class Arena:
    """A namespace without a dispatcher: the test fires, from a link of its own; a context manager.

    Redis decides which side of a duel comes first. With a `clock` time stands still meanwhile.
    """

    def __init__(self, url: str, clock: ManualClock | None = None) -> None:
        self.url = url
        self._clock = clock
        self.queue = self.client_queue()
        self.namespace = self.queue.init(clock="redis" if clock is None else "manual")
        self.link = Link(url, ask_redis if clock is None else clock)
        self.client: Any = redis.Redis.from_url(url)
        self._threads = ThreadPoolExecutor(8)
        self._seen = b"-"
        self._turn = 1
        self._luck = random.Random(7)

    def __enter__(self) -> Arena:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown()
        self.queue.close()
        self.link.close()
        self.client.close()

    def client_queue(self) -> TimerQueue:
        """One more client."""
        return (
            TimerQueue.connect(self.url)
            if self._clock is None
            else TimerQueue.connect(self.url, clock=self._clock)
        )

    @property
    def clock(self) -> ManualClock:
        assert self._clock is not None
        return self._clock

    def duel(self, *sides: Callable[[], Any]) -> list[Any]:
        """All sides at once; what each said."""
        barrier = threading.Barrier(len(sides))
        # Now and then one is a little later: whatever the machine does, each comes first, and last, some of the time.
        late, late_s = self._luck.randrange(4 * len(sides)), self._luck.uniform(0, 0.002)

        def go(place: int) -> Any:
            barrier.wait(30)
            if place == late:
                time.sleep(late_s)
            return sides[place]()

        self._turn += 1  # who is let go last runs first: each side is, in turn
        order = [(place + self._turn) % len(sides) for place in range(len(sides))]
        futures = {place: self._threads.submit(go, place) for place in order}
        return [futures[place].result(60) for place in range(len(sides))]

    def fire(self) -> Fired:
        (fired,) = self.link.send([fire(self.namespace, 0)])
        assert isinstance(fired, Fired)
        return fired

    def advance(self, *steps: Advance) -> list[str]:
        (answers,) = self.link.send([advance(self.namespace, 0, steps)])
        return list(answers)

    def fire_and_ask(self, planner: Planner = plan) -> Fired:
        """One turn of a dispatcher."""
        fired = self.fire()
        if fired.handovers:
            self.advance(*[ask(planner, handover, fired.now_us // 1000) for handover in fired.handovers])
        return fired

    def settle(self, planner: Planner = plan) -> None:
        """Fires and asks calendars until nothing is due."""
        while True:
            fired = self.fire_and_ask(planner)
            if fired.wait_us != 0 and not fired.handovers:
                return

    def claim(self, key: str, **words: Any) -> Handover:
        """A calendar (one occurrence a minute) that has missed one, and is handed over."""
        self.queue.upsert(key, Event("old"), **{"cron": "* * * * *", **words})
        self.clock.advance("2m")
        (handover,) = self.fire().handovers
        assert handover.word == "claimed"
        return handover

    def told(self) -> list[Told]:
        """The events since the last call."""
        entries = self.client.xrange(self.namespace.tags[0] + b":s:events", self._seen)
        if entries:
            self._seen = b"(" + entries[-1][0]
        return [
            {name.decode(): value.decode("latin-1") for name, value in fields.items()}
            for _, fields in entries
        ]

    def logged(self, what: str) -> int:
        """How many entries of this word the log has."""
        entries = self.client.xrange(self.namespace.tags[0] + b":log")
        return sum(fields[b"what"] == what.encode() for _, fields in entries)
