"""Seven partitions on three masters: verbs and firing, while slots move and nodes are away."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis.crc import key_slot

from tests.support.cluster import LocalCluster
from tests.support.consumers import Running, Seen
from tests.support.events import Events, Stopwatch
from tests.support.proxy import wait_for
from tests.support.worker import Worker
from timerq import (
    AsyncTimerQueue,
    Consumer,
    Delivery,
    Event,
    Outcome,
    QueueUnavailable,
    TimerQueue,
    Upsert,
    keys,
)
from timerq.commands.dispatch import fire
from timerq.dispatcher import Dispatcher, decide
from timerq.topology import AsyncConnections

EVENT = Event("t")
P = 7


@pytest.fixture
def queue(cluster: LocalCluster) -> Iterator[TimerQueue]:
    with TimerQueue.connect(cluster.url) as queue:
        queue.init(partitions=P)
        yield queue


@pytest.fixture
def events(cluster: LocalCluster, queue: TimerQueue) -> Iterator[Events]:
    with Events(cluster.url, queue.namespace) as events:
        yield events


def test_the_partitions_lie_on_every_node(cluster: LocalCluster, queue: TimerQueue) -> None:
    assert queue.namespace is not None
    owners = [cluster.owner_of(key_slot(tag)) for tag in queue.namespace.tags]
    assert {owners.count(node) for node in range(3)} <= {2, 3}


def test_every_verb(cluster: LocalCluster, queue: TimerQueue, events: Events) -> None:
    made = queue.upsert_many([Upsert(f"k:{n}", EVENT, delay="1h") for n in range(300)])
    assert all(not isinstance(result, Exception) and result.outcome is Outcome.CREATED for result in made)
    assert (queue.count(), queue.count("k:1"), len(list(queue.list()))) == (300, 111, 300)
    assert [schedule.key for schedule in queue.list()] == sorted(f"k:{n}" for n in range(300))
    page = queue.list_page("k:", limit=50)
    assert (len(page.items), page.cursor is not None) == (50, True)
    assert queue.upsert("k:1", EVENT, delay="2h").outcome is Outcome.REPLACED
    assert queue.pause("k:2").outcome is Outcome.PAUSED
    assert queue.resume("k:2").outcome is Outcome.RESUMED
    assert queue.trigger("k:3").outcome is Outcome.TRIGGERED
    assert queue.trigger("k:4", consume=True).outcome is Outcome.TRIGGERED
    assert queue.publish(EVENT, key="p").outcome is Outcome.PUBLISHED
    assert queue.cancel("k:5").outcome is Outcome.CANCELLED
    assert queue.cancel("k:5").outcome is Outcome.NOT_PENDING
    gone = queue.cancel_many([f"k:{n}" for n in range(10, 20)])
    assert all(change.outcome is Outcome.CANCELLED for change in gone if not isinstance(change, Exception))
    queue.upsert_many([Upsert(f"o{n}", EVENT, owner="o", delay="1h") for n in range(20)])
    assert queue.cancel_owner("o") == 20
    assert queue.cancel_prefix("k:2") == 111
    assert queue.stats().schedules == queue.count() == 300 - 2 - 10 - 111
    assert {event.key for event in events.wait(3)} == {"k:3", "k:4", "p"}


def test_the_other_client(cluster: LocalCluster) -> None:
    async def use() -> None:
        async with AsyncTimerQueue.connect(cluster.url, namespace="async") as queue:
            await queue.init(partitions=P)
            made = await queue.upsert_many([Upsert(f"k{n}", EVENT, delay="1h") for n in range(100)])
            assert len(made) == 100
            assert await queue.count() == 100
            assert (await queue.cancel("k1")).outcome is Outcome.CANCELLED
            assert await queue.cancel_prefix("") == 99

    asyncio.run(use())


def test_all_partitions_fire_in_time(
    cluster: LocalCluster, queue: TimerQueue, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Dispatcher(cluster.url):
        queue.upsert_many([Upsert(f"k{n}", EVENT, delay=n * 2) for n in range(500)])
        queue.upsert("tick", EVENT, every=50, limit=10)
        events.wait(510)
        monkeypatch.setattr(decide, "NEAR_LOOK_US", 60_000_000)
        time.sleep(1.2)  # now it sleeps, knows of nothing, and looks by chance when nobody waits any more
        for n in range(20):
            queue.upsert(f"late-{n}", EVENT, delay=50)
        found = events.wait(530)
    events.check()
    assert {event.partition for event in found} == set(range(P))


def test_stopping_waits_for_no_reader(cluster: LocalCluster, queue: TimerQueue) -> None:
    before = set(threading.enumerate())
    dispatcher = Dispatcher(cluster.url)
    dispatcher.start()
    time.sleep(0.3)  # its readers stand open
    with Stopwatch() as watch:
        dispatcher.stop()
    assert watch.seconds < 8  # the reads stand open for ten
    assert set(threading.enumerate()) <= before


def partition_of(queue: TimerQueue, lane: str) -> int:
    assert queue.namespace is not None
    return queue.namespace.partition_of(b"default", lane.encode())


def a_key_of(queue: TimerQueue, partition: int, prefix: str) -> str:
    """A key that lies in a partition."""
    return next(key for key in (f"{prefix}{n}" for n in range(1000)) if partition_of(queue, key) == partition)


def move_slot(cluster: LocalCluster, slot: int, to: int, *, pieces: int = 0, count: int = 0) -> int:
    """All of it at once; or ``pieces`` of ``count`` keys, and then the rest. Returns where it was."""
    source = cluster.begin_move(slot, to)
    for _ in range(pieces):  # half here, half there, for a while
        cluster.move_keys(slot, source, to, count)
        time.sleep(0.1)
    while cluster.move_keys(slot, source, to):
        pass
    cluster.end_move(slot, to)
    return source


def is_down(cluster: LocalCluster) -> bool:
    with cluster.client(0) as client:
        info: Any = client.execute_command("CLUSTER INFO")
        return "fail" in str(info["cluster_state"] if isinstance(info, dict) else info)


def test_a_slot_moves_while_it_fires(
    cluster: LocalCluster,
    queue: TimerQueue,
    events: Events,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    assert queue.namespace is not None
    partition = 3
    tag = queue.namespace.tags[partition]
    slot = key_slot(tag)
    keys = [f"k{n}" for n in range(2000)]
    with Dispatcher(cluster.url) as dispatcher:
        queue.upsert_many([Upsert(key, EVENT, delay=500 + n) for n, key in enumerate(keys)])
        queue.upsert("tick", EVENT, every=100)
        events.wait(100)
        source = move_slot(cluster, slot, (cluster.owner_of(slot) + 1) % 3, pieces=8, count=20)
        events.wait(lambda seen: len({event.key for event in seen}) == 2001, timeout_s=60)
        wait_for(lambda: not dispatcher.health.failing, "it is well again", 60)
        # the reader of the wake signals has followed too: a sleeping partition is woken at its new place
        ours = next(
            key
            for key in (f"w{n}" for n in range(1000))
            if queue.namespace.partition_of(b"default", key.encode()) == partition
        )
        queue.cancel("tick")
        monkeypatch.setattr(decide, "NEAR_LOOK_US", 60_000_000)  # and not by chance
        for n in range(5):
            queue.upsert(ours, EVENT, delay=30)
            events.wait(n + 1, key=ours)
        events.check()
        once = [event.key for event in events.all if event.key.startswith("k")]
        assert len(once) == len(set(once)) == 2000
    # and back, for the tests that share these nodes
    move_slot(cluster, slot, source)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_slot_moves_while_its_events_are_handled(
    cluster: LocalCluster, queue: TimerQueue, ordered: bool
) -> None:
    assert queue.namespace is not None
    partition = 2
    slot = key_slot(queue.namespace.tags[partition])
    names = [f"k{n}" for n in range(200)]
    lanes = [key for key in names if queue.namespace.partition_of(b"default", key.encode()) == partition][:10]
    seen = Seen()
    app = Consumer(queue, group="g", ordered=ordered, lease="2s")

    @app.on("t", backoff="10ms", max_backoff="10ms")
    async def handle(event: Delivery) -> None:
        if event.payload % 7 == 0 and event.attempt == 1:
            raise ValueError("not now")
        await asyncio.sleep(0.001)
        seen.add((event.key, event.payload))

    count = 0

    def publish() -> None:
        nonlocal count
        for key in lanes:
            queue.publish(Event("t", count), key=key)
        count += 1

    source = cluster.owner_of(slot)
    with Running(app):
        for _ in range(20):
            publish()
        seen.wait(50)
        # nothing can be published or handled meanwhile
        move_slot(cluster, slot, (source + 1) % 3, pieces=4, count=3)
        for _ in range(20):
            publish()
        seen.wait(lambda all: len(set(all)) == count * len(lanes), timeout_s=60)
        wait_for(lambda: app.counts.handled >= count * len(lanes), "all are acknowledged", 60)
        wait_for(lambda: not app.failing, "it is well again", 60)
    if ordered:
        for lane in lanes:
            first = list(dict.fromkeys(number for key, number in seen.all if key == lane))
            assert first == list(range(count))
    move_slot(cluster, slot, source)


def test_a_durable_bulk_load_reads_its_source_once(queue: TimerQueue) -> None:
    """Each of its commands waits in a thread of its own; one alone may build the next ones meanwhile."""

    def source() -> Iterator[Upsert]:
        for n in range(4000):
            if n % 50 == 0:
                time.sleep(0.0002)  # a source that takes its time, so that threads meet in it
            yield Upsert(f"k{n}", EVENT, delay="1h")

    handles = queue.upsert_many(source(), durable="replicas=1,timeout=1ms")
    assert [handle.key for handle in handles if not isinstance(handle, Exception)] == [
        f"k{n}" for n in range(4000)
    ]
    assert queue.count() == 4000


def test_what_has_not_come_yet_is_not_taken_for_gone(
    cluster: LocalCluster, queue: TimerQueue, events: Events
) -> None:
    """The node that a slot moves to cannot tell a key that is still on its way from one that is not."""
    assert queue.namespace is not None
    tag = queue.namespace.tags[0]
    slot = key_slot(tag)
    keys = [key for key in (f"k{n}" for n in range(200)) if partition_of(queue, key) == 0]
    source = cluster.owner_of(slot)
    target = (source + 1) % 3
    with cluster.client(source) as client:
        client.set(tag + b":s:bad", "no stream")
        client.zadd(tag + b":streams", {"events": 1})
    queue.upsert_many([Upsert(key, EVENT, delay=0) for key in keys])
    queue.upsert(a_key_of(queue, 0, "held"), Event("t", stream="bad"), at=1)
    queue._link.send([fire(queue.namespace, 0, batch=1)])
    cluster.begin_move(slot, target)
    try:
        # all that fire.lua names has moved, a held one's memory too; the records are still here
        with cluster.client(source) as client:
            moved = [
                tag + b":" + name for name in (b"meta", b"heads", b"keys", b"held", b"log", b"due:default")
            ]
            assert client.exists(*moved) == len(moved)
            words = ["", 0, 5000, "KEYS", *moved, tag + b":streams"]
            client.execute_command("MIGRATE", "127.0.0.1", cluster.nodes[target].port, *words)
        with pytest.raises(QueueUnavailable):
            queue._link.send([fire(queue.namespace, 0)])
        with pytest.raises(QueueUnavailable):
            queue.cancel_prefix("")
        with pytest.raises(QueueUnavailable):
            queue.list_page()
        move_slot(cluster, slot, target)
        with Dispatcher(cluster.url):
            events.wait(len(keys))
            events.check()
        assert queue.stats().orphans == 0
    finally:
        cluster.abandon_move(slot)
        if cluster.owner_of(slot) != source:
            move_slot(cluster, slot, source)


def test_a_half_moved_slot_stops_only_itself(
    cluster: LocalCluster, queue: TimerQueue, events: Events
) -> None:
    assert queue.namespace is not None
    slot = key_slot(queue.namespace.tags[0])
    owners = [f"o{n % 10}" if n % 2 else None for n in range(700)]
    queue.upsert_many([Upsert(f"k{n}", EVENT, owner=owner, delay=600) for n, owner in enumerate(owners)])
    elsewhere = sum(partition_of(queue, owner or f"k{n}") != 0 for n, owner in enumerate(owners))
    source = cluster.owner_of(slot)
    target = (source + 1) % 3
    cluster.begin_move(slot, target)
    try:
        cluster.move_keys(slot, source, target, count=40)
        with Dispatcher(cluster.url):
            events.wait(elsewhere)
            with pytest.raises(QueueUnavailable):  # a new timer in it is refused, and says so
                queue.upsert(a_key_of(queue, 0, "n"), EVENT, delay="1h")
            move_slot(cluster, slot, target)
            events.wait(700, timeout_s=60)
            events.check()
        assert queue.stats().all_schedules == 0
    finally:
        cluster.abandon_move(slot)
        if cluster.owner_of(slot) != source:
            move_slot(cluster, slot, source)


def test_a_frozen_node_and_a_cluster_that_is_down(
    cluster: LocalCluster, queue: TimerQueue, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Dispatcher(cluster.url, socket_timeout=0.5) as dispatcher:
        queue.upsert_many([Upsert(f"k{n}", EVENT, delay=100 + n * 10) for n in range(700)])
        events.wait(20)
        cluster.on_every_node("CONFIG", "SET", "cluster-node-timeout", 2000)
        node = cluster.nodes[2]
        os.kill(node.pid, signal.SIGSTOP)
        try:
            wait_for(lambda: is_down(cluster), "the others notice")
            wait_for(lambda: len(dispatcher.health.failing) >= P, "no partition can fire")
        finally:
            os.kill(node.pid, signal.SIGCONT)
        cluster.wait_until_ok()
        cluster.on_every_node("CONFIG", "SET", "cluster-node-timeout", cluster.node_timeout_ms)
        events.wait(700, timeout_s=60)
        events.check()
        wait_for(lambda: not dispatcher.health.failing, "it is well again", 60)


def test_a_frozen_node_makes_no_heartbeat_of_the_others_late(
    cluster: LocalCluster, queue: TimerQueue
) -> None:
    owners = [a_key_of(queue, partition, "session") for partition in range(P)]
    handles = [queue.owner(name, ttl=300).open() for name in owners]
    threads = [thread for thread in threading.enumerate() if thread.name == "timerq-owner"]
    assert len(threads) == 3  # one a node
    nodes = [cluster.owner_of(key_slot(tag)) for tag in queue.namespace.tags]
    beside = [partition for partition in range(P) if nodes[partition] != 0]

    def until_ms(partition: int) -> float:
        key = keys.owners(queue.namespace.tags[partition])
        return cluster.client(nodes[partition]).zscore(key, f"default\0{owners[partition]}")

    os.kill(cluster.nodes[0].pid, signal.SIGSTOP)
    try:
        before = {partition: until_ms(partition) for partition in beside}
        wait_for(lambda: all(until_ms(n) > before[n] + 300 for n in beside), "the others are heard", 4)
    finally:
        os.kill(cluster.nodes[0].pid, signal.SIGCONT)
    assert not any(handle.is_gone for handle in handles)


def test_a_dispatcher_that_starts_before_the_cluster(
    cluster: LocalCluster, queue: TimerQueue, events: Events
) -> None:
    queue.upsert("k", EVENT, delay=0)
    for node in cluster.nodes:
        os.kill(node.pid, signal.SIGSTOP)
    worker = Worker(cluster.url + "?socket_timeout=0.5&socket_connect_timeout=0.5")
    try:
        worker.start(wait=False)
        worker.wait_for_line("cannot fire")
    finally:
        for node in cluster.nodes:
            os.kill(node.pid, signal.SIGCONT)
    cluster.wait_until_ok()
    try:
        events.wait(1)
        assert worker.terminate() == 0
        assert not any("Traceback" in line for line in worker.lines)
    finally:
        if worker.alive:
            worker.kill()


def test_a_fault_before_the_end_leaves_no_connection_open(cluster_url: str) -> None:
    async def main() -> list[bool]:
        connections = AsyncConnections(cluster_url)
        client = await connections.open()
        await client.aclose()  # as redis-py does by itself where a node does not answer
        await connections.forget_after(ConnectionError())
        nodes = [*client.nodes_manager.nodes_cache.values(), *client.nodes_manager.startup_nodes.values()]
        opened = [connection for node in nodes for connection in node._connections]
        assert any(connection.is_connected for connection in opened)
        await connections.close()
        return [connection.is_connected for connection in opened]

    assert not any(asyncio.run(main()))
