"""Which process leads which partition of an ordered group, and how leads go from one to another."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.support.consumers import Running, Seen
from tests.support.events import server_ms
from tests.support.proxy import wait_for
from timerq import Event, TimerQueue
from timerq.consumer import Consumer, leader
from timerq.consumer.bell import Bell
from timerq.consumer.leader import Leader
from timerq.keys import reader, sharers
from timerq.model import Delivery

pytestmark = pytest.mark.one_server
GROUP = "g"


@pytest.fixture
def four(redis_url: str) -> Iterator[TimerQueue]:
    """A namespace of four partitions."""
    with TimerQueue.connect(redis_url, namespace="four") as queue:
        queue.init(partitions=4)
        yield queue


def leads(client: redis.Redis, queue: TimerQueue) -> list[str | None]:
    """Who leads each partition."""
    assert queue.namespace is not None
    found: Any = client.mget([reader(tag, b"events", GROUP.encode()) for tag in queue.namespace.tags])
    return [None if each is None else each.decode().split(" ")[0] for each in found]


def test_who_stops_gives_up_its_lead_before_it_closes_its_bell(
    queue: TimerQueue, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is slow to close holds nobody up."""
    close, led, seen = Bell.close, [], Seen()

    async def closing(bell: Bell) -> None:
        led.append(leads(redis_client, queue))
        await close(bell)

    monkeypatch.setattr(Bell, "close", closing)
    app = Consumer(queue, group=GROUP, ordered=True)
    app.on("t")(lambda event: seen.add(event.payload) and None)
    queue.publish(Event("t", 1), key="k")
    with Running(app):
        seen.wait(1)
        assert leads(redis_client, queue) != [None]
    assert led == [[None]]


def shares(client: redis.Redis, queue: TimerQueue) -> list[int]:
    """How many partitions each consumer leads that leads any; -1 for those that nobody leads."""
    found = Counter(leads(client, queue))
    return sorted(-1 if name is None else count for name, count in found.items())


def lanes_of(queue: TimerQueue, partition: int, count: int) -> list[str]:
    """Keys that lie in one partition."""
    namespace = queue.namespace
    assert namespace is not None
    found = [f"k{n}" for n in range(200) if namespace.partition_of(b"default", f"k{n}".encode()) == partition]
    return found[:count]


def test_leads_are_shared_out_evenly_and_no_lane_loses_its_order(
    four: TimerQueue, redis_client: redis.Redis
) -> None:
    """While consumers come and go, each event is handled once, in the order of its lane."""
    seen, published = Seen(), 0
    apps = [Consumer(four, group=GROUP, ordered=True, concurrency=8) for _ in range(3)]

    def more(count: int) -> None:
        nonlocal published
        for n in range(published, published + count):
            four.publish(Event("t", n), key=f"k{n % 40}")
        published += count

    for app in apps:

        @app.on("t")
        async def handle(event: Delivery) -> None:
            seen.add((event.key, event.payload, event.attempt))

    first = Running(apps[0]).start()
    wait_for(lambda: shares(redis_client, four) == [4], "the only one leads all")
    more(200)
    with Running(apps[1]):
        wait_for(lambda: shares(redis_client, four) == [2, 2], "two share")
        more(200)
        with Running(apps[2]):
            more(200)
            wait_for(lambda: shares(redis_client, four) == [1, 1, 2], "three share")
            more(200)
            seen.wait(published)
            first.stop()
            wait_for(lambda: shares(redis_client, four) == [2, 2], "what one leaves is shared again")
            more(200)
        wait_for(lambda: shares(redis_client, four) == [4], "and again")
        seen.wait(published)
    assert Counter((n, attempt) for _, n, attempt in seen.all) == {(n, 1): 1 for n in range(published)}
    for lane in range(40):
        order = [n for key, n, _ in seen.all if key == f"k{lane}"]
        assert order == sorted(order)


