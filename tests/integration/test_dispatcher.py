"""The dispatcher at work: in time, quiet, covered for by others, and leaving in order."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
import redis

from tests.support.events import Events, Stopwatch, server_ms
from tests.support.proxy import Proxy, wait_for
from tests.support.worker import ROOT, Worker
from timerq import Event, NamespaceMismatch, TimerQueue, Upsert
from timerq.commands.dispatch import alive_dispatchers
from timerq.dispatcher import Dispatcher, decide, partition
from timerq.dispatcher.decide import adapt_batch, rank
from timerq.embedded import EmbeddedRedis
from timerq.keys import identity, record
from timerq.link import Link
from timerq.lua import SCRIPTS
from timerq.timing import Plan

MakeRedis = Callable[..., EmbeddedRedis]
EVENT = Event("t")
FIRE = SCRIPTS["fire"].sha.encode()


def by_rank(url: str, queue: TimerQueue, workers: list[Worker]) -> list[Worker]:
    """The workers in the order in which they fire partition 0, once all are known."""
    link = Link(url, lambda: None)

    def alive() -> list[str]:
        assert queue.namespace is not None
        (names,) = link.send([alive_dispatchers(queue.namespace)])
        return list(names)

    try:
        wait_for(lambda: len(alive()) == len(workers), "every dispatcher is known")
        names = alive()
    finally:
        link.close()
    named = {next(name for name in names if f"-{worker.pid}-" in name): worker for worker in workers}
    return [named[name] for name in sorted(names, key=lambda name: rank(names, name, 0))]


# ------------------------------------------------------------------------------------------------ in time


@pytest.mark.usefixtures("only_signals")
def test_every_kind_fires_once_and_never_early(redis_url: str, queue: TimerQueue, events: Events) -> None:
    with Dispatcher(redis_url) as dispatcher:
        queue.upsert_many([Upsert(f"once-{n}", EVENT, delay=n * 10) for n in range(100)])
        queue.upsert("tick", EVENT, every=50, limit=10)
        queue.upsert("owned", EVENT, owner="o", delay=300)
        queue.upsert("now", EVENT, delay=0)
        found = events.wait(112)
    assert dispatcher.fired_total == 112
    events.check()
    assert sorted(event.fired_ms - event.at_ms for event in found)[56] < 1000  # half of them at once
    assert [event.n for event in events.of("tick")] == list(range(1, 11))
    assert queue.count() == 0


@pytest.mark.one_server
def test_an_idle_one_is_quiet(redis_url: str, queue: TimerQueue, proxy: Proxy) -> None:
    queue.upsert_many([Upsert(f"k{n}", EVENT, delay="1h") for n in range(1000)])
    with Dispatcher(proxy.url):
        wait_for(lambda: any(b"XREAD" in command[0] for command in proxy.seen), "it listens")
        time.sleep(0.5)  # the rush of the start
        proxy.seen.clear()
        with Stopwatch() as watch:
            time.sleep(4)
        calls = len(proxy.seen)
    assert calls <= 4 * watch.seconds  # 2 round trips a second for the partition that it leads, and 2 more
    assert watch.cpu_s < 0.2 * watch.seconds


def test_a_backlog_is_drained_at_full_batches(
    redis_url: str, queue: TimerQueue, proxy: Proxy, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.upsert_many([Upsert(f"k{n}", EVENT, at=1) for n in range(5000)])
    proxy.delay_ms = 5  # a server that is far away, not one that is busy
    took: list[int] = []

    def noted(batch: int, taken: int, took_us: int, largest: int) -> int:
        took.append(took_us)
        return adapt_batch(batch, taken, 0, largest)  # this machine may be busy, though

    monkeypatch.setattr(partition, "adapt_batch", noted)
    with Dispatcher(proxy.url, namespace="timerq"):
        events.wait(5000, timeout_s=60)
        fires = [command for command in proxy.seen if command[:2] == [b"EVALSHA", FIRE]]
    events.check()
    assert 25 <= len(fires) < 100  # 25 full ones, and some to find out
    assert min(took) < 10_000  # the way there and back is left out


def test_one_tenants_million_does_not_starve_the_others(redis_url: str, redis_client: redis.Redis) -> None:
    with (
        TimerQueue.connect(redis_url, tenant="big") as big,
        TimerQueue.connect(redis_url, tenant="small") as small,
    ):
        big.upsert_many([Upsert(f"k{n}", EVENT, at=1) for n in range(20_000)])
        small.upsert("k", EVENT, at=2)
        with Events(redis_url, small.namespace) as events, Dispatcher(redis_url):
            found = events.wait(lambda seen: any(event.tenant == "small" for event in seen), key="k")
            place = [event.tenant for event in events.all].index("small")
            events.wait(20_001, timeout_s=60)
            events.check()
    assert found
    assert place <= 400  # within the first calls, not behind the big one's


def test_payloads_at_their_limit_go_out_in_bounded_calls(
    redis_url: str, queue: TimerQueue, events: Events
) -> None:
    big = Event("big", b"x" * 65_000)
    results = queue.upsert_many([Upsert(f"k{n}", big, at=1) for n in range(200)])
    assert all(not isinstance(result, Exception) for result in results)
    with Dispatcher(redis_url):
        found = events.wait(200)
    events.check()
    assert {len(event.payload) for event in found} == {65_000}


@pytest.mark.one_server
def test_a_signal_that_overtakes_a_reply_counts(
    redis_url: str, queue: TimerQueue, proxy: Proxy, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Dispatcher(proxy.url) as dispatcher:
        queue.upsert("first", EVENT, delay=0)
        events.wait(1)
        held = proxy.hold_reply(lambda command: command[:2] == [b"EVALSHA", FIRE])
        held.wait()  # its regular look
        monkeypatch.setattr(
            decide, "NEAR_LOOK_US", 60_000_000
        )  # the next one comes when nobody waits any more
        first_us = dispatcher._loops[0]._watch.heard_at_us
        queue.upsert("next", EVENT, delay=100)
        wait_for(lambda: dispatcher._loops[0]._watch.heard_at_us > first_us, "the signal is heard")
        held.release()
        events.wait(1, key="next")


# ------------------------------------------------------------------------------------------------ many


@pytest.mark.one_server
def test_another_covers_for_one_that_is_frozen(redis_url: str, queue: TimerQueue, events: Events) -> None:
    with Worker(redis_url) as one, Worker(redis_url) as other:
        first, second = by_rank(redis_url, queue, [one, other])
        first.freeze()
        queue.upsert("k", EVENT, delay=300)
        queue.upsert("tick", EVENT, every=200)
        events.wait(5, key="tick")
        (event,) = events.wait(1, key="k")
        assert event.fired_ms - event.at_ms < 5000  # 100 ms, and whatever this machine adds
        first.thaw()
        events.wait(10, key="tick")
        second.freeze()
        count = len(events.of("tick"))
        events.wait(count + 5, key="tick")
        second.thaw()
        queue.cancel("tick")
        assert (first.terminate(), second.terminate()) == (0, 0)
    events.check()
    assert [event.n for event in events.of("tick")] == list(range(1, len(events.of("tick")) + 1))


@pytest.mark.one_server
def test_one_that_is_killed_is_missed_by_nobody(redis_url: str, queue: TimerQueue, events: Events) -> None:
    with Worker(redis_url) as one, Worker(redis_url) as other:
        first, _ = by_rank(redis_url, queue, [one, other])
        queue.upsert_many([Upsert(f"k{n}", EVENT, delay=n * 2) for n in range(500)])
        events.wait(100)
        first.kill()
        found = events.wait(500)
        assert max(event.fired_ms - event.at_ms for event in found) < 5000
    events.check()


@pytest.mark.one_server
def test_five_in_one_process_share_the_work(redis_url: str, queue: TimerQueue, events: Events) -> None:
    dispatchers = [Dispatcher(redis_url, name="same") for _ in range(5)]
    for dispatcher in dispatchers:
        dispatcher.start()
    try:
        assert len({dispatcher.name for dispatcher in dispatchers}) == 5
        wait_for(lambda: len(queue.stats().dispatchers) == 5, "they know each other")
        queue.upsert_many([Upsert(f"k{n}", EVENT, delay=n) for n in range(1000)])
        events.wait(1000)
        wait_for(
            lambda: sum(dispatcher.fired_total for dispatcher in dispatchers) == 1000, "each has its answer"
        )
    finally:
        for dispatcher in dispatchers:
            dispatcher.stop()
    events.check()
    assert queue.stats().dispatchers == []


# ------------------------------------------------------------------------------------------------ leaving


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("timerq-")}


def test_stop_leaves_no_thread_and_no_connection(
    redis_url: str, queue: TimerQueue, redis_client: redis.Redis
) -> None:
    def connected() -> int:
        return len(redis_client.client_list())

    queue.stats()
    before, others = connected(), threads()
    for _ in range(3):
        with Dispatcher(redis_url):
            queue.stats()
        assert threads() == others
    gc.collect()
    wait_for(lambda: connected() <= before, "its connections are closed")


@pytest.mark.one_server
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_the_middle_of_a_backlog(
    redis_url: str, queue: TimerQueue, proxy: Proxy, events: Events, number: int
) -> None:
    queue.upsert_many([Upsert(f"k{n}", EVENT, at=1) for n in range(30_000)])
    proxy.delay_ms = 20  # or it would be done with all where this process stands still for a second
    with Worker(proxy.url) as worker:
        events.wait(1)
        worker.process.send_signal(number)
        assert worker._end() == 0
        assert any("has stopped" in line for line in worker.lines)
    fired = len(events.all)
    assert queue.count() > 0  # it has not drained it all first
    assert not any("cannot fire" in line or "Traceback" in line for line in worker.lines), fired
    assert queue.stats().dispatchers == []
    with Dispatcher(redis_url):
        events.wait(30_000, timeout_s=120)
    events.check()


@pytest.mark.one_server
@pytest.mark.parametrize("how", ["refused", "silent", "from the start"])
def test_a_signal_ends_it_while_redis_is_away(proxy: Proxy, how: str) -> None:
    if how == "from the start":
        proxy.refuse()
    worker = Worker(f"{proxy.url}?socket_timeout=1")
    try:
        worker.start(wait=how != "from the start")
        if how == "refused":
            proxy.refuse()
        elif how == "silent":
            proxy.cut()
        if how != "silent":
            worker.wait_for_line("cannot fire")
        with Stopwatch() as watch:
            assert worker.terminate() == 0
        assert watch.seconds < 10  # at most a call's time-out for what is in hand
    finally:
        if worker.alive:
            worker.kill()


# ------------------------------------------------------------------------------------------------ starting


@pytest.mark.one_server
def test_it_starts_before_redis_does(proxy: Proxy, queue: TimerQueue, events: Events) -> None:
    queue.upsert("k", EVENT, at=1)
    proxy.refuse()
    worker = Worker(proxy.url)
    try:
        worker.start(wait=False)
        worker.wait_for_line("cannot fire")
        proxy.accept()
        worker.wait_for_line("fires namespace")
        events.wait(1)
        assert worker.terminate() == 0
    finally:
        if worker.alive:
            worker.kill()
    assert sum("cannot fire" in line for line in worker.lines) == 1
    events.check()


def test_a_manual_clock_is_not_for_a_dispatcher(redis_url: str) -> None:
    with TimerQueue.connect(redis_url, clock=lambda: 0) as queue:
        queue.init(clock="manual")
    with pytest.raises(NamespaceMismatch, match="manual"):
        Dispatcher(redis_url).start()
    result = subprocess.run(
        [sys.executable, "-m", "workers.dispatch"],
        cwd=ROOT,
        env=os.environ | {"TIMERQ_REDIS_URL": redis_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    assert "manual" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.one_server
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "noeviction"])
def test_a_server_that_evicts_is_reported(
    redis_url: str, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    redis_client.config_set("maxmemory-policy", policy)
    try:
        with caplog.at_level(logging.WARNING), Dispatcher(redis_url):
            pass
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
    warned = [record for record in caplog.records if "evicts" in record.getMessage()]
    assert len(warned) == (policy != "noeviction")
    if warned:
        assert policy in warned[0].getMessage()
        assert "noeviction" in warned[0].getMessage()


# ------------------------------------------------------------------------------------------------ calendars


def arm_grid(queue: TimerQueue, key: str, start_ms: int) -> None:
    """A schedule of every 100 ms whose instants the dispatcher is asked for."""
    queue.upsert(key, EVENT, every=100, start=start_ms, misfire="skip")


def spoil(client: redis.Redis, queue: TimerQueue, key: str, definition: bytes) -> None:
    """Another definition than was checked; with it, only `at` is known."""
    namespace = queue.init()
    id = identity(queue.tenant.encode(), key.encode(), b"")
    client.hset(record(namespace.tags[0], id), "x", definition)


def test_a_calendar_keeps_its_grid(
    redis_url: str, queue: TimerQueue, events: Events, redis_client: redis.Redis
) -> None:
    start = server_ms(redis_client) + 200
    arm_grid(queue, "c", start)
    with Dispatcher(redis_url):
        found = events.wait(15, key="c")
    events.check()
    told = [event.at_ms + i * 100 for event in found for i in range(event.missed + 1)]
    assert told == [start + i * 100 for i in range(len(told))]


def test_a_calendar_that_cannot_be_read_stops_no_other(
    redis_url: str,
    queue: TimerQueue,
    events: Events,
    redis_client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = server_ms(redis_client) + 300
    for key, definition in (("good", None), ("bad", b"bad"), ("binary", b"\xff\xfe")):
        arm_grid(queue, key, start)
        if definition is not None:
            spoil(redis_client, queue, key, definition)
    with Dispatcher(redis_url):
        found = events.wait(10, key="good")
        wait_for(lambda: queue.stats().held == 2, "both are held")
    assert [event.n for event in found] == list(range(1, len(found) + 1))
    for key in ("bad", "binary"):
        assert len(events.of(key)) <= 1  # the one that was armed; what follows nobody knows
        held = redis_client.hget(
            record(queue.init().tags[0], identity(queue.tenant.encode(), key.encode(), b"")), "e"
        )
        assert held is not None
        assert b"ContractBroken" in held
    said = [found for found in caplog.records if "could not be fired" in found.getMessage()]
    assert len(said) == 1  # once in a while, however often it is tried


@pytest.mark.one_server
def test_a_calendar_that_one_dispatcher_does_not_know_waits_for_one_that_does(
    redis_url: str, queue: TimerQueue, events: Events, redis_client: redis.Redis
) -> None:
    def plan(id: bytes, definition: str, window: str, at_ms: int, now_ms: int, /) -> Plan:
        raise LookupError("no such zone here")

    arm_grid(queue, "c", server_ms(redis_client) + 100)
    with Dispatcher(redis_url, planner=plan):
        wait_for(lambda: queue.stats().held == 1, "it is held")
    with Dispatcher(redis_url):
        events.wait(3, key="c")
    assert queue.stats().held == 0


@pytest.mark.one_server
def test_run_returns_when_another_thread_stops_it(redis_url: str) -> None:
    dispatcher = Dispatcher(redis_url)
    running = threading.Thread(target=dispatcher.run, daemon=True)
    running.start()
    wait_for(lambda: any(thread.name == "timerq-keep" for thread in threading.enumerate()), "the start")
    dispatcher.stop()
    running.join(30)
    assert not running.is_alive()
    dispatcher.stop()
