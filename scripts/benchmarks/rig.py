"""Servers, processes beside, and rounds in which the sides take turns."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from tests.support.servers import Server

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "bench"


@dataclass(frozen=True, slots=True)
class Rig:
    """What a figure is measured with: the server, and whether a short look is enough."""

    server: Server
    memory_server: Server
    quick: bool

    def choose(self, full: int, quick: int) -> int:
        """A number of rounds, items or seconds."""
        return quick if self.quick else full

    @contextlib.contextmanager
    def redis(self, server: Server | None = None) -> Iterator[tuple[str, redis.Redis]]:
        """A fresh server on a loopback port, as (URL, client); nothing is persisted."""
        with (
            (server or self.server).run(port=0, unix_socket=False) as running,
            redis.Redis.from_url(running.tcp_url) as client,
        ):
            yield running.tcp_url, client


@contextlib.contextmanager
def dispatchers(url: str, count: int = 1) -> Iterator[list[int]]:
    """``workers.dispatch`` processes; their process ids. They end with SIGTERM."""
    env = {"TIMERQ_REDIS_URL": url, "TIMERQ_NAMESPACE": NAMESPACE}
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(process(["workers.dispatch"], env=env, stderr=subprocess.DEVNULL))
            for _ in range(count)
        ]
        yield [child.pid for child in processes]


@contextlib.contextmanager
def beside(name: str, *arguments: object, given: object = None) -> Iterator[subprocess.Popen[str]]:
    """One of `scripts.benchmarks.processes`; ``given`` is what it reads, as JSON, on its standard input."""
    with process(["scripts.benchmarks.processes", name, *map(str, arguments)]) as child:
        assert child.stdin is not None
        if given is not None:
            child.stdin.write(json.dumps(given) + "\n")
            child.stdin.flush()
        yield child


@contextlib.contextmanager
def process(
    words: Sequence[str], env: Mapping[str, str] | None = None, stderr: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A Python module as a process of the project's; ended when the block ends."""
    child = subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()


def answer(child: subprocess.Popen[str]) -> Any:
    """The next line of a process's output, as JSON."""
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise RuntimeError(f"{child.args!r} ended without an answer")
    return json.loads(line)


def take_turns(rounds: int, sides: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Runs every side once a round, in changing order, so that whatever else the machine does meets all of them."""
    names = list(sides)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            found[name].append(sides[name]())
    return found


def rate(seconds: float, step: Callable[[], int]) -> float:
    """How many a second ``step`` does, each returning how many it did."""
    done = 0
    start = time.perf_counter()
    while (took := time.perf_counter() - start) < seconds:
        done += step()
    return done / took


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def cpu_seconds(pid: int) -> float:
    """What a process's threads have used so far: in nanoseconds where the kernel tells (Linux), else in ticks."""
    try:
        return sum(
            int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
        ) / 1e9 or _ticks(pid)
    except OSError:
        return _ticks(pid)


def _ticks(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0, pause: float = 0.002) -> None:
    """Polls; raises where it takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds:g} s")
        time.sleep(pause)
