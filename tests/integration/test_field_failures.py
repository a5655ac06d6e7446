"""What went wrong in other timer queues, tried here; each test carries the number of its case.

Durations are shorter than in the reports where the fault stays the same. The cases of single verbs are in
test_verbs.py, those of the command line in test_cli_*.py.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from tests.support.events import Events, Stopwatch, server_ms
from tests.support.proxy import Proxy, wait_for
from tests.support.worker import Worker
from timerq import Event, Outcome, TimerQueue, Upsert
from timerq.dispatcher import Dispatcher
from timerq.embedded import EmbeddedRedis
from timerq.lua import SCRIPTS
from timerq.tail import Published

MakeRedis = Callable[..., EmbeddedRedis]
EVENT = Event("t")


def slots(events: list[Published], every_ms: int) -> list[int]:
    """The instants that events of one interval stand for, the missed ones included."""
    return [event.at_ms + i * every_ms for event in events for i in range(event.missed + 1)]


def no_slot_twice(events: list[Published]) -> None:
    assert [pair for pair, n in Counter((event.key, event.at_ms) for event in events).items() if n > 1] == []


# ------------------------------------------------------------------------------------------------ identity


@pytest.mark.one_server
def test_b35_the_same_upsert_again(redis_url: str, queue: TimerQueue, events: Events) -> None:
    queue.upsert("k", EVENT, every=100)
    with Dispatcher(redis_url):
        events.wait(5)
        assert queue.upsert("k", EVENT, every=100).outcome is Outcome.UNCHANGED
        assert [schedule.key for schedule in queue.list()] == ["k"]
        found = events.wait(15)
    events.check()
    told = slots(found, 100)
    assert told == [told[0] + i * 100 for i in range(len(told))]


@pytest.mark.one_server
def test_b36_another_interval(redis_url: str, queue: TimerQueue, events: Events) -> None:
    queue.upsert("k", EVENT, every=100)
    with Dispatcher(redis_url):
        events.wait(3)
        handle = queue.upsert("k", EVENT, every=500)
        assert handle.outcome is Outcome.REPLACED
        (stored,) = queue.list()
        assert (stored.timing.every_ms, stored.version) == (500, handle.version)
        found = events.wait(lambda seen: sum(event.version == handle.version for event in seen) >= 4)
    events.check()
    after = [event for event in found if event.version == handle.version]
    assert found[-len(after) :] == after  # nothing of the old one came between
    assert slots(after, 500) == [handle.at_ms + i * 500 for i in range(len(slots(after, 500)))]


@pytest.mark.one_server
def test_b39_an_interval_that_is_upserted_again_and_again(
    redis_url: str, queue: TimerQueue, events: Events
) -> None:
    with Dispatcher(redis_url):
        first = queue.upsert("k", EVENT, every=500)
        while len(events.all) < 5:
            assert queue.upsert("k", EVENT, every=500).version == first.version
            with contextlib.suppress(TimeoutError):
                events.wait(len(events.all) + 1, timeout_s=0.2)
    events.check()
    told = slots(events.all, 500)
    assert told == [first.at_ms + i * 500 for i in range(len(told))]


@pytest.mark.one_server
def test_b39_a_worker_that_is_restarted_again_and_again(
    redis_url: str, queue: TimerQueue, events: Events
) -> None:
    worker = Worker(redis_url)
    first = queue.upsert("k", EVENT, every=500)
    while len(events.all) < 5:
        with worker.start():
            with contextlib.suppress(TimeoutError):
                events.wait(len(events.all) + 1, timeout_s=random.uniform(0, 0.6))
            assert worker.terminate() == 0
    events.check()
    told = slots(events.all, 500)
    assert told == [first.at_ms + i * 500 for i in range(len(told))]
    assert not any("Traceback" in line for line in worker.lines)


# ------------------------------------------------------------------------------------------------ cancel, replace


def test_b42_a_chain_of_one_shots(redis_url: str, queue: TimerQueue, events: Events) -> None:
    with Dispatcher(redis_url), Dispatcher(redis_url):
        queue.upsert("k", Event("t", 1), delay=10)
        for n in range(1, 101):
            *_, last = events.wait(n)
            assert last.payload == n
            if n < 100:
                queue.upsert("k", Event("t", n + 1), delay=10)
        assert queue.get("k") is None
    events.check()
    assert [event.payload for event in events.all] == list(range(1, 101))
    assert queue.count() == 0


def test_b43_a_cancel_that_meets_the_firing(
    redis_url: str, queue: TimerQueue, events: Events, redis_client: redis.Redis
) -> None:
    luck = random.Random(43)
    said: dict[str, bool] = {}
    with Dispatcher(redis_url), Dispatcher(redis_url), ThreadPoolExecutor(4) as threads:
        while (
            len(set(said.values())) < 2
        ):  # on a machine that stands still meanwhile, they may not meet at once
            assert len(said) < 20_000, "either none was cancelled, or none fired"
            keys = [f"k{len(said) + n}" for n in range(1000)]
            queue.upsert_many([Upsert(key, EVENT, delay=100 + luck.randrange(200)) for key in keys])
            start = time.monotonic() + 0.1
            plan = sorted((start + luck.uniform(0, 0.2), key) for key in keys)

            def cancel(own: list[tuple[float, str]]) -> dict[str, bool]:
                said = {}
                for at, key in own:
                    time.sleep(max(0, at - time.monotonic()))
                    said[key] = bool(queue.cancel(key))
                return said

            for part in threads.map(cancel, [plan[i::4] for i in range(4)]):
                said |= part
        events.wait(sum(not cancelled for cancelled in said.values()))
        wait_for(lambda: queue.count() == 0, "none is left")
    events.check()
    assert {event.key for event in events.all} == {key for key, cancelled in said.items() if not cancelled}


# ------------------------------------------------------------------------------------------------ crashes


@pytest.mark.one_server
def test_b44_a_worker_that_is_killed_again_and_again(
    redis_url: str, queue: TimerQueue, events: Events
) -> None:
    queue.upsert_many([Upsert(f"k{n}", EVENT, every=1000, initial_delay=5 * n) for n in range(200)])
    worker = Worker(redis_url)
    for _ in range(12):
        worker.start()
        with contextlib.suppress(TimeoutError):
            events.wait(len(events.all) + random.randrange(60), timeout_s=0.3)
        worker.kill()
    assert queue.count() == 200
    with worker.start():
        seen = len(events.all)
        events.wait(lambda all: len({event.key for event in all[seen:]}) == 200)
    events.check()
    no_slot_twice(events.all)
    for n in range(200):
        told = slots(events.of(f"k{n}"), 1000)
        assert told == [told[0] + i * 1000 for i in range(len(told))]


@pytest.mark.one_server
def test_b46_a_stream_key_of_another_type(
    redis_url: str, queue: TimerQueue, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    namespace = queue.init()
    stream = namespace.tags[0] + b":s:events"
    redis_client.set(stream, "x")
    with Dispatcher(redis_url) as dispatcher:
        queue.upsert("k", EVENT, delay=50)
        wait_for(lambda: queue.stats().held == 1, "it is held")
        with Stopwatch() as watch:
            time.sleep(1.5)
        stored = queue.get("k")
        assert stored is not None
        assert (stored.state, "WRONGTYPE" in (stored.held or "")) == ("held", True)
        assert watch.cpu_s < 0.3 * watch.seconds
        told = [record for record in caplog.records if "could not be fired" in record.getMessage()]
        assert 1 <= len(told) <= 3
        redis_client.delete(stream)
        with Events(redis_url, namespace) as events:
            events.wait(1)
            events.check()
        assert not dispatcher.health.failing
    assert queue.count() == 0


# ------------------------------------------------------------------------------------------------ many


@pytest.mark.one_server
def test_b51_three_workers_of_one_host(redis_url: str, queue: TimerQueue, events: Events) -> None:
    with Worker(redis_url), Worker(redis_url), Worker(redis_url):
        queue.upsert_many([Upsert(f"k{n}", EVENT, every=200) for n in range(20)])
        events.wait(20 * 10)
    same = [Dispatcher(redis_url, name="same") for _ in range(3)]
    with contextlib.ExitStack() as running:
        for dispatcher in same:
            running.enter_context(dispatcher)
        events.wait(20 * 20)
    events.check()
    no_slot_twice(events.all)
    for n in range(20):
        told = slots(events.of(f"k{n}"), 200)
        assert told == [told[0] + i * 200 for i in range(len(told))]


# ------------------------------------------------------------------------------------------------ Redis away


@pytest.mark.one_server
def test_b53_redis_is_stopped_and_started(make_redis: MakeRedis, tmp_path: Path) -> None:
    server = make_redis(tmp_path, appendfsync="always")
    with (
        TimerQueue.connect(server.url) as queue,
        Dispatcher(server.url) as dispatcher,
        Events(server.url, queue.init()) as events,
    ):
        queue.upsert("k", EVENT, every=200)
        events.wait(3)
        server.stop()
        wait_for(lambda: bool(dispatcher.health.failing), "it says that it is unwell")
        time.sleep(3)
        assert dispatcher.health.failing
        before = len(events.all)
        server.start()
        events.wait(before + 5)
        wait_for(lambda: not dispatcher.health.failing, "it is well")
        events.check()
        told = slots(events.all, 200)
        assert told == [told[0] + i * 200 for i in range(len(told))]


@pytest.mark.one_server
def test_b54_redis_away_costs_nothing_and_is_said_once(proxy: Proxy, redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue, Worker(proxy.url) as worker:
        namespace = queue.init()
        queue.upsert("k", EVENT, delay=1000)
        before = len(worker.lines)
        proxy.refuse()
        worker.wait_for_line("cannot fire")
        spent = worker.cpu_s
        time.sleep(4)
        assert worker.cpu_s - spent < 0.8  # 20 % of a core
        proxy.accept()
        worker.wait_for_line("firing again")
        with Events(redis_url, namespace) as events:
            events.wait(1)
            events.check()
        assert worker.terminate() == 0
        assert len(worker.lines[before:]) == 3  # it cannot, it can again, it has stopped


@pytest.mark.one_server
def test_b54_connections_that_the_server_closes_for_idling(
    redis_url: str, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    redis_client.config_set("timeout", 2)
    try:
        dispatchers = [Dispatcher(redis_url) for _ in range(3)]  # the third looks every five seconds only
        with TimerQueue.connect(redis_url) as queue, contextlib.ExitStack() as running:
            for dispatcher in dispatchers:
                running.enter_context(dispatcher)
            queue.init()
            queue.upsert("k", EVENT, delay=6000)
            time.sleep(4)  # the producer's connection is closed too, and its next call does not see it
            queue.upsert("l", EVENT, delay=0)
            with Events(redis_url, queue.namespace) as events:
                found = events.wait(2)
                events.check()
            assert all(event.fired_ms - event.at_ms < 3000 for event in found)
        assert not any("cannot fire" in record.getMessage() for record in caplog.records)
    finally:
        redis_client.config_set("timeout", 0)


# ------------------------------------------------------------------------------------------------ waking


@pytest.mark.one_server
@pytest.mark.usefixtures("only_signals")
def test_b60_an_earlier_one_wakes_it(redis_url: str, queue: TimerQueue, events: Events) -> None:
    with Dispatcher(redis_url) as dispatcher:
        watch = dispatcher._loops[0]._watch
        queue.upsert("a", EVENT, delay="1h")
        wait_for(lambda: watch.heard_at_us > 0, "it has heard of it, and sleeps")
        queue.upsert("b", EVENT, delay=1500)
        assert queue.upsert("a", EVENT, delay=200).outcome is Outcome.REPLACED
        found = events.wait(2)
    assert [event.key for event in found] == ["a", "b"]
    events.check()


# ------------------------------------------------------------------------------------------------ lost replies


def test_b62_an_answer_that_is_swallowed(
    redis_url: str, queue: TimerQueue, events: Events, proxy: Proxy, redis_client: redis.Redis
) -> None:
    for script in SCRIPTS.values():
        redis_client.script_load(script.text)  # or the answer would be that it is not there
    with TimerQueue.connect(proxy.url) as other:
        other.init()
        fault = proxy.swallow_reply("EVALSHA")
        handles = other.upsert_many([Upsert(f"k{n}", EVENT, at=1) for n in range(100)])
        assert {handle.outcome for handle in handles if not isinstance(handle, Exception)} == {
            Outcome.CREATED
        }
        assert (fault.struck, queue.count()) == (1, 100)
        fault = proxy.swallow_reply("EVALSHA")
        assert other.upsert("kept", EVENT, delay="1h").outcome is Outcome.CREATED
        assert (fault.struck, queue.count("kept")) == (1, 1)
        fault = proxy.swallow_reply("EVALSHA")
        assert other.cancel("kept").outcome is Outcome.CANCELLED
        assert (fault.struck, queue.count("kept")) == (1, 0)
    fire = SCRIPTS["fire"].sha.encode()
    fired_100 = proxy.swallow_reply(lambda words: words[:2] == [b"EVALSHA", fire])
    with Dispatcher(proxy.url) as dispatcher:
        fired_100.wait()
        events.wait(100)
        queue.upsert("after", EVENT, delay=0)
        events.wait(101)
        assert dispatcher.fired_total <= 1  # it was not told of the hundred
    events.check()
    assert len({event.key for event in events.all}) == 101


# ------------------------------------------------------------------------------------------------ missed


@pytest.mark.one_server
def test_b66_a_worker_that_was_away(redis_url: str, queue: TimerQueue, events: Events) -> None:
    with Dispatcher(redis_url) as dispatcher:
        queue.upsert("k", EVENT, every=100)
        events.wait(3)
    before = len(events.wait(dispatcher.fired_total))
    time.sleep(1.2)
    assert len(events.all) == before
    with Dispatcher(redis_url):
        found = events.wait(before + 8)
    events.check()
    late = found[before]
    assert late.at_ms == found[before - 1].at_ms + 100 * (found[before - 1].missed + 1)  # its original due
    assert late.missed >= 10
    told = slots(found, 100)
    assert told == [told[0] + i * 100 for i in range(len(told))]


@pytest.mark.usefixtures("only_signals")
def test_b68_one_shots_of_the_past(
    redis_url: str, queue: TimerQueue, events: Events, redis_client: redis.Redis
) -> None:
    now = server_ms(redis_client)
    with Dispatcher(redis_url):
        queue.upsert("ten seconds", EVENT, at=now - 10_000)
        queue.upsert("a day", EVENT, at=now - 86_400_000)
        found = events.wait(2)
        assert list(queue.list()) == []
    events.check()
    assert {event.key: event.at_ms for event in found} == {
        "ten seconds": now - 10_000,
        "a day": now - 86_400_000,
    }


@pytest.mark.one_server
def test_b70_listing_a_backlog(
    redis_url: str, queue: TimerQueue, events: Events, redis_client: redis.Redis
) -> None:
    count = 200_000
    queue.upsert_many(Upsert(f"k:{n:06}", EVENT, delay="1h") for n in range(count))
    pings: list[float] = []
    stopping = threading.Event()

    def ping() -> None:
        with redis.Redis.from_url(redis_url) as client:
            while not stopping.wait(0.01):
                start = time.perf_counter()
                client.ping()
                pings.append(time.perf_counter() - start)

    pinger = threading.Thread(target=ping)
    with Dispatcher(redis_url):
        pinger.start()
        try:
            queue.upsert_many([Upsert(f"due:{n}", EVENT, delay=n * 20) for n in range(50)])
            for listing in (queue.list("k"), queue.list("k:")):
                assert [schedule.key for schedule in listing] == [f"k:{n:06}" for n in range(count)]
            found = events.wait(50)
        finally:
            stopping.set()
            pinger.join(10)
    assert sorted(event.fired_ms - event.at_ms for event in found)[25] < 1000
    slow = redis_client.info("commandstats")["cmdstat_ping"]  # by the server: this process is busy itself
    assert slow["calls"] >= len(pings) > 50
    assert sorted(pings)[len(pings) // 2] < 0.5


# ------------------------------------------------------------------------------------------------ clocks

ANOTHER_CLOCK = """
import sys, time
real, real_ns = time.time, time.time_ns
time.time = lambda: real() + OFFSET
time.time_ns = lambda: real_ns() + OFFSET * 10**9
import workers.dispatch
sys.exit(workers.dispatch.main())
"""


@pytest.mark.one_server
@pytest.mark.parametrize("offset_s", [60, -60])
def test_b71_a_worker_whose_clock_is_wrong(
    redis_url: str, queue: TimerQueue, events: Events, redis_client: redis.Redis, offset_s: int
) -> None:
    with Worker(redis_url, program=ANOTHER_CLOCK.replace("OFFSET", str(offset_s))):
        before = server_ms(redis_client)
        handle = queue.upsert("k", EVENT, delay=500)
        assert handle.at_ms is not None
        (event,) = events.wait(1)
    assert before + 500 <= handle.at_ms <= event.fired_ms <= handle.at_ms + 20_000


@pytest.mark.one_server
def test_b72_a_late_one_does_not_move_the_grid(
    redis_url: str, queue: TimerQueue, events: Events, redis_client: redis.Redis
) -> None:
    start = server_ms(redis_client) + 200
    queue.upsert("k", EVENT, every=200, start=start)
    with Dispatcher(redis_url) as dispatcher:
        events.wait(4)
    before = len(events.wait(dispatcher.fired_total))
    time.sleep(0.73)
    with Dispatcher(redis_url):
        found = events.wait(before + 10)
    events.check()
    assert all((event.at_ms - start) % 200 == 0 for event in found)
    late, then = found[before : before + 2]
    assert late.missed >= 2
    assert then.at_ms == late.at_ms + 200 * (late.missed + 1)
    assert then.at_ms > late.fired_ms
    assert slots(found, 200) == [start + i * 200 for i in range(len(slots(found, 200)))]


# ------------------------------------------------------------------------------------------------ orphans


def test_b86_a_record_that_was_deleted_by_hand(
    redis_url: str, queue: TimerQueue, events: Events, redis_client: redis.Redis
) -> None:
    namespace = queue.init()
    tag = namespace.tags[0]
    for name in ("a", "c"):
        queue.upsert(name, EVENT, delay=200, owner="o")
    queue.upsert("b", EVENT, delay=200)
    redis_client.delete(tag + b":sch:default\0a\0o")
    assert {schedule.key for schedule in queue.list()} == {"b", "c"}
    with Dispatcher(redis_url) as dispatcher:
        events.wait(2)
        wait_for(lambda: queue.count() == 0, "the orphan has gone")
        queue.upsert("d", EVENT, delay=0)
        events.wait(3)
        assert not dispatcher.health.failing
    events.check()
    assert list(queue.list()) == []
    assert queue.stats().orphans == 1
    assert not redis_client.exists(tag + b":own:default\0o")
