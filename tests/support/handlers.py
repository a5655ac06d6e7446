"""Consumers for processes of their own, and where they may be killed on purpose.

`python -m workers.consume tests.support.handlers:app`; what they do is told by the environment, and noted in Redis:
the list `begun` has an `id attempt lane` for each handling, `ended` the same when it is over.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import redis.asyncio

from timerq.consumer import Consumer
from timerq.consumer.desk import Desk
from timerq.consumer.loop import Reader
from timerq.model import Delivery

POINTS = ("received", "started", "in the handler", "ended", "settling", "settled")
"""Every step between reading an event and having acknowledged it."""

WORDS = os.environ.get
app = Consumer(
    group="g",
    ordered=WORDS("ORDERED") == "1",
    concurrency=int(WORDS("CONCURRENCY", "5")),
    lease=WORDS("LEASE", "600ms"),
    drain=WORDS("DRAIN", "5s"),
)
_client = redis.asyncio.Redis.from_url(app.place.url)
_visits = dict.fromkeys(POINTS, 0)


def visit(point: str) -> None:
    """Kills or stops the process at the point and visit that the environment names: `point:number`."""
    _visits[point] += 1
    for word, how in (("KILL_AT", signal.SIGKILL), ("STOP_AT", signal.SIGSTOP)):
        wanted, _, number = WORDS(word, "").partition(":")
        if wanted == point and _visits[point] == int(number):
            os.kill(os.getpid(), how)


def _before(thing: type, name: str, point: str) -> None:
    method: Callable[..., Any] = getattr(thing, name)

    def visited(self: Any, *args: Any, **kwargs: Any) -> Any:
        visit(point)
        return method(self, *args, **kwargs)

    setattr(thing, name, visited)


_before(Reader, "_take", "received")
_before(Desk, "start", "started")
_before(Desk, "_ended", "ended")
_before(Desk, "_send", "settling")
_before(Desk, "_answered", "settled")


@app.on("t", attempts=20, backoff="10ms", max_backoff="50ms")
async def handle(event: Delivery) -> None:
    note = f"{event.id} {event.attempt} {event.lane} {event.payload}"
    await _client.rpush("begun", note)
    visit("in the handler")
    await asyncio.sleep(float(WORDS("SLOW_S", "0")))
    if event.payload % 7 == 3 and event.attempt == 1:
        raise ValueError("the first time")
    await _client.rpush("ended", note)
