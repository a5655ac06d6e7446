"""Draining a backlog, how long a script holds Redis, and how late an event reaches its reader."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import redis

from scripts.benchmarks import bare
from scripts.benchmarks.rig import (
    NAMESPACE,
    Rig,
    answer,
    beside,
    dispatchers,
    percentile,
    take_turns,
    wait_until,
)
from scripts.benchmarks.table import Row, Target, at_most, compare, ratio_at_least, ratio_at_most
from timerq import Event, TimerQueue, Upsert, keys

LOAD_PER_SECOND = 10_000


def stream_of(queue: TimerQueue) -> bytes:
    """Where the events go; the namespace has one partition."""
    namespace = queue.init()
    return keys.stream(namespace.tags[0], b"events")


def past() -> int:
    return int(time.time() * 1000) - 1000


def drain(rig: Rig) -> list[Row]:
    """A backlog that is all due, then the dispatcher: the rate between 5 % and 95 % of it."""
    count = rig.choose(100_000, 30_000)
    with rig.redis() as (url, client), TimerQueue.connect(url, namespace=NAMESPACE) as queue:
        stream = stream_of(queue)

        def ours() -> float:
            client.flushall()
            due_ms = past()
            queue.upsert_many(bare.upsert(number, due_ms) for number in range(count))
            with dispatchers(url):
                return drained(client, stream, count)

        def theirs() -> float:
            client.flushall()
            bare.fill(client, count, past())
            with beside("pop", url):
                return drained(client, bare.STREAM, count)

        found = take_turns(rig.choose(7, 3), {"ours": ours, "bare": theirs})
    what = f"draining {count:,} through one dispatcher"
    return [compare(what, "/s", found["ours"], found["bare"], ratio_at_least(0.6))]


def drained(client: redis.Redis, stream: bytes | str, count: int) -> float:
    """Events a second while ``stream`` grows to ``count``."""
    marks: list[tuple[float, int]] = []

    def passed(share: float) -> Callable[[], bool]:
        def check() -> bool:
            there = client.xlen(stream)
            if there < count * share:
                return False
            marks.append((time.perf_counter(), there))
            return True

        return check

    for share in (0.05, 0.95):
        wait_until(passed(share), f"{share:.0%} of the backlog on its stream")
    wait_until(lambda: client.xlen(stream) == count, "the whole backlog on its stream")
    (start, first), (end, last) = marks
    return (last - first) / (end - start)


def scripts(rig: Rig) -> list[Row]:
    """How long the longest script of a round held Redis, as its slow log has it, with 200 schedules a call.

    The slow log's clock also runs while another process has the processor, so the quietest round is shown: a script
    that is slow by itself is slow in each.
    """
    count, rounds = rig.choose(20_000, 10_000), rig.choose(7, 3)
    rows = []
    with rig.redis() as (url, client), TimerQueue.connect(url, namespace=NAMESPACE) as queue:
        stream = stream_of(queue)
        client.config_set("slowlog-max-len", 10_000)
        for payload, size in ((bare.PAYLOAD, "100-byte"), ("x" * 1021, "1 KiB")):
            upserts: list[list[int]] = []
            fires: list[list[int]] = []
            for _ in range(rounds):
                client.flushall()
                due_ms = past()
                with slow_log(client) as took:
                    queue.upsert_many(
                        Upsert(bare.key(number), Event(bare.TYPE, payload), at=due_ms)
                        for number in range(count)
                    )
                upserts.append(took)
                with slow_log(client) as took, dispatchers(url):
                    wait_until(lambda: client.xlen(stream) == count, "the backlog on its stream", pause=0.02)
                fires.append(took)
            rows += [
                held(f"upsert script, 200 of {size} payloads: longest", upserts),
                held(f"fire script, 200 of {size} payloads: longest", fires),
            ]
    return rows


_NOTICED_US = 200
"""Shorter ones are not logged. With 0 the slow log would also hold every command inside the scripts, and slow them."""


class slow_log:
    """Collects the µs of the scripts that ran meanwhile."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._took: list[int] = []

    def __enter__(self) -> list[int]:
        self._client.slowlog_reset()
        self._client.config_set("slowlog-log-slower-than", _NOTICED_US)
        return self._took

    def __exit__(self, *_: object) -> None:
        self._client.config_set("slowlog-log-slower-than", -1)
        entries: Any = self._client.slowlog_get(10_000)
        self._took += [
            entry["duration"] for entry in entries if entry["command"].upper().startswith(b"EVALSHA")
        ]


def held(what: str, rounds: Sequence[Sequence[int]]) -> Row:
    """The longest of the quietest round; the note tells of all."""
    everything = [took for took_us in rounds for took in took_us]
    half, most = (percentile(everything, share) / 1000 for share in (0.5, 0.99))
    note = f"{len(rounds)} rounds: p50 {half:.2f}, p99 {most:.2f}, longest {max(everything) / 1000:.2f} ms"
    return Row(what, "ms", min(map(max, rounds)) / 1000, target=at_most(5), note=note)


def lag(rig: Rig) -> list[Row]:
    """Two dispatchers, a reader; instants of timerq and the bare loop alternate, so that neither disturbs the other."""
    return [*_lag(rig, loaded=False), *_lag(rig, loaded=True)]


def _lag(rig: Rig, *, loaded: bool) -> list[Row]:
    count = rig.choose(1000, 150)
    with ExitStack() as stack:
        url, _ = stack.enter_context(rig.redis())
        queue = stack.enter_context(TimerQueue.connect(url, namespace=NAMESPACE))
        stream = stream_of(queue).decode()
        stack.enter_context(dispatchers(url, 2))
        wait_until(lambda: len(queue.stats().dispatchers) == 2, "two dispatchers")
        if loaded:
            answer(stack.enter_context(beside("produce", url, LOAD_PER_SECOND)))
        chance = random.Random(7)
        instants = [int(time.time() * 1000) + 2500]
        while len(instants) < 2 * count:
            instants.append(instants[-1] + chance.randint(6, 24))
        seconds = (instants[-1] / 1000 - time.time()) + 5
        reader = stack.enter_context(beside("read", url, count, seconds, stream, bare.STREAM))
        answer(reader)
        bell = stack.enter_context(beside("ring", url, given=instants[1::2]))
        answer(bell)
        queue.upsert_many(bare.upsert(number, due_ms) for number, due_ms in enumerate(instants[::2]))
        if time.time() * 1000 > instants[0]:
            raise RuntimeError("the machine is too slow to arm the instants in time")
        lags = answer(reader)
    ours, theirs = lags[stream], lags[bare.STREAM]
    if len(ours) != count or len(theirs) != count:
        raise RuntimeError(f"{len(ours)} and {len(theirs)} of {count} events came")
    where = f"while {LOAD_PER_SECOND:,}/s are upserted" if loaded else "quiet"
    return [
        at("fire lag", 0.5, ours, theirs, where, ratio_at_most(1.5)),
        at("fire lag", 0.99, ours, theirs, where, ratio_at_most(2)),
        Row(f"fire lag earliest, {where}", "µs", min(ours), min(theirs), target=Target("value", "≥", 0)),
    ]


def at(
    what: str, share: float, ours: Sequence[int], theirs: Sequence[int], where: str, target: Target
) -> Row:
    """One percentile of how late each was (µs)."""
    mine, bare_one = percentile(ours, share), percentile(theirs, share)
    what = f"{what} p{share * 100:.0f}, {where}"
    return Row(what, "µs", mine, bare_one, mine / bare_one, target=target)
