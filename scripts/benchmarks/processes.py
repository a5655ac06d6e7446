"""What runs beside, each as a process of its own: ``python -m scripts.benchmarks.processes NAME …``."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import redis

from scripts.benchmarks import bare
from scripts.benchmarks.rig import NAMESPACE
from timerq import Consumer, Delivery, TimerQueue


def say(thing: object) -> None:
    """One line for the parent."""
    print(json.dumps(thing), flush=True)


def pop(url: str) -> None:
    """The bare dispatcher with a backlog: pops and publishes as fast as it can, until it is empty."""
    client = redis.Redis.from_url(url)
    sha = bare.load(client, bare.POP)
    say("ready")
    while client.evalsha(sha, 3, bare.DUE, bare.INDEX, bare.STREAM, int(time.time() * 1000), bare.BATCH):
        pass
    say("done")
    sys.stdin.read()


def ring(url: str) -> None:
    """The bare dispatcher in time: sleeps to each instant (epoch ms, a list on standard input), then publishes."""
    client = redis.Redis.from_url(url)
    client.ping()
    instants = json.loads(sys.stdin.readline())
    say("ready")
    for number, due_ms in enumerate(instants):
        if (left := due_ms / 1000 - time.time()) > 0:
            time.sleep(left)
        client.xadd(
            bare.STREAM,
            {
                "id": f"0-1764494400000000-{number}",
                "type": bare.TYPE,
                "key": bare.key(number),
                "tenant": bare.TENANT,
                "owner": "",
                "at": due_ms,
                "fired_ms": int(time.time() * 1000),
                "n": 1,
                "version": 1764494400000000,
                "missed": 0,
                "payload": bare.PAYLOAD_BYTES,
                "content_type": "application/msgpack",
                "correlation": "{}",
            },
        )
    sys.stdin.read()


def read(url: str, count: str, deadline_s: str, *streams: str) -> None:
    """Reads ``count`` events of each stream and says how late each came (µs after its ``at``), by stream."""
    client = redis.Redis.from_url(url, socket_timeout=None)
    lags: dict[str, list[int]] = {stream: [] for stream in streams}
    seen: dict[Any, Any] = dict.fromkeys(streams, "0-0")
    deadline = time.monotonic() + float(deadline_s)
    say("ready")
    while time.monotonic() < deadline and min(map(len, lags.values())) < int(count):
        found: Any = client.xread(seen, block=1000)
        now_us = time.time_ns() // 1000
        for name, entries in found or ():
            for entry, fields in entries:
                lags[name.decode()].append(now_us - int(fields[b"at"]) * 1000)
                seen[name.decode()] = entry
    say(lags)
    sys.stdin.read()


def handle(url: str, count: str, how: str) -> None:
    """A consumer whose handler only counts; says how many a second it ran, from 5 % to 95 % of them."""
    app = Consumer(url, namespace=NAMESPACE, group="bench", ordered=how == "ordered")
    marks: dict[int, float] = dict.fromkeys((int(count) // 20, int(count) * 19 // 20, int(count)), 0.0)
    done = 0

    @app.on(bare.TYPE)
    async def nothing(event: Delivery) -> None:
        nonlocal done
        done += 1
        if done in marks:
            marks[done] = time.perf_counter()
            if done == int(count):
                app.request_stop()

    app.run()
    if app.counts.handled != int(count):
        raise RuntimeError(f"{app.counts} of {count}")
    first, last, _ = marks
    say((last - first) / (marks[last] - marks[first]))
    sys.stdin.read()


def ack(url: str, count: str, stream: str) -> None:
    """The bare consumer: reads 100 and acknowledges them, blocking redis-py (which is faster than its asyncio)."""
    client = redis.Redis.from_url(url)
    client.xgroup_create(stream, "bench", id="0")
    marks: list[tuple[float, int]] = []
    done = 0
    while done < int(count):
        found: Any = client.xreadgroup("bench", "bare", {stream: ">"}, count=100)
        done += client.xack(stream, "bench", *[entry for entry, _ in found[0][1]])
        if done >= int(count) * (0.05, 0.95, 1)[len(marks)]:
            marks.append((time.perf_counter(), done))
    (start, first), (end, last) = marks[:2]
    say((last - first) / (end - start))
    sys.stdin.read()


def begin(url: str, count: str) -> None:
    """A consumer; says how late its handler began for each of so many events (µs after they were due)."""
    app = Consumer(url, namespace=NAMESPACE, group="bench")
    lags: list[int] = []

    @app.on(bare.TYPE)
    async def note(event: Delivery) -> None:
        lags.append(time.time_ns() // 1000 - event.at_ms * 1000)
        if len(lags) == int(count):
            say(lags)

    app.run(lambda: say("ready"))


def block(url: str, count: str) -> None:
    """The bare consumer of a quiet stream: a read that stands open, and an acknowledgement for each."""
    client = redis.Redis.from_url(url, socket_timeout=None)
    lags: list[int] = []
    say("ready")
    while len(lags) < int(count):
        found: Any = client.xreadgroup("bench", "bare", {bare.STREAM: ">"}, count=100, block=10_000)
        for _, entries in found or ():
            now_us = time.time_ns() // 1000
            lags += [now_us - int(fields[b"at"]) * 1000 for _, fields in entries]
            client.xack(bare.STREAM, "bench", *[entry for entry, _ in entries])
    say(lags)
    sys.stdin.read()


def produce(url: str, per_second: str) -> None:
    """Upserts new keys at a fixed rate, 100 a call, due tomorrow; says how many it has done when asked to end."""
    due_ms = int((time.time() + 86_400) * 1000)
    pace = 100 / float(per_second)
    done = 0
    with TimerQueue.connect(url, namespace=NAMESPACE) as queue:
        queue.upsert_many([bare.upsert(10**15, due_ms)])
        say("ready")
        start = time.perf_counter()
        while True:
            first = 10**16 + done
            queue.upsert_many([bare.upsert(number, due_ms) for number in range(first, first + 100)])
            done += 100
            left = start + done / 100 * pace - time.perf_counter()
            if left > 0:
                time.sleep(left)
            if done % 10_000 == 0:
                say({"rate": done / (time.perf_counter() - start)})


def look(url: str) -> None:
    """The bare idle dispatcher: one script call a second, and one read that stands open."""
    client = redis.Redis.from_url(url, socket_timeout=None)
    sha = bare.load(client, bare.POP)

    def listen() -> None:
        while True:
            client.xread({"bare:wake": "0-0"}, block=10_000)

    threading.Thread(target=listen, daemon=True).start()
    say("ready")
    while True:
        client.evalsha(sha, 3, bare.DUE, bare.INDEX, bare.STREAM, int(time.time() * 1000), bare.BATCH)
        time.sleep(1)


PROCESSES: dict[str, Callable[..., None]] = {
    "pop": pop,
    "ring": ring,
    "read": read,
    "produce": produce,
    "handle": handle,
    "ack": ack,
    "begin": begin,
    "block": block,
    "look": look,
}

if __name__ == "__main__":
    PROCESSES[sys.argv[1]](*sys.argv[2:])
