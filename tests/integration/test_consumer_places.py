"""Consumers where Redis is a Cluster, has gone, comes late or cuts idle connections; and events that went stale."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import redis

from tests.support.consumers import Running, Seen
from tests.support.events import Stopwatch
from tests.support.proxy import wait_for
from timerq import Event, InvalidSchedule, TimerQueue, schedule
from timerq.commands.dispatch import fire_all
from timerq.consumer import AsyncContext, Consumer
from timerq.dispatcher import Dispatcher
from timerq.embedded import EmbeddedRedis
from timerq.model import Delivery, Outcome
from timerq.testing import TestQueue

MakeRedis = Callable[..., EmbeddedRedis]


@pytest.mark.usefixtures("only_signals")
@pytest.mark.parametrize("ordered", [False, True])
def test_on_every_server_and_on_a_cluster(any_url: str, ordered: bool) -> None:
    seen = Seen()
    with TimerQueue.connect(any_url, namespace="spread") as queue:
        queue.init(partitions=6)
        app = Consumer(queue, group="g", ordered=ordered)
        app.on("t")(lambda event: seen.add(event) and None)
        with Running(app):
            for n in range(60):
                queue.publish(Event("t", n), key=f"k{n % 12}")
            seen.wait(60)
            wait_for(lambda: app.counts.handled == 60, "all are acknowledged")
            time.sleep(0.2)  # an idle while, so that the bell is what wakes it
            queue.publish(Event("t", 60), key="k")
            seen.wait(61)
        assert not app.failing
    assert len(set(seen.ids)) == 61


def test_what_was_cancelled_after_it_fired_is_not_run(queue: TimerQueue) -> None:
    seen = Seen()
    app = Consumer(queue, group="g")
    app.on("t")(lambda event: seen.add(event.key) and None)
    queue.upsert("cancelled", Event("t"), delay=0)
    queue.upsert("kept", Event("t"), delay=0)
    queue.run(fire_all(queue.init()))
    assert queue.cancel("cancelled").outcome is Outcome.NOT_PENDING
    with Running(app):
        wait_for(lambda: app.counts.stale == 1 and app.counts.handled == 1, "both are settled")
    assert seen.all == ["kept"]


@pytest.mark.one_server
def test_what_was_armed_again_since_is_left_out_where_that_is_wanted(queue: TimerQueue) -> None:
    both, newest = Seen(), Seen()
    every = Consumer(queue, group="every")
    last = Consumer(queue, group="last", drop_superseded=True)
    every.on("t")(lambda event: both.add(event.payload) and None)
    last.on("t")(lambda event: newest.add(event.payload) and None)
    queue.upsert("k", Event("t", 1), delay=0)
    queue.run(fire_all(queue.init()))
    queue.upsert("k", Event("t", 2), delay="1h")
    with Running(every), Running(last):
        both.wait(1)
        wait_for(lambda: last.counts.stale == 1, "it is left out")
    assert (both.all, newest.all) == ([1], [])


@pytest.mark.one_server
def test_a_consumer_waits_for_redis_and_can_be_stopped_meanwhile(make_redis: MakeRedis) -> None:
    seen = Seen()
    server = make_redis()
    url, port = server.url, server.port
    assert port is not None
    server.stop()
    app = Consumer(url, group="g")
    app.on("t")(lambda event: seen.add(event) and None)
    waiting = Running(app).start(wait=False)
    wait_for(lambda: bool(app.failing), "it finds nobody")
    with Stopwatch() as watch:
        waiting.stop()
    assert watch.seconds < 20


@pytest.mark.one_server
def test_b54_a_redis_that_cuts_idle_connections(
    queue: TimerQueue, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    redis_client.config_set("timeout", 1)
    try:
        app = Consumer(queue, group="g")
        app.on("t")(lambda event: seen.add(event) and None)
        with Running(app), Stopwatch() as watch:
            time.sleep(4)
            queue.publish(Event("t"), key="k")
            seen.wait(1, timeout_s=25)  # not a lease of 30 s
        assert watch.cpu_s < 0.2 * watch.seconds
        assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    finally:
        redis_client.config_set("timeout", 0)


def test_a_handler_that_runs_again_three_days_later_arms_nothing_anew() -> None:
    outcomes, fired = Seen(), Seen()
    with TestQueue() as kit:
        app = Consumer(kit.aqueue, group="g")

        @app.on("hold", attempts=4, backoff="3d", max_backoff="3d")
        async def hold(event: Delivery, ctx: AsyncContext) -> None:
            outcomes.add((await ctx.schedule("release", delay="1h")).outcome)
            raise ConnectionError("again, days later")

        app.on("release")(lambda event: fired.add(event) and None)
        kit.queue.publish(Event("hold"), key="k")
        kit.advance("4d", app)
    assert outcomes.all[:2] == [Outcome.CREATED, Outcome.DUPLICATE]
    assert len(fired.all) == 1


@pytest.mark.one_server
def test_a_master_that_is_a_replica_for_a_while(make_redis: MakeRedis) -> None:
    seen = Seen()
    server = make_redis()
    with TimerQueue.connect(server.url) as queue, redis.Redis.from_url(server.url) as client:
        app = Consumer(queue, group="g", lease="2s")
        app.on("t")(lambda event: seen.add(event.payload) and None)
        with Running(app):
            queue.publish(Event("t", 1), key="k")
            seen.wait(1)
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
            wait_for(lambda: bool(app.failing), "it is refused")
            client.execute_command("REPLICAOF", "NO", "ONE")
            queue.publish(Event("t", 2), key="k")
            seen.wait(2)
            wait_for(lambda: not app.failing, "all is well again")


def test_b42_a_chain_that_a_handler_arms(redis_url: str, queue: TimerQueue) -> None:
    seen = Seen()
    app = Consumer(queue, group="g")

    @app.on("t")
    async def next_one(event: Delivery, ctx: AsyncContext) -> None:
        if event.payload < 100:
            await ctx.schedule_upsert("k", Event("t", event.payload + 1), owner=None, delay=2)
        seen.add(event.payload)

    queue.upsert("k", Event("t", 1), delay=10)
    with Running(app), Dispatcher(redis_url), Dispatcher(redis_url):
        seen.wait(100)
    assert seen.all == list(range(1, 101))
    assert queue.count() == 0


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"unwanted": "drop"}, "unwanted"),
        ({"lease": 10}, "lease"),
        ({"group": "a b"}, "group"),
        ({"stream": ""}, "stream"),
        ({"drain": "soon"}, "drain"),
        ({"queue": 7}, "queue"),
        ({"queue": "redis://h", "namespace": "?"}, "namespace"),
        ({"arming_memory": 0}, "arming_memory"),
        ({"declares": [""]}, "type"),
    ],
)
def test_bad_words_are_refused(words: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidSchedule) as raised:
        Consumer(**{"group": "g", **words})  # type: ignore[arg-type]
    assert raised.value.field == field


def test_an_app_that_is_placed_keeps_its_place() -> None:
    @schedule(every="1h")
    def hourly() -> None: ...

    free, placed = Consumer(group="g"), Consumer("redis://there", group="g", namespace="n")
    for app in (free, placed):
        app.configure(url="redis://here", namespace="m", name="x", concurrency=3)
        assert app.concurrency == 3
        assert app.new_name().startswith("x-")
    assert (free.place.url, free.place.namespace) == ("redis://here", "m")
    assert (placed.place.url, placed.place.namespace) == ("redis://there", "n")
