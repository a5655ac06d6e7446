"""upsert_many, one upsert, concurrent upserts."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from statistics import median

import redis
import redis.asyncio

from scripts.benchmarks import bare
from scripts.benchmarks.rig import NAMESPACE, Rig, rate, take_turns
from scripts.benchmarks.table import Row, compare, ratio_at_least, ratio_at_most
from timerq import AsyncTimerQueue, TimerQueue

TASKS = 64


def tomorrow() -> int:
    return int((time.time() + 86_400) * 1000)


def counted(step: Callable[[range], None], numbers: Iterator[int], size: int) -> Callable[[], int]:
    """``step`` on the next ``size`` new keys."""

    def once() -> int:
        first = next(numbers) * size
        step(range(first, first + size))
        return size

    return once


def many(rig: Rig) -> list[Row]:
    """Values are made in both: `Upsert` and `Event` there, the script's arguments here."""
    rows = []
    with rig.redis() as (url, client), TimerQueue.connect(url, namespace=NAMESPACE) as queue:
        sha = bare.load(client, bare.UPSERT)
        due_ms = tomorrow()

        def ours(numbers: range) -> None:
            queue.upsert_many([bare.upsert(number, due_ms) for number in numbers])

        def theirs(numbers: range) -> None:
            client.evalsha(sha, 2, bare.DUE, bare.INDEX, *bare.words(numbers, due_ms))

        def side(step: Callable[[range], None], size: int) -> Callable[[], float]:
            def measure() -> float:
                client.flushall()
                numbers = itertools.count()
                once = counted(step, numbers, size)
                once()
                return rate(0.2 if rig.quick else 0.4, once)

            return measure

        for size, target in ((100, ratio_at_least(0.45)), (1000, None)):
            found = take_turns(
                rig.choose(11, 5), {"ours": side(ours, size), "bare": side(theirs, min(size, 500))}
            )
            rows.append(
                compare(
                    f"upsert_many, {size:,} a call",
                    "/s",
                    found["ours"],
                    found["bare"],
                    target,
                    "" if size <= 500 else "bare: 500 a call",
                )
            )
    return rows


def single(rig: Rig) -> list[Row]:
    """One at a time: the median µs of a call."""
    with rig.redis() as (url, client), TimerQueue.connect(url, namespace=NAMESPACE) as queue:
        sha = bare.load(client, bare.UPSERT)
        due_ms = tomorrow()
        numbers = itertools.count()

        def ours() -> None:
            wanted = bare.upsert(next(numbers), due_ms)
            queue.upsert(wanted.key, wanted.event, at=due_ms)

        def theirs() -> None:
            client.evalsha(sha, 2, bare.DUE, bare.INDEX, *bare.words((next(numbers),), due_ms))

        def ping() -> None:
            client.ping()

        def side(step: Callable[[], None]) -> Callable[[], float]:
            def measure() -> float:
                step()
                took = []
                for _ in range(300):
                    start = time.perf_counter()
                    step()
                    took.append(time.perf_counter() - start)
                return median(took) * 1e6

            return measure

        found = take_turns(rig.choose(31, 11), {"ours": side(ours), "bare": side(theirs), "ping": side(ping)})
    return [
        compare(
            "upsert, one round trip",
            "µs",
            found["ours"],
            found["bare"],
            ratio_at_most(1.6),
            f"a bare PING: {median(found['ping']):.0f} µs",
        )
    ]


def concurrent(rig: Rig) -> list[Row]:
    """64 tasks that each await upsert, against one task, and against upsert_many of 64."""
    return asyncio.run(_concurrent(rig))


async def _concurrent(rig: Rig) -> list[Row]:
    seconds = 0.25 if rig.quick else 0.4
    with rig.redis() as (url, client):
        queue = AsyncTimerQueue.connect(url, namespace=NAMESPACE)
        plain = redis.asyncio.Redis.from_url(url)
        sha = bare.load(client, bare.UPSERT)
        due_ms = tomorrow()

        async def ours(number: int) -> None:
            wanted = bare.upsert(number, due_ms)
            await queue.upsert(wanted.key, wanted.event, at=due_ms)

        async def theirs(number: int) -> None:
            await plain.evalsha(sha, 2, bare.DUE, bare.INDEX, *bare.words((number,), due_ms))

        async def tasks(step: Callable[[int], Awaitable[None]], count: int) -> float:
            client.flushall()
            await step(0)
            numbers = itertools.count(1)
            start = time.perf_counter()

            async def task() -> None:
                while time.perf_counter() - start < seconds:
                    await step(next(numbers))

            await asyncio.gather(*(task() for _ in range(count)))
            return (next(numbers) - 1) / (time.perf_counter() - start)

        async def together() -> float:
            client.flushall()
            await ours(0)
            done = 0
            start = time.perf_counter()
            while (took := time.perf_counter() - start) < seconds:
                await queue.upsert_many(
                    [bare.upsert(number, due_ms) for number in range(done + 1, done + TASKS + 1)]
                )
                done += TASKS
            return done / took

        one: list[float] = []
        gathered: list[float] = []
        bulk: list[float] = []
        bare_one: list[float] = []
        bare_gathered: list[float] = []
        for _ in range(rig.choose(9, 5)):
            one.append(await tasks(ours, 1))
            gathered.append(await tasks(ours, TASKS))
            bulk.append(await together())
            bare_one.append(await tasks(theirs, 1))
            bare_gathered.append(await tasks(theirs, TASKS))
        await queue.close()
        await plain.aclose()
    return [
        compare(
            f"{TASKS} tasks that await upsert",
            "/s",
            gathered,
            one,
            ratio_at_least(4),
            "beside: one task",
        ),
        compare(f"{TASKS} tasks that await upsert", "/s", gathered, bulk, None, "beside: upsert_many of 64"),
        compare(
            f"{TASKS} tasks that await upsert",
            "/s",
            gathered,
            bare_gathered,
            None,
            "beside: 64 tasks with a bare EVALSHA each",
        ),
        compare("one task that awaits upsert", "/s", one, bare_one, None, "beside: a bare EVALSHA"),
    ]