def test_shares_stay_as_they_are_once_they_are_even(
    four: TimerQueue, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = Leader._ask, Seen()

    def asking(self: Leader, what: Any) -> Any:
        asked.add(what)
        return ask(self, what)

    monkeypatch.setattr(Leader, "_ask", asking)
    monkeypatch.setattr(leader, "ASK_AGAIN_S", 0.05)
    assert four.namespace is not None
    keys = [reader(tag, b"events", GROUP.encode()) for tag in four.namespace.tags]
    apps = [Consumer(four, group=GROUP, ordered=True) for _ in range(3)]
    with Running(apps[0]), Running(apps[1]), Running(apps[2]):
        wait_for(lambda: shares(redis_client, four) == [1, 1, 2], "three share")
        before = redis_client.mget(keys)
        asked.wait(len(asked.all) + 200)
        assert redis_client.mget(keys) == before  # the same epochs: nobody has led meanwhile


def test_who_gives_up_a_lead_ends_what_it_has_begun_and_begins_nothing_more(
    four: TimerQueue, redis_client: redis.Redis
) -> None:
    seen, may_end = Seen(), threading.Event()
    apps = {name: Consumer(four, group=GROUP, ordered=True) for name in ("old", "new")}
    for name, app in apps.items():

        @app.on("t")
        def handle(event: Delivery, name: str = name) -> None:
            seen.add((name, event.key, event.payload))
            if event.payload == "first":
                may_end.wait(20)

    lanes = [lanes_of(four, partition, 1)[0] for partition in range(4)]
    with Running(apps["old"]):
        for lane in lanes:
            four.publish(Event("t", "first"), key=lane)
        seen.wait(4)
        for lane in lanes:
            four.publish(Event("t", "second"), key=lane)
        with Running(apps["new"]):
            service = apps["old"]._service
            assert service is not None
            wait_for(
                lambda: sum(one.is_leaving for one in service.leads.values()) == 2, "two are to be given up"
            )
            assert shares(redis_client, four) == [4]  # not while their handlers run
            may_end.set()
            wait_for(lambda: shares(redis_client, four) == [2, 2], "two share")
            seen.wait(8)
    seconds = {key: name for name, key, payload in seen.all if payload == "second"}
    assert sorted(seconds) == sorted(lanes)
    assert Counter(seconds.values()) == {"old": 2, "new": 2}


def test_a_lead_is_kept_where_what_has_begun_takes_too_long(
    four: TimerQueue, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other lanes of the partition do not stand for longer."""
    monkeypatch.setattr(leader, "PATIENCE_S", 0.2)
    seen, may_end = Seen(), threading.Event()
    apps = {name: Consumer(four, group=GROUP, ordered=True) for name in ("old", "new")}
    for name, app in apps.items():

        @app.on("t")
        def handle(event: Delivery, name: str = name) -> None:
            seen.add((name, event.payload))
            if event.payload == "long":
                may_end.wait(20)

    lanes = [lanes_of(four, partition, 2) for partition in range(4)]
    with Running(apps["old"]):
        for lane, _ in lanes:
            four.publish(Event("t", "long"), key=lane)
        seen.wait(4)
        with Running(apps["new"]):
            service = apps["old"]._service
            assert service is not None
            wait_for(
                lambda: any(one.is_leaving or one._stays_until_s for one in service.leads.values()),
                "some are to be given up",
            )
            for _, other in lanes:
                four.publish(Event("t", "short"), key=other)
            seen.wait(8, timeout_s=18)
            assert shares(redis_client, four) == [4]
            may_end.set()
    assert Counter(seen.all) == {("old", "long"): 4, ("old", "short"): 4}


def test_who_has_died_is_replaced_when_its_leases_end(four: TimerQueue, redis_client: redis.Redis) -> None:
    assert four.namespace is not None
    far_ms = server_ms(redis_client) + 3_600_000
    for n, tag in enumerate(four.namespace.tags):
        redis_client.zadd(sharers(tag, b"events", b"g"), {"a-dead-one": far_ms})
        if n < 2:
            redis_client.set(reader(tag, b"events", b"g"), "a-dead-one 1", px=3_600_000)
    with Running(Consumer(four, group=GROUP, ordered=True)):
        wait_for(lambda: shares(redis_client, four) == [2, 2], "it has its share")
        for n, tag in enumerate(four.namespace.tags):
            redis_client.zadd(sharers(tag, b"events", b"g"), {"a-dead-one": server_ms(redis_client) + 200})
            if n < 2:
                redis_client.pexpire(reader(tag, b"events", b"g"), 200)
        wait_for(lambda: shares(redis_client, four) == [4], "and then all")
