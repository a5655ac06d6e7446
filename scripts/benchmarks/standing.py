"""What pending schedules cost: round trips and CPU while nothing is due, memory, and listing them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any

import redis

from scripts.benchmarks import bare
from scripts.benchmarks.rig import (
    NAMESPACE,
    Rig,
    answer,
    beside,
    cpu_seconds,
    dispatchers,
    take_turns,
    wait_until,
)
from scripts.benchmarks.table import Row, at_most, compare, ratio_at_most
from timerq import TimerQueue, keys
from timerq.commands.read import encode_cursor

PAGE = 100
_CPU_TARGET = 1.0
"""% of a core that is taken for "not measurable" here."""


def tomorrow() -> int:
    return int((time.time() + 86_400) * 1000)


def idle(rig: Rig) -> list[Row]:
    """Round trips (reads from client sockets) and CPU of dispatchers while 100,000 schedules wait for tomorrow."""
    rows = []
    seconds = rig.choose(20, 4)  # two of the turns in which streams are trimmed
    for partitions, count in ((1, 1), (4, 2)):
        with rig.redis() as (url, client), TimerQueue.connect(url, namespace=NAMESPACE) as queue:
            queue.init(partitions=partitions)
            due_ms = tomorrow()
            queue.upsert_many(bare.upsert(number, due_ms) for number in range(rig.choose(100_000, 20_000)))
            with dispatchers(url, count) as pids:
                wait_until(lambda q=queue, n=count: len(q.stats().dispatchers) == n, "the dispatchers")  # type: ignore[misc]
                time.sleep(3)  # the second one's rank is known after a heartbeat
                trips, cpu = watch(client, pids, seconds)
            bare_trips = bare_cpu = None
            if partitions == 1:
                with beside("look", url) as child:
                    answer(child)
                    time.sleep(1)
                    bare_trips, bare_cpu = watch(client, [child.pid], seconds)
        who = f"{count} dispatcher{'s' * (count > 1)}, {partitions} partition{'s' * (partitions > 1)}"
        allowed = 2 * partitions + 2 * count
        rows += [
            Row(f"idle: {who}", "round trips/s", trips, bare_trips, target=at_most(allowed)),
            Row(f"idle: {who}, CPU each", "%", cpu, bare_cpu, target=at_most(_CPU_TARGET)),
        ]
    return rows


def watch(client: redis.Redis, pids: list[int], seconds: float) -> tuple[float, float]:
    """Round trips a second of all but this client, and % of a core that one process uses."""

    def reads() -> int:
        return int(client.info("stats")["total_reads_processed"])

    used, start, before = sum(map(cpu_seconds, pids)), time.perf_counter(), reads()
    time.sleep(seconds)
    trips, took = reads() - before - 1, time.perf_counter() - start
    return trips / took, (sum(map(cpu_seconds, pids)) - used) / took / len(pids) * 100


def memory(rig: Rig) -> list[Row]:
    """Redis's used_memory, a schedule; ids of 31 bytes, the owner's come on top."""
    count = rig.choose(100_000, 20_000)
    server = rig.memory_server
    where = f"{server.kind} {server.version[0]}.{server.version[1]}"

    def measure(fill: Callable[[redis.Redis, TimerQueue], object]) -> float:
        with rig.redis(server) as (url, client), TimerQueue.connect(url, namespace=NAMESPACE) as queue:
            bare.load(client, bare.UPSERT)
            queue.upsert_many([bare.upsert(10**15, tomorrow(), "o:0000")])
            before = client.info("memory")["used_memory"]
            fill(client, queue)
            return float(client.info("memory")["used_memory"] - before) / count

    def owned(share: int | None) -> Callable[[redis.Redis, TimerQueue], object]:
        due_ms = tomorrow()
        return lambda client, queue: queue.upsert_many(
            bare.upsert(number, due_ms, None if share is None else f"o:{number // share:06d}")
            for number in range(count)
        )

    due_ms = tomorrow()
    plain = measure(owned(None))
    bare_one = measure(lambda client, queue: bare.fill(client, count, due_ms))
    many, one = measure(owned(100)), measure(owned(1))
    return [
        Row(
            f"memory a schedule, {where}",
            "B",
            plain,
            bare_one,
            plain / bare_one,
            target=at_most(620),
            note="bare: the same record in a hash and two sorted sets",
        ),
        Row("… more with an owner of 8 bytes that has 100", "B", many - plain, target=at_most(130)),
        Row("… more with an owner of 8 bytes each", "B", one - plain),
    ]


def listing(rig: Rig) -> list[Row]:
    """A page of 100 at a random place: the median µs."""
    small, large = 10_000, rig.choose(1_000_000, 200_000)
    with ExitStack() as stack:
        url, client = stack.enter_context(rig.redis())
        queues = {}
        for count in (small, large):
            queues[count] = stack.enter_context(TimerQueue.connect(url, namespace=f"{NAMESPACE}-{count}"))
            fill(client, queues[count], count)
        chance = random.Random(7)
        tag = queues[large].init().tags[0]
        index, prefix = keys.index(tag), keys.record(tag, b"")

        def ours(count: int) -> Callable[[], object]:
            def page() -> object:
                found = queues[count].list_page(after=encode_cursor(place(chance, count)), limit=PAGE)
                assert len(found.items) == PAGE
                return found

            return page

        def theirs() -> object:
            ids: Any = client.zrange(
                index, b"(" + place(chance, large), b"[default\x00\xff", bylex=True, offset=0, num=PAGE
            )
            pipeline = client.pipeline(transaction=False)
            for id in ids:
                pipeline.hgetall(prefix + id)
            records = pipeline.execute()
            assert len(records) == PAGE
            return records

        def side(step: Callable[[], object]) -> Callable[[], float]:
            def measure() -> float:
                took = []
                for _ in range(30):
                    start = time.perf_counter()
                    step()
                    took.append(time.perf_counter() - start)
                return median(took) * 1e6

            return measure

        found = take_turns(
            rig.choose(21, 9), {"small": side(ours(small)), "large": side(ours(large)), "bare": side(theirs)}
        )
    what = f"list_page({PAGE}) of {large:,} keys"
    return [
        compare(what, "µs", found["large"], found["small"], ratio_at_most(1.5), f"beside: of {small:,}"),
        compare(
            what, "µs", found["large"], found["bare"], ratio_at_most(3), f"bare: ZRANGE BYLEX, {PAGE} HGETALL"
        ),
    ]


def place(chance: random.Random, count: int) -> bytes:
    """A random id with a page behind it."""
    return keys.identity(bare.TENANT, bare.key(chance.randrange(count - PAGE - 1)).encode(), b"")


def fill(client: redis.Redis, queue: TimerQueue, count: int) -> None:
    """One schedule by its verb, the others as its copies."""
    due_ms = tomorrow()
    queue.upsert_many([bare.upsert(0, due_ms)])
    namespace = queue.namespace
    assert namespace is not None
    tag = namespace.tags[0]
    id = keys.identity(bare.TENANT, bare.key(0).encode(), b"")
    format = keys.identity(bare.TENANT, b"k:%020d", b"")
    sha = bare.load(client, bare.FILL)
    for first in range(1, count, 2000):
        last = min(count - 1, first + 1999)
        client.evalsha(
            sha,
            3,
            keys.record(tag, id),
            keys.index(tag),
            keys.due(tag, bare.TENANT),
            format,
            first,
            last,
            keys.record(tag, b""),
            due_ms,
        )
    assert queue.count() == count
