"""Declared sets on real servers: two deploys at once, and what files and functions become."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from tests.support.cluster import LocalCluster
from timerq import (
    Event,
    Handle,
    InvalidDeclaration,
    Outcome,
    QueueUnavailable,
    TimerQueue,
    Upsert,
    preview,
    schedule,
    tick_name,
)
from timerq.commands.arming import timing_of
from timerq.commands.planned import Applied
from timerq.commands.wording import words_of
from timerq.declare import Declared, DeclaredSet, load
from timerq.declare.apply import apply, plan

ROUNDS = 150


def declare(**words: dict[str, Any]) -> DeclaredSet:
    upserts = [Upsert(name, Event(name), **more) for name, more in words.items()]
    return DeclaredSet("jobs", tuple(Declared(upsert, "here") for upsert in upserts))


def words(queue: TimerQueue, label: str = "jobs") -> dict[str, dict[str, Any]]:
    return {s.key: words_of(s.event, s.timing) for s in queue.list() if s.label == label}


BLUE = declare(
    **{f"both{i}": {"every": 1000 + i} for i in range(40)},
    **{f"blue{i}": {"cron": "@daily"} for i in range(20)},
)
GREEN = declare(
    **{f"both{i}": {"every": 2000 + i} for i in range(40)},
    **{f"green{i}": {"cron": "@hourly"} for i in range(20)},
)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What the calls return, each in a thread of its own, begun together."""
    gate = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def run(i: int, call: Callable[[], Any]) -> None:
        gate.wait(20)
        try:
            results[i] = call()
        except BaseException as error:  # it is looked at by the test
            results[i] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@pytest.mark.parametrize("partitions", [1, 4])
def test_two_deploys_at_once_end_in_the_state_of_one(any_url: str, partitions: int) -> None:
    seen: Counter[Any] = Counter()
    with TimerQueue.connect(any_url) as one, TimerQueue.connect(any_url) as other:
        one.init(partitions=partitions)
        for declared in (BLUE, GREEN):
            apply(one, declared, prune=True)
            assert plan(one, declared).counts == {"unchanged": 60}
        state = {
            label: {one.key: words_of(one.event, timing_of(one)) for one in declared.upserts}
            for label, declared in (("blue", BLUE), ("green", GREEN))
        }
        for _ in range(ROUNDS):
            results: list[Applied[Handle]] = at_once(
                lambda: apply(one, BLUE, prune=True), lambda: apply(other, GREEN, prune=True)
            )
            blue, green = results
            last = "blue" if blue.generation > green.generation else "green"
            assert (blue if last == "blue" else green).outcome is Outcome.DONE
            assert words(one) == state[last]
            seen[last, blue.outcome, green.outcome] += 1
    assert {last for last, _, _ in seen} == {"blue", "green"}, seen
    assert any(Outcome.SUPERSEDED in outcomes for _, *outcomes in seen), seen


def test_deploys_of_different_sets_do_not_meet(redis_url: str) -> None:
    web = DeclaredSet("web", declare(a={"every": 5}, b={"cron": "@daily"}).schedules)
    api = DeclaredSet("api", declare(c={"every": 5}).schedules)
    with TimerQueue.connect(redis_url) as one, TimerQueue.connect(redis_url) as other:
        one.init(partitions=3)
        for _ in range(30):
            for result in at_once(lambda: apply(one, web, prune=True), lambda: apply(other, api, prune=True)):
                assert result
            assert (set(words(one, "web")), set(words(one, "api"))) == ({"a", "b"}, {"c"})


def test_an_apply_never_works_on_half_a_set(cluster: LocalCluster) -> None:
    """While a slot is on its way, part of its keys lies here and part there."""
    with TimerQueue.connect(cluster.url) as queue:
        namespace = queue.init(partitions=3)
        assert apply(queue, BLUE, prune=True)
        tag = namespace.tags[0]
        slot = key_slot(tag)
        source = cluster.owner_of(slot)
        target = (source + 1) % 3
        cluster.begin_move(slot, target)
        try:
            # all that the scripts name has moved, the records are still here
            names = (b"meta", b"heads", b"keys", b"due:default", b"set:default\0jobs")
            moved: list[Any] = [tag + b":" + name for name in names]
            with cluster.client(source) as client:
                assert client.exists(*moved) == len(moved)
                client.execute_command(
                    "MIGRATE", "127.0.0.1", cluster.nodes[target].port, "", 0, 5000, "KEYS", *moved
                )
            with pytest.raises(QueueUnavailable):
                plan(queue, GREEN)
            with pytest.raises(QueueUnavailable):
                apply(queue, GREEN, prune=True)
            while cluster.move_keys(slot, source, target):
                pass
            cluster.end_move(slot, target)
            assert apply(queue, GREEN, prune=True)
            assert set(words(queue)) == {declared.name for declared in GREEN.schedules}
        finally:
            cluster.abandon_move(slot)
            if cluster.owner_of(slot) != source:  # back, for the tests that share these nodes
                cluster.begin_move(slot, source)
                while cluster.move_keys(slot, target, source):
                    pass
                cluster.end_move(slot, source)


