"""Consumers as processes: stopped, killed at every step between read and ack, and taken over from."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.support.cli import Program, run_cli
from tests.support.events import Stopwatch
from tests.support.handlers import POINTS
from tests.support.proxy import wait_for
from tests.support.worker import Worker
from timerq import Event, TimerQueue
from timerq.keys import hold, lease, retry, stream

pytestmark = pytest.mark.one_server
APP = "tests.support.handlers:app"
PATIENT = "10s"
"""A lease that ends with its consumer, and not because the machine is slow."""


@pytest.fixture
def queue(redis_url: str) -> Iterator[TimerQueue]:
    with TimerQueue.connect(redis_url) as queue:
        queue.init()
        yield queue


class Consuming(Worker):
    """`python -m workers.consume` with the handlers of tests/support/handlers.py."""

    says = "reads stream"

    def __init__(self, url: str, **environment: str) -> None:
        super().__init__(url, **environment)
        self._command = [sys.executable, "-m", "workers.consume", APP]


def notes(client: redis.Redis, name: str) -> list[list[str]]:
    """What the handlers have noted: id, attempt, lane, payload."""
    lines: list[bytes] = client.lrange(name, 0, -1)  # type: ignore[assignment]
    return [line.decode().split(" ") for line in lines]


def publish(queue: TimerQueue, count: int, lanes: int = 1_000_000) -> list[str]:
    ids = []
    for n in range(count):
        change = queue.publish(Event("t", n), key=f"k{n % lanes}")
        assert change.event_id is not None
        ids.append(change.event_id)
    return ids


def nothing_is_left(client: redis.Redis, queue: TimerQueue) -> bool:
    """No event pending, leased, waiting for a retry or held."""
    assert queue.namespace is not None
    for tag in queue.namespace.tags:
        groups = client.xinfo_groups(stream(tag, b"events"))
        if any(info["pending"] or info.get("lag") for info in groups):
            return False
        if client.exists(*(key(tag, b"events", b"g") for key in (hold, lease, retry))):
            return False
    return True


# ------------------------------------------------------------------------------------------------ stopped


def test_b92_a_consumer_that_is_stopped_in_the_middle(
    redis_url: str, queue: TimerQueue, redis_client: redis.Redis
) -> None:
    ids = publish(queue, 100)
    with Consuming(redis_url, CONCURRENCY="100", SLOW_S="0.3", DRAIN="0s") as first:
        wait_for(lambda: len(notes(redis_client, "begun")) >= 10, "ten have begun")
        with Stopwatch() as watch:
            assert first.terminate() == 0
        assert watch.seconds < 10
        lines = [line.strip() for line in first.lines]
        assert sum("Traceback" in line for line in lines) == lines.count("ValueError: the first time")
    begun = {id for id, *_ in notes(redis_client, "begun")}
    ended = {id for id, *_ in notes(redis_client, "ended")}
    with Consuming(redis_url, CONCURRENCY="100", LEASE=PATIENT):
        wait_for(lambda: nothing_is_left(redis_client, queue), "all are settled")
    times = Counter(id for id, *_ in notes(redis_client, "ended"))
    assert set(times) == set(ids)
    assert {id for id, n in times.items() if n > 1} <= begun & ended  # those in hand at the most


def test_a_stop_that_waits_handles_each_once(
    redis_url: str, queue: TimerQueue, redis_client: redis.Redis
) -> None:
    ids = publish(queue, 60)
    with Consuming(redis_url, CONCURRENCY="10", SLOW_S="0.05", DRAIN="20s", LEASE=PATIENT) as first:
        wait_for(lambda: len(notes(redis_client, "ended")) >= 10, "some have ended")
        assert first.terminate() == 0
    with Consuming(redis_url, CONCURRENCY="10", LEASE=PATIENT):
        wait_for(lambda: nothing_is_left(redis_client, queue), "all are settled")
    assert Counter(id for id, *_ in notes(redis_client, "ended")) == dict.fromkeys(ids, 1)


# ------------------------------------------------------------------------------------------------ killed


@pytest.mark.parametrize("ordered", ["0", "1"])
@pytest.mark.parametrize("visit", [1, 7])
@pytest.mark.parametrize("point", POINTS)
def test_a_consumer_that_is_killed_at_any_step(
    redis_url: str, queue: TimerQueue, redis_client: redis.Redis, point: str, visit: int, ordered: str
) -> None:
    ids = publish(queue, 40, lanes=5)
    first = Consuming(redis_url, KILL_AT=f"{point}:{visit}", ORDERED=ordered)
    with first:
        if visit > 1 and point == "received":  # one read brings many: it comes back for what comes later
            for n in range(40, 60):
                change = queue.publish(Event("t", n), key=f"k{n % 5}")
                assert change.event_id is not None
                ids.append(change.event_id)
        assert first.process.wait(30) == -signal.SIGKILL  # the point was visited
    second, third = (Consuming(redis_url, ORDERED=ordered, LEASE=PATIENT) for _ in range(2))
    with second, third:
        wait_for(lambda: nothing_is_left(redis_client, queue), "nothing is pending for ever")
    ended, begun = notes(redis_client, "ended"), notes(redis_client, "begun")
    times = Counter(id for id, *_ in ended)
    assert set(times) == set(ids)  # at least once
    assert max(times.values()) <= 2  # what was in hand may have been handled twice
    for id in ids:  # the attempts of one event count its handlings
        attempts = [int(attempt) for one, attempt, *_ in begun if one == id]
        assert attempts == sorted(attempts)
        assert len(attempts) <= attempts[-1] <= len(attempts) + 1
    if ordered == "1":
        for lane in range(5):
            order = list(dict.fromkeys(int(n) for _, _, name, n in ended if name == f"k{lane}"))
            assert order == sorted(order)


def test_a_consumer_that_was_frozen_cannot_settle_what_another_one_has(
    redis_url: str, queue: TimerQueue, redis_client: redis.Redis
) -> None:
    ids = publish(queue, 3)
    with Consuming(redis_url, STOP_AT="in the handler:3", SLOW_S="1") as frozen:
        wait_for(lambda: frozen.stands_still, "all have begun")
        with Consuming(redis_url, LEASE=PATIENT):
            wait_for(lambda: nothing_is_left(redis_client, queue), "the other one has handled them")
        frozen.thaw()
        frozen.wait_for_line("has gone to another consumer", times=1)
        assert frozen.terminate() == 0
    assert {id for id, *_ in notes(redis_client, "ended")} == set(ids)
    assert {int(attempt) for _, attempt, *_ in notes(redis_client, "begun")} == {1, 2}


# ------------------------------------------------------------------------------------------------ the command line


def test_the_command_runs_an_app_until_it_is_stopped(
    redis_url: str, queue: TimerQueue, redis_client: redis.Redis
) -> None:
    with Program("consume", APP, "--concurrency", "3", "--name", "shop", url=redis_url) as program:
        assert f"{APP} handles events of timerq at " in program.line()
        publish(queue, 3)
        wait_for(lambda: nothing_is_left(redis_client, queue), "all are handled")
        code, _, said = program.end(signal.SIGTERM)
    assert code == 0
    assert "consumer shop-" in said


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("no_such_module:app", "no file, folder or module"),
        ("tests.support.handlers:missing", "there is no missing in it"),
        ("tests.support.handlers:WORDS", "want a timerq.Consumer"),
        ("tests.support.worker", "no consumer in it"),
        ("not a name", "want a module"),
    ],
)
def test_what_is_no_app_is_refused(target: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    result = run_cli("consume", target)
    assert result.exit_code == 2
    assert text in " ".join(result.stderr.split())


@pytest.mark.parametrize("words", [["--redis", "redis://127.0.0.1:2/0"], ["--namespace", "another"]])
def test_a_place_that_is_not_the_apps_own_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    text = 'import timerq\napp = timerq.Consumer("redis://127.0.0.1:1/0", group="g", namespace="mine")\n'
    (tmp_path / "an_app_with_a_place.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    result = run_cli("consume", "an_app_with_a_place:app", *words)
    assert result.exit_code == 2
    assert f"mine at redis://127.0.0.1:1/0: leave {words[0]} out" in " ".join(result.output.split())
