"""What nobody should do to a queue, and somebody will."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.support.events import Events
from tests.support.proxy import Proxy, wait_for
from tests.support.state import check_structure, dump
from tests.support.ticks import calendar
from timerq import AsyncTimerQueue, Event, Outcome, QueueUnavailable, State, TimerQueue, Upsert, keys
from timerq.async_client import AsyncHandle
from timerq.commands import upsert as upserting
from timerq.commands.command import Scope
from timerq.commands.items import gather
from timerq.dispatcher import Dispatcher
from timerq.embedded import EmbeddedRedis
from timerq.testing import ManualClock, fire_due, fire_until

MakeRedis = Callable[..., EmbeddedRedis]
EVENT = Event("t")


def test_two_thousand_tenants_are_due_at_once(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        namespace = queue.init()
        for n in range(2000):
            scope = Scope(namespace, f"tenant-{n}", f"tenant-{n}".encode())
            items = [upserting.item(scope, Upsert(key, EVENT, at=1, owner="o")) for key in ("a", "b")]
            queue._link.send([gather(scope, items)])
        with Dispatcher(redis_url), Events(redis_url, namespace) as events:
            events.wait(4000)
            events.check()
        assert queue.stats().all_schedules == 0


def test_150_threads_share_a_queue(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue, Dispatcher(redis_url):
        namespace = queue.init(partitions=1)
        start = threading.Barrier(150)
        outcomes: list[Outcome] = []

        def work(mine: int) -> None:
            start.wait(30)
            for turn in range(5):
                outcomes.append(queue.upsert(f"{mine}:{turn}", EVENT, delay=turn * 20).outcome)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(150)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert outcomes == [Outcome.CREATED] * 750
        with Events(redis_url, namespace) as events:
            events.wait(750)
            events.check()


@pytest.mark.parametrize("protocol", [2, 3])
def test_either_protocol(redis_url: str, protocol: int) -> None:
    with (
        TimerQueue.connect(redis_url, protocol=protocol) as queue,
        Dispatcher(redis_url, protocol=protocol) as dispatcher,
    ):
        namespace = queue.init()
        with redis.Redis.from_url(redis_url) as client:  # it sleeps, and must be woken
            wait_for(lambda: client.info("clients")["blocked_clients"] > 0, "it listens")
        for n in range(20):
            queue.upsert(f"k{n}", EVENT, delay=20)
        with Events(redis_url, namespace) as events:
            events.wait(20)
            events.check()
        wait_for(lambda: dispatcher._loops[0]._watch.heard_at_us > 0, "it has heard")
        assert not dispatcher.health.failing


def test_stopping_twice_or_before_the_start(redis_url: str) -> None:
    Dispatcher(redis_url).stop()
    dispatcher = Dispatcher(redis_url)
    dispatcher.start()
    dispatcher.stop()
    dispatcher.stop()


def test_run_ends_when_it_is_asked_to(redis_url: str) -> None:
    dispatcher = Dispatcher(redis_url)
    thread = threading.Thread(target=dispatcher.run, daemon=True)
    thread.start()
    with TimerQueue.connect(redis_url) as queue:
        wait_for(lambda: bool(queue.stats().dispatchers), "it runs")
    dispatcher.request_stop()
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.one_server
def test_sixty_four_partitions(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        namespace = queue.init(partitions=64)
        with Dispatcher(redis_url), Dispatcher(redis_url), Events(redis_url, namespace) as events:
            queue.upsert_many([Upsert(f"k{n}", EVENT, delay=n) for n in range(1000)])
            events.wait(1000)
            events.check()
            assert {event.partition for event in events.all} == set(range(64))


def test_a_clock_that_goes_back_repeats_nothing(redis_client: redis.Redis, redis_url: str) -> None:
    clock = ManualClock()
    start = clock.now_ms
    with TimerQueue.connect(redis_url, clock=clock) as queue:
        namespace = queue.init(clock="manual")
        queue.upsert("tick", EVENT, every=100)
        for misfire in ("fire_once", "skip", "catch_up"):
            queue.upsert(f"cron {misfire}", EVENT, cron="* * * * * *", misfire=misfire)
        first = queue.upsert("once", EVENT, delay=50)
        clock.advance(1000)
        assert fire_due(queue) == 5
        clock.set(start - 5000)  # an hour of winter, a failover, an operator
        assert fire_due(queue) == 0
        second = queue.upsert("once", EVENT, delay=50)
        assert second.version > first.version  # versions only grow, whatever the clock does
        assert queue.upsert("other", EVENT, delay=0).version > second.version
        assert fire_due(queue) == 1
        clock.set(start + 1099)
        assert fire_due(queue) == 1
        clock.set(start + 1100)
        assert fire_due(queue) == 1
        clock.set(start + 2000)
        assert fire_due(queue) == 4
        entries: Any = redis_client.xrange(namespace.tags[0] + b":s:events")
        told = [(fields[b"key"], int(fields[b"at"]) - start, int(fields[b"missed"])) for _, fields in entries]
        assert sorted(told) == [
            *[
                (b"cron " + misfire, at, 0)
                for misfire in (b"catch_up", b"fire_once", b"skip")
                for at in (1000, 2000)
            ],
            (b"once", -4950, 0),
            (b"once", 50, 0),
            (b"other", -5000, 0),
            (b"tick", 100, 9),
            (b"tick", 1100, 0),
            (b"tick", 1200, 8),
        ]
        assert len({fields[b"id"] for _, fields in entries}) == len(entries)
        check_structure(dump(redis_client), namespace.tags)


SPOILT = {
    "no json": b"{",
    "no text": b"\xff\xfe\x00",
    "an unknown zone": b'{"cron":"* * * * *","tz":"UTC+3"}',
    "a folder for a zone": b'{"cron":"* * * * *","tz":"America"}',
    "it never fires": b'{"cron":"0 0 30 2 *"}',
    "no expression": b'{"cron":"60 * * * *"}',
    "a word of the future": b'{"cron":"* * * * *","moon":"full"}',
    "numbers for texts": b'{"cron":[1,2],"tz":3}',
    "texts for numbers": b'{"every":"60000","jitter":"1"}',
    "deep": b"[" * 20_000,
    "nothing": b"",
}


def test_calendars_that_were_spoilt_by_hand(redis_client: redis.Redis, redis_url: str) -> None:
    """Each is set aside and says why, none is asked in a hot loop, the others go on; mended, it has lost nothing."""
    clock = ManualClock("2026-03-01T00:00:00Z")
    with TimerQueue.connect(redis_url, clock=clock) as queue:
        namespace = queue.init(clock="manual")
        tag = namespace.tags[0]
        queue.upsert("good", EVENT, cron="* * * * *")
        for name in SPOILT:
            queue.upsert(name, EVENT, cron="* * * * *")
        fire_until(queue, clock, clock.now_ms + 60_000)
        records = {name: keys.record(tag, keys.identity(b"default", name.encode(), b"")) for name in SPOILT}
        sound = {name: redis_client.hget(record, "x") for name, record in records.items()}
        for name, record in records.items():
            redis_client.hset(record, "x", SPOILT[name])
        redis_client.config_resetstat()
        fire_until(queue, clock, clock.now_ms + 30 * 60_000)
        stats: Any = redis_client.info("commandstats")
        assert stats["cmdstat_evalsha"]["calls"] < 30 * 60  # half an hour of back-off, not of asking

        events: Any = redis_client.xrange(tag + b":s:events")
        told = Counter(fields[b"key"].decode() for _, fields in events)
        # what followed was known before: it came, and with it the question that has no answer
        assert told == {"good": 31, **dict.fromkeys(SPOILT, 2)}
        assert queue.stats().held == len(SPOILT)
        for name, record in records.items():
            assert redis_client.hget(record, "s")[:1] == b"h"
            assert redis_client.hget(record, "e"), name
            redis_client.hset(record, "x", sound[name])
        clock.advance("1m")
        fire_due(queue)
        events = redis_client.xrange(tag + b":s:events")
        last = {fields[b"key"].decode(): fields for _, fields in events}
        for name in SPOILT:
            stored = queue.get(name)
            assert (stored.state, stored.held) == (State.ARMED, None)
            assert (stored.fired_total, stored.missed_total) == (3, 29)  # one late event for all
            assert last[name][b"missed"] == b"29"
        assert queue.stats().held == 0
        check_structure(dump(redis_client), namespace.tags)


def test_a_thousand_calendars_that_nobody_fired_for_a_day(redis_client: redis.Redis, redis_url: str) -> None:
    clock = ManualClock("2026-03-28T12:00:00Z")  # the night in which the clocks go forward
    with TimerQueue.connect(redis_url, clock=clock) as queue:
        namespace = queue.init(clock="manual", partitions=3)
        zones = ["Europe/Paris", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]
        queue.upsert_many(
            [
                Upsert(f"k{n}", EVENT, cron=f"{n % 60} */{1 + n % 7} * * *", timezone=zones[n % 4])
                for n in range(1000)
            ]
        )
        firsts = {stored.key: stored.at_ms for stored in queue.list()}
        clock.advance("1d")
        assert fire_due(queue) == 1000
        for stored in queue.list():
            slots = calendar(stored)
            assert [fire.at_ms for fire in stored.fires] == [firsts[stored.key]]
            assert stored.missed_total == slots.count(firsts[stored.key], clock.now_ms)
            assert stored.at_ms == slots.next_ms(clock.now_ms)
        assert fire_due(queue) == 0
        check_structure(dump(redis_client), namespace.tags)


@pytest.mark.one_server
def test_memory_that_runs_out_and_comes_back(make_redis: MakeRedis) -> None:
    """A producer is refused before anything is written; what is armed waits; all of it fires in the end."""
    server = make_redis()
    with (
        redis.Redis.from_url(server.url) as client,
        TimerQueue.connect(server.url) as queue,
        Events(server.url, queue.init()) as events,
    ):
        with Dispatcher(server.url):
            used = int(client.info("memory")["used_memory"])
            client.config_set("maxmemory", used + 3_000_000)
            armed: list[str] = []
            for n in range(200):
                wanted = [Upsert(f"k{n}:{i}", Event("t", b"x" * 500), delay=300) for i in range(100)]
                try:
                    queue.upsert_many(wanted)
                except QueueUnavailable:
                    break
                armed += [upsert.key for upsert in wanted]
            assert 0 < len(armed) < 20_000
            # what fires between the two is counted twice, what has fired is told a moment later
            wait_for(lambda: queue.count() + len(events.all) >= len(armed), "all are there")
            client.config_set("maxmemory", 0)
            wait_for(lambda: queue.count() == 0, "all have fired", 60)
            events.wait(lambda seen: {event.key for event in seen} >= set(armed))
        events.check()
        assert {event.key for event in events.all} >= set(armed)  # and what a refused call had armed before
        check_structure(dump(client), queue.init().tags)


@pytest.mark.one_server
def test_an_async_queue_outlives_outages_and_tasks_that_are_cancelled(proxy: Proxy) -> None:
    async def go() -> None:
        async with AsyncTimerQueue.connect(proxy.url) as queue:
            await queue.init()

            async def arm(prefix: str, count: int = 30) -> list[Any]:
                calls = [queue.upsert(f"{prefix}{n}", EVENT, delay="1h") for n in range(count)]
                return list(await asyncio.gather(*calls, return_exceptions=True))

            proxy.refuse()
            assert {type(result) for result in await arm("k")} == {QueueUnavailable}
            proxy.accept()
            assert {result.outcome for result in await arm("k")} == {Outcome.CREATED}

            held = proxy.hold_reply("EVALSHA")
            tasks = [asyncio.create_task(queue.upsert(f"c{n}", EVENT, delay="1h")) for n in range(30)]
            await asyncio.to_thread(held.wait)
            for _ in range(5):
                await asyncio.sleep(0)
            for task in tasks[::2]:  # they asked together; half of them do not wait for the answer
                task.cancel()
            held.release()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(result) for result in results[::2]] == [asyncio.CancelledError] * 15
            assert [result.outcome for result in results[1::2] if isinstance(result, AsyncHandle)] == [
                Outcome.CREATED
            ] * 15

            verbs: list[Callable[[], Any]] = [
                lambda: queue.upsert_many([Upsert(f"m{n}", EVENT, delay="1h") for n in range(1000)]),
                queue.count,
                queue.stats,
                lambda: queue.cancel_prefix("m"),
            ]
            for verb in verbs:
                held = proxy.hold_reply("EVALSHA")
                task = asyncio.create_task(verb())
                await asyncio.to_thread(held.wait)
                # it may still be writing, and until Python 3.12 wait_for may miss a cancellation
                for _ in range(5):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                held.release()
                # nobody is told what was meant for another
                assert (await queue.upsert("x", EVENT, delay="1h")).outcome is Outcome.CREATED
                assert (await queue.cancel("x")).outcome is Outcome.CANCELLED

    asyncio.run(go())