def test_a_handle_of_an_apply_takes_its_schedule_back(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        (handle,) = apply(queue, declare(a={"every": 5})).items
        assert isinstance(handle, Handle)
        assert handle.cancel()
        assert plan(queue, declare(a={"every": 5})).counts == {"create": 1}


def test_a_plan_makes_no_namespace(redis_url: str, redis_client: Any) -> None:
    past = declare(a={"every": 5}, b={"every": 5, "until": "2020-01-01T00:00:00Z"})
    with TimerQueue.connect(redis_url) as queue:
        assert [(item.key, item.action) for item in plan(queue, past).items] == [
            ("a", "create"),
            ("b", "ended"),
        ]
    assert redis_client.keys() == []


NEVER = {
    "exclude": {"cron": "0 9 * * *", "exclude": "2020-01-01/9999-12-31"},
    "dst_gap": {"cron": "30 2 * 3 0L", "timezone": "Europe/Berlin", "dst_gap": "skip"},
}


@pytest.mark.one_server
@pytest.mark.parametrize("word", NEVER)
@pytest.mark.parametrize("call", [plan, apply])
def test_what_would_never_fire_again_stops_all_of_a_set_and_says_where_it_stands(
    redis_url: str, call: Callable[..., Any], word: str
) -> None:
    declared = declare(first={"every": 5000}, never=NEVER[word], last={"every": 5000})
    with TimerQueue(redis_url, namespace="decl") as queue:
        for _ in range(2):  # the namespace is made in between
            with pytest.raises(InvalidDeclaration) as caught:
                call(queue, declared)
            assert str(caught.value).startswith(f"here: never.{word}: got '")
            assert list(queue.list()) == []
            apply(queue, declare())
        assert apply(queue, BLUE)
        with pytest.raises(InvalidDeclaration):
            call(queue, declared)
        assert set(words(queue)) == {upsert.key for upsert in BLUE.upserts}


def test_durability_is_asked_for_and_told(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        applied = apply(queue, declare(a={"every": 5}), durable="replicas=1,timeout=1ms")
        (handle,) = applied.items
        assert isinstance(handle, Handle)
        assert handle.durable == "accepted"


def test_files_and_functions_become_the_same_schedules(redis_url: str, tmp_path: Path) -> None:
    @schedule(cron="0 9 * * MON-FRI", timezone="Europe/Paris", payload={"a": [1, None]})
    def morning() -> None: ...

    file = tmp_path / "jobs.yaml"
    file.write_text('morning: {cron: "0 9 * * MON-FRI", timezone: Europe/Paris, payload: {a: [1, null]}}')
    with TimerQueue.connect(redis_url) as queue:
        assert apply(queue, load(file))
        assert plan(queue, DeclaredSet("jobs", (morning.declared,))).counts == {"unchanged": 1}
        found = queue.get("morning")
        assert found is not None
        assert (found.label, found.event.payload) == ("jobs", {"a": [1, None]})


def test_the_example_runs_with_one_command() -> None:
    """`morning` and `cleanup`, from a file and from functions: a week of them, with a clock change."""
    script = Path(__file__).parents[2] / "examples" / "schedules" / "run.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0].count("CREATED") == 2
    assert said[1] == "planned jobs.py: {'unchanged': 2}"
    week: dict[str, Any] = {"after": "2026-10-22T12:00:00Z", "n": 7}
    due = [("cleanup", instant) for instant in preview(cron="@daily", **week)]
    due += [
        ("morning", instant)
        for instant in preview(cron="0 9 * * MON-FRI", timezone="Europe/Paris", **week)
        if instant < datetime(2026, 10, 29, 12, tzinfo=UTC)
    ]
    due.sort(key=lambda pair: pair[1])
    assert [line.split()[0] for line in said[2:]] == [
        tick_name(name, round(instant.timestamp() * 1000)) for name, instant in due
    ]
    assert said[2].endswith("cleaned up as of Fri 23 Oct 00:00 UTC")
    assert said[3].endswith("the agent is asked: Summarise yesterday.")
