"""Whatever Redis answers, or does not: no dispatcher dies of it, none is busy with it, and no timer is lost."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.events import Events, Stopwatch
from tests.support.proxy import Proxy, wait_for
from timerq import Event, TimerQueue, Upsert
from timerq.commands.dispatch import trim
from timerq.dispatcher import Dispatcher
from timerq.embedded import EmbeddedRedis

MakeRedis = Callable[..., EmbeddedRedis]
EVENT = Event("t")


def told(caplog: pytest.LogCaptureFixture) -> tuple[int, int]:
    """How often it said that it cannot fire, and that it can again."""
    texts = [record.getMessage() for record in caplog.records if record.name == "timerq.dispatcher"]
    return sum("cannot fire" in text for text in texts), sum("firing again" in text for text in texts)


def is_failing(dispatcher: Dispatcher, word: str) -> bool:
    return any(word in why for why in dispatcher.health.failing.values())


# ------------------------------------------------------------------------------------------------ error replies


@contextlib.contextmanager
def read_only(client: redis.Redis) -> Iterator[None]:
    client.execute_command("REPLICAOF", "127.0.0.1", 1)
    try:
        yield
    finally:
        client.execute_command("REPLICAOF", "NO", "ONE")


@contextlib.contextmanager
def master_down(client: redis.Redis) -> Iterator[None]:
    client.config_set("replica-serve-stale-data", "no")
    with read_only(client):
        yield
    client.config_set("replica-serve-stale-data", "yes")


@contextlib.contextmanager
def configured(client: redis.Redis, name: str, bad: Any, good: Any) -> Iterator[None]:
    client.config_set(name, bad)
    try:
        yield
    finally:
        client.config_set(name, good)


@contextlib.contextmanager
def busy(client: redis.Redis) -> Iterator[None]:
    client.config_set("lua-time-limit", 20)
    thread = threading.Thread(target=_spin, args=(client,))
    thread.start()
    try:
        yield
    finally:
        wait_for(lambda: _killed(client), "the script is killed")
        thread.join(10)


def _spin(client: redis.Redis) -> None:
    with contextlib.suppress(redis.RedisError):
        client.execute_command("EVAL", "while true do end", 0)


def _killed(client: redis.Redis) -> bool:
    try:
        return bool(client.script_kill())
    except redis.RedisError as error:
        return "No scripts in execution" in str(error)


@contextlib.contextmanager
def no_permission(client: redis.Redis) -> Iterator[None]:
    client.execute_command("ACL", "SETUSER", "default", "-eval", "-evalsha")
    try:
        yield
    finally:
        client.execute_command("ACL", "SETUSER", "default", "+@all")


FAULTS: dict[str, Callable[[redis.Redis], AbstractContextManager[None]]] = {
    "READONLY": read_only,
    "MASTERDOWN": master_down,
    "OOM": lambda client: configured(client, "maxmemory", 1, 0),
    "NOREPLICAS": lambda client: configured(client, "min-replicas-to-write", 1, 0),
    "BUSY": busy,
    "NOPERM": no_permission,
}
SHOWN = {
    # redis-py takes some code words away
    "READONLY": "read only replica",
    "MASTERDOWN": "Link with MASTER",
    "OOM": "maxmemory",
    "NOREPLICAS": "NOREPLICAS",
    "BUSY": "busy",
    "NOPERM": "permission",
}


@pytest.mark.parametrize("word", FAULTS)
def test_a_refusal_is_waited_out(make_redis: MakeRedis, caplog: pytest.LogCaptureFixture, word: str) -> None:
    server = make_redis(port=0)
    if word == "NOREPLICAS" and server.kind == "redis" and server.version.startswith("6."):
        pytest.skip("Redis 6 asks for no replicas inside scripts")
    caplog.set_level(logging.INFO)
    with (
        redis.Redis.from_url(server.url) as client,
        TimerQueue.connect(server.url) as queue,
        Dispatcher(server.url) as dispatcher,
        Events(server.url, queue.init()) as events,
    ):
        queue.upsert_many([Upsert(f"before-{n}", EVENT, delay=0) for n in range(20)])
        queue.upsert_many([Upsert(f"during-{n}", EVENT, delay=150) for n in range(20)])
        queue.upsert("tick", EVENT, every=100)
        events.wait(20)
        with FAULTS[word](client):
            wait_for(lambda: is_failing(dispatcher, SHOWN[word]), "it finds out")
            time.sleep(0.5)  # and goes on trying
            told_during = told(caplog)
        assert told_during == (1, 0)
        wait_for(lambda: not dispatcher.health.failing, "it is well again")
        queue.upsert("after", EVENT, delay=0)
        events.wait(1, key="after")
        ticks = len(events.of("tick"))
        events.wait(ticks + 2, key="tick")
        queue.cancel("tick")
        events.check()
        assert len([event for event in events.all if event.key.startswith("during")]) == 20
        slots = [event.at_ms + i * 100 for event in events.of("tick") for i in range(event.missed + 1)]
        assert slots == [slots[0] + i * 100 for i in range(len(slots))]
        assert told(caplog)[0] == told(caplog)[1]


def test_a_disk_that_refuses_is_waited_out(make_redis: MakeRedis, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    server = make_redis(config={"dir": str(gone), "save": "3600 1"})
    with (
        redis.Redis.from_url(server.url) as client,
        TimerQueue.connect(server.url) as queue,
        Dispatcher(server.url) as dispatcher,
        Events(server.url, queue.init()) as events,
    ):
        queue.upsert("k", EVENT, every=200)
        shutil.rmtree(gone)
        client.bgsave()
        wait_for(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "saving has failed")
        wait_for(lambda: is_failing(dispatcher, "MISCONF"), "it finds out")
        client.config_set("stop-writes-on-bgsave-error", "no")
        events.wait(len(events.all) + 2)
        events.check()
        slots = [event.at_ms + i * 200 for event in events.all for i in range(event.missed + 1)]
        assert slots == [slots[0] + i * 200 for i in range(len(slots))]
    server.kill()  # it would not stop in order: it cannot save


def test_scripts_that_are_flushed_are_loaded_again(redis_url: str, redis_client: redis.Redis) -> None:
    with TimerQueue.connect(redis_url) as queue, Dispatcher(redis_url) as dispatcher:
        with Events(redis_url, queue.init()) as events:
            for n in range(10):
                redis_client.script_flush()
                queue.upsert(f"k{n}", EVENT, delay=20)
                redis_client.script_flush()
                events.wait(n + 1)
            events.check()
        assert not dispatcher.health.failing


@pytest.mark.parametrize("how", ["TIMEOUT", "ERROR"])
def test_a_reader_that_is_unblocked_listens_again(
    redis_url: str, redis_client: redis.Redis, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    def listening() -> list[str]:
        return [
            entry["id"]
            for entry in redis_client.client_list()
            if entry["cmd"] == "xread" and "b" in entry["flags"]
        ]

    with TimerQueue.connect(redis_url) as queue, Dispatcher(redis_url) as dispatcher:
        queue.init()
        for _ in range(5):
            wait_for(lambda: len(listening()) == 1, "it listens")
            redis_client.execute_command("CLIENT", "UNBLOCK", listening()[0], how)
        wait_for(lambda: len(listening()) == 1, "it listens")
        with Events(redis_url, queue.namespace) as events:
            queue.upsert("k", EVENT, delay=50)
            events.wait(1)
        wait_for(lambda: not dispatcher.health.failing, "it is well")
    assert told(caplog) == (0, 0)


def test_connections_that_are_killed_are_made_anew(redis_url: str, redis_client: redis.Redis) -> None:
    with (
        TimerQueue.connect(redis_url) as queue,
        Dispatcher(redis_url),
        Events(redis_url, queue.init()) as events,
    ):
        queue.upsert_many([Upsert(f"k{n}", EVENT, delay=n) for n in range(500)])
        while len(events.all) < 500:
            redis_client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            events.wait(min(500, len(events.all) + 20))
        events.check()


def test_a_server_that_was_emptied_is_furnished_again(redis_url: str, redis_client: redis.Redis) -> None:
    with TimerQueue.connect(redis_url) as queue, Dispatcher(redis_url) as dispatcher:
        queue.init(retention="1h")
        queue.upsert("lost", EVENT, delay="1h")
        redis_client.flushall()
        queue.upsert("k", EVENT, delay=0)
        with Events(redis_url, queue.namespace) as events:
            events.wait(1)
        wait_for(lambda: not dispatcher.health.failing, "it is well")
        assert queue.count() == 0
        assert queue.init().settings["retention_ms"] == "3600000"


def test_a_paused_server_is_waited_out(redis_url: str, redis_client: redis.Redis) -> None:
    with (
        TimerQueue.connect(redis_url) as queue,
        Dispatcher(redis_url),
        Events(redis_url, queue.init()) as events,
    ):
        queue.upsert_many([Upsert(f"k{n}", EVENT, delay=n) for n in range(300)])
        redis_client.execute_command("CLIENT", "PAUSE", 500)
        events.wait(300)
        events.check()


# ------------------------------------------------------------------------------------------------ Redis away


@pytest.mark.one_server
def test_a_restart_loses_and_repeats_nothing(
    make_redis: MakeRedis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_redis(tmp_path, appendfsync="always")
    caplog.set_level(logging.INFO)
    with (
        TimerQueue.connect(server.url) as queue,
        Dispatcher(server.url) as dispatcher,
        Events(server.url, queue.init()) as events,
    ):
        queue.upsert_many([Upsert(f"k{n}", EVENT, delay=n * 10) for n in range(400)])
        events.wait(50)
        server.kill()
        wait_for(lambda: bool(dispatcher.health.failing), "it finds out")
        with Stopwatch() as watch:
            time.sleep(3)
        assert watch.cpu_s < 0.2 * watch.seconds
        assert told(caplog) == (1, 0)
        server.start()
        events.wait(400)
        events.check()
        wait_for(lambda: not dispatcher.health.failing, "it is well again")
    assert told(caplog) == (1, 1)


@pytest.mark.one_server
def test_a_server_that_is_loading_is_waited_out(
    make_redis: MakeRedis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_redis(tmp_path, config={"loading-process-events-interval-bytes": "1024"})
    caplog.set_level(logging.INFO)
    with (
        redis.Redis.from_url(server.url) as client,
        TimerQueue.connect(server.url) as queue,
        Dispatcher(server.url) as dispatcher,
        Events(server.url, queue.init()) as events,
    ):
        queue.upsert_many([Upsert(f"k{n}", Event("t", "x" * 1000), delay=1500) for n in range(1000)])
        queue.upsert_many([Upsert(f"later-{n}", EVENT, delay="1h") for n in range(1000)])  # to be loaded, too
        client.config_set("key-load-delay", 1500)  # microseconds a key
        loading = threading.Thread(target=lambda: client.execute_command("DEBUG", "RELOAD"))
        loading.start()
        wait_for(lambda: is_failing(dispatcher, "loading"), "it finds out")
        loading.join(60)
        client.config_set("key-load-delay", 0)
        events.wait(1000)
        events.check()
        wait_for(lambda: not dispatcher.health.failing, "it is well again")
    assert told(caplog) == (1, 1)


@pytest.mark.one_server
@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_a_one_way_cut_is_noticed_and_waited_out(
    proxy: Proxy, redis_url: str, direction: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with (
        TimerQueue.connect(redis_url) as queue,
        Dispatcher(proxy.url, socket_timeout=0.5) as dispatcher,
        Events(redis_url, queue.init()) as events,
    ):
        queue.upsert_many([Upsert(f"k{n}", EVENT, delay=500 + n) for n in range(100)])
        proxy.cut(direction)
        wait_for(lambda: is_failing(dispatcher, "Timeout"), "it finds out")
        with Stopwatch() as watch:
            time.sleep(2)
        assert watch.cpu_s < 0.3 * watch.seconds
        assert told(caplog)[0] == 1
        proxy.heal()
        events.wait(100)
        events.check()
        wait_for(lambda: not dispatcher.health.failing, "it is well again")


@pytest.mark.one_server
def test_a_frozen_server_is_waited_out(make_redis: MakeRedis) -> None:
    server = make_redis()
    with (
        TimerQueue.connect(server.url) as queue,
        Dispatcher(server.url, socket_timeout=0.5) as dispatcher,
        Events(server.url, queue.init()) as events,
    ):
        queue.upsert_many([Upsert(f"k{n}", EVENT, delay=300 + n) for n in range(200)])
        os.kill(server.pid, signal.SIGSTOP)
        try:
            wait_for(lambda: bool(dispatcher.health.failing), "it finds out")
            time.sleep(1)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        events.wait(200)
        events.check()


# ------------------------------------------------------------------------------------------------ wrong types


def test_a_stream_key_of_another_type_holds_its_own_timers_only(
    redis_url: str, redis_client: redis.Redis
) -> None:
    with TimerQueue.connect(redis_url) as queue, Dispatcher(redis_url) as dispatcher:
        namespace = queue.init()
        redis_client.set(namespace.tags[0] + b":s:spoilt", "x")
        queue.upsert_many([Upsert(f"bad-{n}", Event("t", stream="spoilt"), delay=0) for n in range(50)])
        queue.upsert_many([Upsert(f"good-{n}", EVENT, delay=n * 5) for n in range(100)])
        with Events(redis_url, namespace) as events:
            events.wait(100)
            events.check()
        stats = queue.stats()
        assert (stats.held, stats.schedules) == (50, 50)
        stored = queue.get("bad-0")
        assert stored is not None
        assert stored.held is not None
        assert "WRONGTYPE" in stored.held
        assert not dispatcher.health.failing
        redis_client.delete(namespace.tags[0] + b":s:spoilt")
        with Events(redis_url, namespace, "spoilt") as events:
            events.wait(50, timeout_s=40)
            events.check()
        assert queue.stats().held == 0


@pytest.mark.parametrize("name", ["log", "streams", "wake", "held"])
def test_a_side_key_of_another_type_costs_no_event(
    redis_url: str, redis_client: redis.Redis, name: str
) -> None:
    with TimerQueue.connect(redis_url) as queue:
        namespace = queue.init()
        queue.upsert_many([Upsert(f"k{n}", EVENT, delay=n * 5) for n in range(50)])
        queue.upsert("tick", EVENT, every=10, initial_delay=0)
        key = namespace.tags[0] + b":" + name.encode()
        redis_client.delete(key)
        redis_client.set(key, "x")
        with Dispatcher(redis_url), Events(redis_url, namespace) as events:
            events.wait(lambda seen: len({event.key for event in seen}) == 51)
            events.wait(10, key="tick")
            redis_client.delete(key)
            queue.upsert("last", EVENT, delay=0)
            events.wait(1, key="last")
            queue.cancel("tick")
            events.check()
            counts = [event.key for event in events.all if event.key != "tick"]
            assert len(counts) == len(set(counts)) == 51


# ------------------------------------------------------------------------------------------------ trimming


@pytest.mark.one_server
def test_streams_are_trimmed_by_their_retention(
    redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timerq.dispatcher.dispatcher.BEAT_S", 0.05)
    monkeypatch.setattr("timerq.dispatcher.dispatcher.trim", functools.partial(trim, every_ms=100))
    with TimerQueue.connect(redis_url) as queue:
        namespace = queue.init(retention=500)
        stream = namespace.tags[0] + b":s:events"
        queue.upsert_many([Upsert(f"k{n}", EVENT, delay=0) for n in range(3000)])
        with Dispatcher(redis_url) as dispatcher:
            wait_for(
                lambda: dispatcher.fired_total == 3000, "all are fired"
            )  # whoever reads them may be too late
            wait_for(lambda: redis_client.xlen(stream) < 200, "what is older has gone", 60)
            # what a group has not read stays
            redis_client.xgroup_create(stream, "readers", "0")
            queue.upsert_many([Upsert(f"l{n}", EVENT, delay=0) for n in range(1000)])
            wait_for(lambda: redis_client.xlen(stream) >= 1000, "it has fired them")
            time.sleep(1.5)
            assert redis_client.xlen(stream) >= 1000
