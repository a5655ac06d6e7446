"""What can be known of a key afterwards: through a queue on a manual clock, and through the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.support.cli import Run, objects, upsert
from timerq import Event, TimerQueue
from timerq.explain import sentences
from timerq.testing import ManualClock, fire_due

TICK = Event("tick")


# ------------------------------------------------------------------------------------------------ a manual clock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(any_url: str, clock: ManualClock) -> Iterator[TimerQueue]:
    with TimerQueue.connect(any_url, namespace="test", clock=clock) as queue:
        queue.init(clock="manual", partitions=3)
        yield queue


def test_who_set_what_was_replaced_is_told(queue: TimerQueue, clock: ManualClock) -> None:
    first = queue.upsert("k", TICK, every="1m", by="ann from shop")
    clock.advance("1s")
    queue.upsert("k", TICK, every="2m")
    clock.advance("1s")
    queue.upsert("k", TICK, every="3m", by="bob")
    found = queue.why("k")
    assert found.entries[0].note == f"{first.version} ann from shop"
    assert sentences(found)[1:4] == [
        "2026-01-01 00:00:00Z: set by ann from shop.",
        "2026-01-01 00:00:01Z: replaced.",
        "2026-01-01 00:00:02Z: replaced by bob.",
    ]


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
    found = queue.why("k", owner="o")
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
    assert said[1] == "2026-01-01 00:00:00Z: set."
    assert "2026-01-01 00:01:30Z: replaced." in said
    assert "2026-01-01 00:08:30Z: resumed." in said
    assert said[-2:] == [
        "Next: it has been due since 2026-01-01 00:09:30Z, for 9m, and fires as soon as a dispatcher looks.",
        "It ends when it has fired 1 more time.",
    ]
    assert fire_due(queue) == 1
    found = queue.why("k", owner="o")
    assert found.schedule is None
    assert [entry.what for entry in found.entries][-1] == "ended"
    assert sentences(found)[-2:] == [
        "2026-01-01 00:18:30Z: ended: its limit of 3 is used up; it fired 3 times.",
        "Nothing waits under this key now: it has ended.",
    ]
    assert queue.why("k").entries == ()


def test_a_one_shot_that_fired_leaves_no_entry_but_what_was_done_to_it(
    queue: TimerQueue, clock: ManualClock
) -> None:
    queue.upsert("k", TICK, delay="1m")
    clock.advance("1m")
    assert fire_due(queue) == 1
    said, look, failed = sentences(queue.why("k"))
    assert look == "Look for its event on the stream events with: timerq tail --no-follow --key k"
    assert (
        failed == "Whether handling it failed is seen with: timerq tail --stream errors --no-follow --key k"
    )
    assert "the log, which has forgotten nothing, has no entry for it" in said
    queue.upsert("k", TICK, delay="1m")
    queue.upsert("k", TICK, delay="2m")
    clock.advance("2m")
    assert fire_due(queue) == 1
    said = sentences(queue.why("k"))[-3]
    assert said.startswith(
        "Nothing waits under this key now. What was set at 2026-01-01 00:01:00Z went without an"
    )


def test_each_kept_key_of_a_busy_log_is_found(queue: TimerQueue, clock: ManualClock) -> None:
    items = [{"key": f"k{i}", "event": TICK, "delay": "1h"} for i in range(50)]
    for _ in range(40):
        queue.upsert_many(items)
        clock.advance("1s")
    for key in ("k0", "k21", "k49"):
        found = queue.why(key)
        assert [entry.what for entry in found.entries] == ["replaced"] * 39
        assert sentences(found)[2].endswith("replaced, 39 times.")


def told(queue: TimerQueue, key: str) -> list[str]:
    """The sentences without their date."""
    return [sentence.removeprefix("2026-01-01 ") for sentence in sentences(queue.why(key))]


def test_a_calendar_is_told_with_its_zone_its_fires_and_who_paused_it(
    queue: TimerQueue, clock: ManualClock
) -> None:
    clock.set("2026-03-27T00:00:00Z")
    queue.upsert("k", TICK, cron="30 2 * * *", timezone="Europe/Paris", by="ann")
    for _ in range(3 * 48):
        clock.advance("30m")
        fire_due(queue)
    queue.pause("k", note="deploy", by="bob")
    clock.advance("2d")
    said = sentences(queue.why("k"))
    assert said == [
        "It publishes tick on stream events, by cron 30 2 * * * in Europe/Paris.",
        "2026-03-27 00:00:00Z: set by ann.",
        "2026-03-27 01:30:00Z: fired on time.",
        "2026-03-28 01:30:00Z: fired on time.",
        "2026-03-29 01:00:00Z: fired on time.",  # the gap
        "2026-03-30 00:00:00Z: paused by bob (deploy).",
        "Over all its versions: 3 times fired.",
        "Next: nothing, until it is resumed: it was paused at 2026-03-30 00:00:00Z by bob (deploy).",
        "Its occurrences have been due since 2026-03-30 00:30:00Z (2026-03-30 02:30:00+02:00 in Europe/Paris): "
        "resumed, those that were missed become one late event.",
    ]
    queue.resume("k", by="cy")
    fire_due(queue)
    assert sentences(queue.why("k"))[6:] == [
        "2026-04-01 00:00:00Z: resumed by cy.",
        "2026-04-01 00:00:00Z: fired, 1d 23h late; the event stands for 1 later occurrence too.",
        "Over all its versions: 4 times fired, 1 missed and folded into later events.",
        "Next: it fires at 2026-04-01 00:30:00Z (2026-04-01 02:30:00+02:00 in Europe/Paris), in 30m.",
    ]


def test_occurrences_that_were_left_out_are_told_with_the_reason(
    queue: TimerQueue, clock: ManualClock
) -> None:
    queue.upsert("late", TICK, cron="* * * * *", misfire="skip", grace="5s")
    queue.upsert("busy", TICK, every="1m", overlap="skip", running_timeout="30m")
    queue.upsert("queued", TICK, every="1m", overlap="queue", running_timeout="30m")
    for _ in range(3):
        clock.advance("1m")
        fire_due(queue)
    event = queue.get("busy").running
    assert f"00:02:00Z to 2026-01-01 00:03:00Z: 2 occurrences left out: {event} is not done." in told(
        queue, "busy"
    )
    event = queue.get("queued").running
    said = told(queue, "queued")
    assert f"00:02:00Z: an occurrence waits for the event before it to be done ({event})." in said
    assert said[-1] == "Next: its occurrence of 2026-01-01 00:02:00Z fires as soon as that event is done."
    clock.advance("30m")
    fire_due(queue)
    assert "00:33:00Z: 29 occurrences left out: too late." in told(queue, "late")
    assert any(
        "was not done in time and is waited for no more" in sentence for sentence in told(queue, "queued")
    )


def test_failures_triggers_and_backfills_are_told(queue: TimerQueue, clock: ManualClock) -> None:
    queue.upsert("k", TICK, every="1m", pause_after=2)
    events = []
    for _ in range(2):
        clock.advance("1m")
        fire_due(queue)
        events.append(queue.get("k").running)
        assert queue.done(events[-1], error="boom")
    triggered = queue.trigger("k", by="cy").event_id
    assert queue.backfill("k", "2025-12-31T00:00:00Z", "2025-12-31T00:09:00Z", by="cy").published == 10
    clock.advance("90s")
    queue.resume("k", from_now=True, by="dee")
    assert told(queue, "k")[1:] == [
        "2 failures in a row pause it.",
        "00:00:00Z: set.",
        "00:01:00Z: fired on time.",
        f"00:01:00Z: the handling of event {events[0]} failed: boom.",
        "00:02:00Z: fired on time.",
        f"00:02:00Z: the handling of event {events[1]} failed: boom.",
        "00:02:00Z: paused by timerq (2 failures in a row: boom).",
        f"00:02:00Z: triggered by cy: published at once as event {triggered}, outside its timing.",
        "00:02:00Z: backfilled by cy: 10 occurrences of the past published, from that of 2025-12-31 00:00:00Z on.",
        "00:03:30Z: 1 occurrence left out: resumed from now.",
        "00:03:30Z: resumed by dee (from now).",
        "Over all its versions: 2 times fired, 1 left out.",
        "Next: it fires at 2026-01-01 00:04:00Z, in 30s.",
    ]


# ------------------------------------------------------------------------------------------------ the command line


@pytest.fixture
def queue_on_redis(redis_url: str) -> Iterator[TimerQueue]:
    with TimerQueue.connect(redis_url) as queue:
        yield queue


def write(client: redis.Redis, key: str, what: str, **more: Any) -> None:
    id = f"default\0{key}\0"
    fields: dict[Any, Any] = {
        "what": what,
        "id": id,
        "version": 5,
        "at_ms": 1_900_000_000_000,
        "note": "",
        **more,
    }
    client.xadd("{timerq:0}:log", fields)


@pytest.mark.one_server
def test_why_tells_what_happened_and_what_comes_next(run: Run) -> None:
    upsert(run, "k", "--every", "1h")
    upsert(run, "k", "--every", "2h")
    run("pause", "k", "--by", "ann")
    lines = run("why", "k").stdout.splitlines()
    assert lines[0] == "It publishes t on stream events, every 2h."
    assert re.search(r": set by \S+@\S+\.$", lines[1])
    assert re.search(r": replaced( by \S+)?\.$", lines[2])
    assert lines[3].endswith(": paused by ann.")
    assert lines[4] == "Over all its versions: 0 times fired."
    assert lines[5].startswith("Next: nothing, until it is resumed: it was paused at 20")
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
    assert "timerq tail --no-follow --key typo" in result.stdout
    assert "never set" not in result.stderr
    assert "--owner" in result.stderr
    assert "--owner" not in run("why", "typo", "--owner", "o").stderr
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
    assert re.search(r": cancelled( by \S+)?\.$", result.stdout, re.MULTILINE)
    assert result.stdout.splitlines()[-3].startswith("Nothing waits under this key now.")


@pytest.mark.one_server
def test_why_of_a_key_that_was_set_anew_tells_the_life_it_has_now(run: Run) -> None:
    for _ in range(3):
        upsert(run, "k")
        run("cancel", "k")
    upsert(run, "k")
    result = run("why", "k")
    assert "this key was set 3 times (3 cancelled)." in result.stdout
    assert (result.stdout.count(": set."), "-n 1000" in result.stderr) == (1, True)
    result = run("why", "k", "-n", "1000")
    assert (result.stdout.count(": set."), result.stderr) == (4, "")


@pytest.mark.one_server
def test_what_waits_for_an_event_is_told_before_it_is_left_out(run: Run, queue_on_redis: TimerQueue) -> None:
    upsert(run, "k", "--every", "1h", "--initial-delay", "0s", "--overlap", "skip", "--running-timeout", "2h")
    assert fire_due(queue_on_redis) == 1
    event = queue_on_redis.get("k").running
    said = run("why", "k").stdout
    assert f"is left out unless event {event} is done by then." in said
    assert f"timerq done {event}" in said
    for command in ("get", "next"):
        assert f"Event {event} is not done: unless it is by then" in run(command, "k").stderr
    assert f"running          {event}, given up 20" in run("get", "k").stdout
    assert run("done", event).exit_code == 0
    assert "left out unless" not in run("why", "k").stdout
    assert run("next", "k").stderr == ""


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
