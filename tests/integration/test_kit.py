"""TestQueue on real servers and a Cluster: the same events as on fakeredis, and nothing left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from tests.support.pytester import SAMPLE, outcome, run_pytest, write
from timerq import Event, QueueUnavailable, TimerQueue
from timerq.tail import Published
from timerq.testing import TestQueue, assert_not_scheduled, assert_scheduled
from timerq.topology import Connections

Told = list[tuple[Any, ...]]


def story(kit: TestQueue) -> Told:
    """Three days of everything there is, through handlers that arm, cancel and fail; what was told of it."""

    def order(event: Published) -> None:
        number = event.payload
        queue.upsert(f"reminder:{number}", Event("reminder", number), delay="90m", owner=f"o{number % 3}")
        if number % 2:
            queue.cancel(f"reminder:{number - 1}", owner=f"o{(number - 1) % 3}")

    def tick(event: Published) -> None:
        if event.n % 4 == 0:
            raise ValueError(f"tick {event.n}")

    queue, other = kit.queue, kit.connect("globex")
    handlers = {"order": order, "tick": tick}
    queue.upsert("night", Event("night"), cron=["30 2 * * *", "0 */8 * * *"], timezone="Europe/Paris")
    queue.upsert("tick", Event("tick"), every="5h", pause_after=3, overlap="skip")
    queue.upsert("jittery", Event("j"), every="6h", jitter="10m")
    other.upsert("skipper", Event("s"), cron="0 * * * *", misfire="skip", grace="5m")
    queue.upsert("catcher", Event("c"), cron="0 * * * *", misfire="catch_up")
    queue.upsert_many(
        [{"key": f"order:{n}", "event": Event("order", n), "delay": f"{n}h"} for n in range(30)]
    )
    failed = []
    events: list[Published] = []
    while kit.clock.now_ms < END_MS:
        try:
            events += kit.set("2026-01-02T12:00:00Z" if not events else "2026-01-04T00:00:00Z", handlers)
        except ValueError as error:
            failed.append(str(error))
            continue
        if kit.now.hour == 12:
            kit.clock.advance("3h20m")  # nobody is there to fire
    # (versions are equal too: they are the manual clock's)
    return [
        *(
            (e.key, e.tenant, e.owner, e.type, e.at_ms, e.fired_ms, e.n, e.missed, e.version, e.payload)
            for e in sorted(events, key=lambda e: (e.fired_ms, e.tenant, e.key, e.at_ms))
        ),
        *((e.type, e.key, e.payload["reason"]) for e in kit.events(stream="errors")),
        *((s.key, s.at_ms, s.n, s.state, s.failures) for s in kit.pending()),
        tuple(failed),
    ]


END_MS = 1_767_484_800_000  # 2026-01-04


def test_a_real_redis_and_fakeredis_tell_the_same(any_url):
    with TestQueue() as fake, TestQueue(any_url) as real:
        told = story(real)
        assert story(fake) == told
    assert len(told) > 200
    assert told[-1][:3] == ("tick 4", "tick 8", "tick 12")


def test_instants_are_in_order_over_all_partitions(any_url):
    with TestQueue(any_url, partitions=8) as kit:
        kit.queue.upsert_many(
            [{"key": f"k{n}", "event": Event("t"), "delay": f"{100 - n // 2}s"} for n in range(100)]
        )
        events = kit.advance("2m")
        assert [event.fired_ms for event in events] == sorted(event.fired_ms for event in events)
        assert all(event.fired_ms == event.at_ms for event in events)
        assert len(events) == 100
        assert len({event.partition for event in events}) == 8


def test_thirty_days_on_a_real_redis(any_url):
    with TestQueue(any_url) as kit:
        kit.queue.upsert("digest", Event("t"), cron="0 9 * * MON-FRI")
        assert_scheduled(kit, "digest", within="9h", at="2026-01-01T09:00:00Z")
        assert len(kit.advance("30d")) == 22
        kit.queue.cancel("digest")
        assert_not_scheduled(kit, "digest")


def test_it_leaves_nothing_behind(any_url):
    connections = Connections(any_url)
    client = connections.open()
    client.set("mine", 1)
    with TestQueue(any_url, partitions=5) as kit:
        kit.queue.upsert_many([{"key": f"k{n}", "event": Event("t"), "delay": "1h"} for n in range(1200)])
        kit.advance("30m")
        kit.queue.upsert("once", Event("t"), delay="1s", idempotency_key="x", owner="o")
        kit.queue.stats()
        assert sum(1 for _ in client.scan_iter(count=1000)) > 1200
    assert list(client.scan_iter()) == [b"mine"]
    connections.close()


def test_async_clients_on_a_real_redis(any_url):
    async def scenario() -> list[str]:
        async with TestQueue(any_url, partitions=3) as kit:

            async def handler(event: Published) -> None:
                await kit.aqueue.upsert("next", Event("end"), delay="1m")

            await kit.aqueue.upsert("first", Event("begin"), delay="1m")
            return [event.type for event in await kit.aadvance("1h", {"begin": handler})]

    assert asyncio.run(scenario()) == ["begin", "end"]


def test_async_handlers_in_a_test_that_is_not(any_url):
    with TestQueue(any_url) as kit:

        async def handler(event: Published) -> None:
            await kit.aqueue.upsert("next", Event("end"), delay="1m")

        kit.queue.upsert("first", Event("begin"), delay="1m")
        assert [event.type for event in kit.advance("1h", {"begin": handler})] == ["begin", "end"]


@pytest.mark.one_server
def test_a_client_of_ones_own_needs_only_url_name_and_clock(redis_url):
    with (
        TestQueue(redis_url) as kit,
        TimerQueue.connect(kit.url, namespace=kit.namespace.name, clock=kit.clock) as mine,
    ):
        mine.upsert("a", Event("t"), delay="1m")
        assert [event.key for event in kit.advance("1m")] == ["a"]


@pytest.mark.one_server
def test_a_server_of_its_own_lives_as_long_as_the_kit(redis_url):
    with TestQueue("embedded:") as kit:
        kit.connect("globex").upsert("a", Event("t"), delay="1m")
        assert [event.tenant for event in kit.advance("1m")] == ["globex"]
        url = kit.url
    with pytest.raises(redis.ConnectionError):
        redis.Redis.from_url(url).ping()


@pytest.mark.one_server
def test_a_redis_that_is_away_is_said_so(make_redis):
    server = make_redis()
    with pytest.raises(QueueUnavailable):
        TestQueue("redis://127.0.0.1:1/0", retries=0)
    kit = TestQueue(server.url, retries=0)
    server.stop()
    with pytest.raises(QueueUnavailable):
        kit.advance("1h")
    with pytest.raises(QueueUnavailable):
        kit.close()
    kit.close()


@pytest.mark.one_server
def test_the_same_on_a_server_named_by_option_or_setting(tmp_path, redis_url):
    write(tmp_path, SAMPLE.replace("{fake}", "False"))
    assert outcome(run_pytest(tmp_path, "--timerq-url", redis_url)) == "3 passed"
    write(tmp_path, f"[pytest]\ntimerq_url = {redis_url}\n", "pytest.ini")
    assert outcome(run_pytest(tmp_path)) == "3 passed"
    write(tmp_path, "[pytest]\n", "pytest.ini")
    conftest = f"""
        import pytest

        @pytest.fixture(scope="session")
        def timer_queue_url():
            return {redis_url!r}
    """
    write(tmp_path, conftest, "conftest.py")
    assert outcome(run_pytest(tmp_path)) == "3 passed"
