"""How handlings share the event loop, and what does not begin because it came too late."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import Counter
from typing import Any

import pytest
import redis

from tests.support.consumers import Running, Seen
from tests.support.proxy import wait_for
from timerq import Event, TimerQueue, Upsert
from timerq.commands.dispatch import fire_all
from timerq.consumer import AsyncContext, Consumer
from timerq.consumer.desk import LATE_S
from timerq.errors import Incomplete
from timerq.model import Delivery, Outcome

MINE: contextvars.ContextVar[int] = contextvars.ContextVar("mine")


@pytest.mark.one_server
def test_handlers_that_share_a_task_share_nothing_else(queue: TimerQueue) -> None:
    """Some wait and some do not; each has its own context all the way, and a task until it ends."""
    seen = Seen()
    app = Consumer(queue, group="g", concurrency=50)

    @app.on("t")
    async def handle(event: Delivery) -> None:
        number = event.payload
        assert MINE.get(-1) == -1
        MINE.set(number)
        token = MINE.set(number)
        task = asyncio.current_task()
        assert task is not None
        if number % 5 == 1:
            async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                inner = group.create_task(asyncio.sleep(0.001 * (number % 3), MINE.get()))
            assert inner.result() == number
        if number % 5 == 2:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await asyncio.sleep(60)
        if number % 5 == 3:
            task.cancel()  # of no effect on others
            seen.add(number)
            return
        assert asyncio.current_task() is task
        assert not task.cancelling()
        MINE.reset(token)
        assert MINE.get() == number
        seen.add(number)

    queue.init()
    for n in range(200):
        queue.publish(Event("t", n), key=f"k{n}")
    with Running(app):
        seen.wait(200)
        wait_for(lambda: app.counts.handled == 200, "all are acknowledged")
    assert Counter(seen.all) == Counter(range(200))
    assert app.counts.retried == app.counts.dead == 0


@pytest.mark.one_server
def test_what_a_handler_that_does_not_wait_may_come_to(queue: TimerQueue) -> None:
    app = Consumer(queue, group="g")

    @app.on("t", attempts=1)
    async def handle(event: Delivery) -> Any:
        match event.payload:
            case 0:
                raise ValueError("no")
            case 1:
                return Incomplete("not yet")
            case 2:
                raise asyncio.CancelledError
            case 3:
                raise SystemExit(3)
            case 4:
                raise StopIteration
        return "kept"

    for n in range(6):
        queue.publish(Event("t", n), key="k")
    with Running(app):
        wait_for(lambda: app.counts.handled + app.counts.dead == 6, "all are settled")
    assert (app.counts.handled, app.counts.dead) == (1, 5)


def fired(queue: TimerQueue, keys: str, owner: str) -> None:
    for key in keys:
        queue.upsert(key, Event("t", key), delay=0, owner=owner)
        queue.run(fire_all(queue.init()))


@pytest.mark.parametrize("ends", ["destroy", "cancel"])
def test_what_waits_in_its_lane_does_not_begin_once_it_is_cancelled(queue: TimerQueue, ends: str) -> None:
    seen, go = Seen(), asyncio.Event()
    app = Consumer(queue, group="g", ordered=True)
    loop: asyncio.AbstractEventLoop | None = None

    @app.on("t")
    async def handle(event: Delivery) -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        seen.add(event.payload)
        if event.payload == "a":
            await go.wait()

    fired(queue, "abc", "o")
    fired(queue, "x", "other")
    with Running(app):
        seen.wait(2)
        assert loop is not None
        if ends == "destroy":
            queue.owner("o").destroy()
        else:
            for key in "bc":
                assert queue.cancel(key, owner="o").outcome is Outcome.NOT_PENDING
        fired(queue, "y", "o2")
        seen.wait(3)
        loop.call_soon_threadsafe(go.set)
        wait_for(lambda: app.counts.stale == 2, "they are acknowledged unseen")
        wait_for(lambda: app.counts.handled == 3, "the others are handled")
    assert sorted(seen.all) == ["a", "x", "y"]


@pytest.mark.one_server
@pytest.mark.parametrize("how", ["plain", "ctx"])
def test_a_consumer_that_stood_still_begins_nothing_that_another_one_has_taken_over(
    queue: TimerQueue, how: str
) -> None:
    """What blocks its event loop stops it as a frozen process is: it lengthens no leases, and finds out afterwards."""
    here, there = Seen(), Seen()
    go = threading.Event()
    frozen = Consumer(queue, group="g", lease=400, concurrency=10)
    other = Consumer(queue, group="g", concurrency=10)

    def stand_still(event: Delivery) -> None:
        if here.add(event.payload) == 1:
            assert go.wait(30)

    if how == "plain":

        @frozen.on("t")
        async def plain(event: Delivery) -> None:
            stand_still(event)
    else:

        @frozen.on("t")
        async def with_context(event: Delivery, ctx: AsyncContext) -> None:
            stand_still(event)

    other.on("t")(lambda event: there.add(event.payload) and None)
    for n in range(8):
        queue.publish(Event("t", n), key=f"k{n}")
    standing = Running(frozen).start()
    here.wait(1)
    with Running(other):
        there.wait(8)
        wait_for(lambda: other.counts.handled == 8, "all are acknowledged")
        go.set()
        wait_for(lambda: frozen.counts.lost == 8, "it has found out")
    standing.stop()
    assert sorted(there.all) == list(range(8))
    assert len(here.all) == 1
    assert frozen.counts.handled == 0


@pytest.mark.one_server
@pytest.mark.parametrize("ends", [False, True])
def test_a_deep_lane_that_is_late_is_asked_for_many_at_a_time(
    queue: TimerQueue, redis_client: redis.Redis, ends: bool
) -> None:
    """A handler that stands still makes late what is behind it; then its owner may have gone meanwhile, or not."""
    seen, stands = Seen(), threading.Event()
    app = Consumer(queue, group="g", ordered=True)

    @app.on("t")
    async def handle(event: Delivery) -> None:
        if seen.add(event.payload) == 1:
            stands.set()
            time.sleep(2 * LATE_S)
            assert gone.wait(30)

    gone = threading.Event()
    queue.upsert_many([Upsert(f"k{n:03}", Event("t", n), delay=0, owner="o") for n in range(300)])
    queue.run(fire_all(queue.init()))
    with Running(app):
        assert stands.wait(30)
        if ends:
            queue.owner("o").destroy()
        redis_client.config_resetstat()
        gone.set()
        wait_for(lambda: app.counts.handled + app.counts.stale == 300, "all are settled")
    assert len(seen.all) == (1 if ends else 300)
    assert seen.all == sorted(seen.all)
    assert app.counts.lost == app.counts.retried == 0
    calls = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert calls < 100
