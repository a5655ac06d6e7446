"""What can be known of a key afterwards: through a queue on a manual clock, and through the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.support.cli import Run, objects, run_cli, upsert
from timerq import Event, TimerQueue
from timerq.commands.command import Scope
from timerq.commands.history import History, history
from timerq.explain import sentences
from timerq.testing import ManualClock, fire_due

TICK = Event("tick")


def ask(queue: TimerQueue, key: str, owner: str | None = None) -> History:
    namespace = queue.init()
    scope = Scope(namespace, queue.tenant, queue.tenant.encode())
    return queue.run(history(scope, key, owner))


# ------------------------------------------------------------------------------------------------ a manual clock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(any_url: str, clock: ManualClock) -> Iterator[TimerQueue]:
    with TimerQueue.connect(any_url, namespace="test", clock=clock) as queue:
        queue.init(clock="manual", partitions=3)
        yield queue


def test_the_life_of_a_recurring_schedule(queue: TimerQueue, clock: ManualClock) -> None:
    first = queue.upsert("k", TICK, every="1m", owner="o")
    clock.advance("1m")
    assert fire_due(queue) == 1
    clock.advance("30s")
    second = queue.upsert("k", TICK, every="2m", limit=3, owner="o")
    queue.pause("k", owner="o")
    clock.advance("7m")
    assert fire_due(queue) == 0
    queue.resume("k", owner="o")
    assert fire_due(queue) == 1
    clock.advance("10m")
    found = ask(queue, "k", "o")
    assert [(entry.what, entry.note) for entry in found.entries] == [
        ("replaced", str(first.version)),
        ("paused", ""),
        ("resumed", ""),
        ("missed", "2"),
    ]
    assert {entry.version for entry in found.entries} == {second.version}
    assert (found.asked_ms, found.dispatchers, found.whole) == (clock.now_ms, None, True)
    said = sentences(found)
    assert said[0] == "It publishes tick on stream events, every 2m, 3 times at the most."
    assert said[1] == f"2026-01-01 00:00:00Z: set, as version {first.version}."
    assert f"2026-01-01 00:01:30Z: replaced: version {second.version} took the place of" in " ".join(said)
    assert "2026-01-01 00:08:30Z: resumed." in said
    assert said[-2:] == [
        "Next: it has been due since 2026-01-01 00:09:30Z, for 9m, and fires as soon as a dispatcher looks.",
        "It ends when it has fired 1 more time.",
    ]
    assert fire_due(queue) == 1
    found = ask(queue, "k", "o")
    assert found.schedule is None
    assert [entry.what for entry in found.entries][-1] == "ended"
    assert sentences(found)[-1].startswith("Nothing waits under this key now. If it was set again")
    assert ask(queue, "k").entries == ()


def test_a_one_shot_that_fired_leaves_no_entry_but_what_was_done_to_it(
    queue: TimerQueue, clock: ManualClock
) -> None:
    queue.upsert("k", TICK, delay="1m")
    clock.advance("1m")
    assert fire_due(queue) == 1
    (said,) = sentences(ask(queue, "k"))
    assert "the log, which has forgotten nothing, has no entry for it" in said
    queue.upsert("k", TICK, delay="1m")
    again = queue.upsert("k", TICK, delay="2m")
    clock.advance("2m")
    assert fire_due(queue) == 1
    said = sentences(ask(queue, "k"))[-1]
    assert said.startswith(f"Nothing waits under this key now. Version {again.version} went without an entry")


def test_each_kept_key_of_a_busy_log_is_found(queue: TimerQueue, clock: ManualClock) -> None:
    items = [{"key": f"k{i}", "event": TICK, "delay": "1h"} for i in range(50)]
    for _ in range(40):
        queue.upsert_many(items)
        clock.advance("1s")
    for key in ("k0", "k21", "k49"):
        found = ask(queue, key)
        assert [entry.what for entry in found.entries] == ["replaced"] * 39
        assert sentences(found)[2].endswith(f"at last by version {found.schedule.version}.")


# ------------------------------------------------------------------------------------------------ the command line


@pytest.fixture
def run(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("TIMERQ_REDIS_URL", redis_url)
    return run_cli


def write(client: redis.Redis, key: str, what: str, **more: Any) -> None:
    id = f"default\0{key}\0"
    fields: dict[Any, Any] = {"what": what, "id": id, "version": 5, "at_ms": 1_900_000_000_000, "note": "", **more}
    client.xadd("{timerq:0}:log", fields)


@pytest.mark.one_server
def test_why_tells_what_happened_and_what_comes_next(run: Run) -> None:
    first = upsert(run, "k", "--every", "1h")["version"]
    second = upsert(run, "k", "--every", "2h")["version"]
    run("pause", "k")
    lines = run("why", "k").stdout.splitlines()
    assert lines[0] == "It publishes t on stream events, every 2h."
    assert lines[1].endswith(f": set, as version {first}.")
    assert lines[2].endswith(f"version {second} took the place of version {first}, which fires no more.")
    assert lines[3].endswith(": paused.")
    assert lines[4] == "Over all its versions: 0 times fired."
    assert lines[5].startswith("Next: nothing, until it is resumed. It is paused since 20")
    assert len(lines) == 7
    run("resume", "k")
    result = run("why", "k", "-n", "1")
    assert "3 earlier entries are left out here." in result.stdout
    assert result.stdout.splitlines()[-1] == "No dispatcher lives: nothing fires until one does."
    assert result.exit_code == 0


@pytest.mark.one_server
def test_why_as_json(run: Run) -> None:
    first = upsert(run, "k", "--owner", "o")["version"]
    second = upsert(run, "k", "--owner", "o", "--delay", "2h")["version"]
    (found,) = objects(run("why", "k", "--owner", "o", "--json"))
    assert (found["key"], found["owner"], found["schedule"]["version"]) == ("k", "o", second)
    (entry,) = found["entries"]
    assert (entry["what"], entry["version"], entry["note"], entry["by"]) == (
        "replaced",
        second,
        str(first),
        None,
    )
    assert (found["since_ms"], found["since"]) == (entry["at_ms"], entry["at"])
    assert (found["whole"], found["dispatchers"], found["unreadable"]) == (True, 0, None)
    assert found["sentences"][0] == "It publishes t on stream events, once."
    run("cancel", "k", "--owner", "o")
    (found,) = objects(run("why", "k", "--owner", "o", "--json"))
    assert found["schedule"] is None
    assert [entry["what"] for entry in found["entries"]] == ["replaced", "cancelled"]


@pytest.mark.one_server
@pytest.mark.parametrize("made", [False, True])
def test_why_of_a_key_that_nobody_knows_is_not_found(run: Run, redis_client: redis.Redis, made: bool) -> None:
    if made:
        run("init")
    result = run("why", "typo")
    assert result.exit_code == 3
    assert "never set, or it has fired" in result.stdout
    assert "nothing is known of this key" in result.stderr
    assert "--owner" in result.stderr
    if not made:
        assert redis_client.keys() == []  # looking makes nothing
    result = run("why", "typo", "--json")
    assert result.exit_code == 3
    assert objects(result)[0]["schedule"] is None


@pytest.mark.one_server
def test_why_of_a_cancelled_one_is_an_answer(run: Run) -> None:
    upsert(run, "k")
    run("cancel", "k")
    result = run("why", "k")
    assert result.exit_code == 0
    assert "cancelled: version" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("Nothing waits under this key now.")


@pytest.mark.one_server
def test_why_shows_other_peoples_words_escaped(run: Run, redis_client: redis.Redis) -> None:
    upsert(run, "k")
    write(redis_client, "k", "paused", note="\x1b[2Jdeploy\n\u202e", by="b\x07ob")
    result = run("why", "k")
    assert r"paused by b\x07ob (\x1b[2Jdeploy\n\u202e)." in result.stdout
    assert all(char.isprintable() or char == "\n" for char in result.output)


@pytest.mark.one_server
def test_why_of_a_record_that_cannot_be_read(run: Run, redis_client: redis.Redis) -> None:
    upsert(run, "k")
    redis_client.hset("{timerq:0}:sch:default\0k\0", "d", "nonsense")
    result = run("why", "k")
    assert result.exit_code == 0
    assert "cannot be read: unreadable record" in result.stdout


@pytest.mark.one_server
def test_why_refuses_what_is_no_key(run: Run) -> None:
    assert run("why", "").exit_code == 2
    assert run("why", "k", "--owner", "").exit_code == 2
    assert run("why", "k", "-n", "-1").exit_code == 2
