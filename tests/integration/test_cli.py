"""The command line: each verb, and how what it prints looks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.cli import Run, objects, sit_down, upsert
from timerq import Event, TimerQueue
from timerq.cli import show
from timerq.testing import fire_due

pytestmark = pytest.mark.one_server


@pytest.fixture
def queue(redis_url: str) -> Iterator[TimerQueue]:
    with TimerQueue.connect(redis_url) as queue:
        yield queue


def test_a_schedule_is_made_looked_at_changed_and_cancelled(run: Run, queue: TimerQueue) -> None:
    made = upsert(
        run, "order-42", "--payload", '{"order_id": 42}', "--owner", "shop", "--correlation", "a=b=c"
    )
    assert (made["outcome"], made["key"], made["owner"], made["state"]) == (
        "CREATED",
        "order-42",
        "shop",
        "armed",
    )
    assert datetime.fromisoformat(made["at"]) == datetime.fromtimestamp(made["at_ms"] / 1000, UTC)

    (got,) = objects(run("get", "order-42", "--owner", "shop", "--json"))
    assert got["event"] == {
        "type": "t",
        "payload": {"order_id": 42},
        "stream": "events",
        "correlation": {"a": "b=c"},
        "codec": "msgpack",
    }
    assert (got["version"], got["at_ms"], got["n"]) == (made["version"], made["at_ms"], 0)

    again = upsert(run, "order-42", "--owner", "shop", "--delay", "2h")
    assert (again["outcome"], again["replaced_version"]) == ("REPLACED", made["version"])

    for verb, outcome in (
        ("pause", "PAUSED"),
        ("pause", "UNCHANGED"),
        ("resume", "RESUMED"),
        ("trigger", "TRIGGERED"),
    ):
        (changed,) = objects(run(verb, "order-42", "--owner", "shop", "--json"))
        assert changed["outcome"] == outcome
    assert re.fullmatch(rf"0-{changed['version']}-t[0-9]+", changed["event_id"])
    assert run("count").stdout == "1\n"

    assert "CANCELLED" in run("cancel", "order-42", "--owner", "shop").stdout
    assert queue.get("order-42", owner="shop") is None


def test_every_option_of_upsert_reaches_the_queue(run: Run, queue: TimerQueue) -> None:
    upsert(
        run,
        "k",
        *(
            "--every",
            "90s",
            "--initial-delay",
            "0s",
            "--until",
            "2040-01-01T00:00:00Z",
            "--limit",
            "7",
            "--paused",
        ),
        *(
            "--stream",
            "audit",
            "--codec",
            "json",
            "--mode",
            "keep",
            "--if-version",
            "0",
            "--idempotency-key",
            "once",
        ),
    )
    schedule = queue.get("k")
    assert schedule is not None
    timing = schedule.timing
    assert (timing.every_ms, timing.initial_delay_ms, timing.limit) == (90_000, 0, 7)
    assert timing.until_ms == 2_208_988_800_000
    assert (schedule.state, schedule.event.stream, schedule.event.codec) == ("paused", "audit", "json")
    assert upsert(run, "k", "--every", "1s", "--mode", "keep")["outcome"] == "KEPT"
    assert upsert(run, "k", "--every", "2s", "--not-paused", "--restart", "--reset")["state"] == "armed"
    assert upsert(run, "d", "--max-wait", "1h", "--delay", "10m")["outcome"] == "CREATED"
    assert upsert(run, "s", "--every", "1s", "--start", "1900000000000")["at_ms"] == 1_900_000_000_000


def test_digits_are_epoch_milliseconds(run: Run) -> None:
    assert upsert(run, "k", "--at", "1900000000123")["at_ms"] == 1_900_000_000_123
    assert upsert(run, "k", "--at", "2030-01-31T09:00:00+01:00")["at"] == "2030-01-31T08:00:00.000Z"


def test_a_payload_comes_from_a_file_or_from_stdin(run: Run, queue: TimerQueue, tmp_path: Path) -> None:
    path = tmp_path / "payload.json"
    path.write_text('﻿{"id": 130775545883395173, "l": [], "o": {}, "f": 1.0}', encoding="utf-8")
    upsert(run, "k", "--payload-file", str(path))
    schedule = queue.get("k")
    assert schedule is not None
    assert repr(schedule.event.payload) == "{'id': 130775545883395173, 'l': [], 'o': {}, 'f': 1.0}"
    assert (
        run("upsert", "s", "--type", "t", "--delay", "1h", "--payload-file", "-", input="[1]").exit_code == 0
    )
    schedule = queue.get("s")
    assert schedule is not None
    assert schedule.event.payload == [1]


def test_publish_and_tail(run: Run) -> None:
    run("init", "--partitions", "7")
    for i in range(20):
        words = (
            "--type",
            "paid",
            "--key",
            f"order-{i}",
            "--payload",
            f'{{"i": {i}}}',
            "--correlation",
            "a=b",
        )
        assert run("publish", *words).exit_code == 0
    events = objects(run("tail", "--no-follow", "--json"))
    assert sorted(event["payload"]["i"] for event in events) == list(range(20))
    assert {event["correlation"]["a"] for event in events} == {"b"}
    assert len({event["id"] for event in events}) == 20
    assert len({event["partition"] for event in events}) > 1
    assert len(run("tail", "--from-start", "--count", "3").stdout.splitlines()) == 3


def test_tail_says_where_an_event_comes_from_and_shows_its_id(run: Run, queue: TimerQueue) -> None:
    upsert(run, "k", "--every", "1h", "--initial-delay", "0s")
    fire_due(queue)
    run("trigger", "k")
    run("backfill", "k", "--start", "2026-01-01T00:00:00Z", "--end", "2026-01-01T00:59:59Z", "--yes")
    run("publish", "--type", "paid", "--key", "k")
    run("publish", "--type", "other", "--key", "l")
    events = objects(run("tail", "--no-follow", "--key", "k", "--json"))
    assert [event["backfill"] for event in events] == [False, False, True, False]
    lines = run("tail", "--no-follow", "--key", "k").stdout.splitlines()
    assert all(event["id"] in line for event, line in zip(events, lines, strict=True))
    told = [line.split("  ")[1] for line in lines]
    assert re.fullmatch(r"\+\S+m?s", told[0])
    assert told[1:] == ["triggered", f"backfilled of {show.local(events[2]['at_ms'])}", "published"]
    assert ["#1" in line.split("  ") for line in lines] == [True, False, False, False]


def test_tail_shows_every_tenant_unless_one_is_named(run: Run) -> None:
    for tenant in ("a", "b"):
        run("--tenant", tenant, "publish", "--type", "t", "--key", "k")
    assert {event["tenant"] for event in objects(run("tail", "--no-follow", "--json"))} == {"a", "b"}
    assert [event["tenant"] for event in objects(run("tail", "--no-follow", "--json", "--tenant", "b"))] == [
        "b"
    ]


def test_tail_goes_on_behind_an_entry_that_is_no_event(run: Run, redis_client: redis.Redis) -> None:
    run("publish", "--type", "t", "--key", "k")
    redis_client.xadd("{timerq:0}:s:events", {"hello": "world\x1b[2J"})
    redis_client.xadd("{timerq:0}:s:events", {"id": b"\xff"})
    run("publish", "--type", "t", "--key", "k")
    result = run("tail", "--no-follow")
    assert len(result.stdout.splitlines()) == 2
    assert "has no field" in result.stderr
    assert "\x1b" not in result.output


def test_init_makes_the_namespace_and_keeps_what_was_chosen(run: Run) -> None:
    (made,) = objects(run("init", "--partitions", "4", "--retention", "72h", "--json"))
    assert (made["namespace"], made["partitions"], made["retention_ms"]) == ("timerq", 4, 259_200_000)
    result = run("init", "--partitions", "5")
    assert result.exit_code == 2
    assert "4 partitions" in result.stderr
    assert "retention   3d" in run("init").stdout


def test_stats(run: Run) -> None:
    upsert(run, "k")
    (found,) = objects(run("stats", "--json"))
    assert (found["schedules"], found["armed"], found["paused"], found["dispatchers"]) == (1, 1, 0, [])
    result = run("stats")
    assert "timerq worker" in result.stderr
    assert re.search(r"armed +1\n", result.stdout)


# ----------------------------------------------------------------------------------------------------------- lists


def test_b78_a_prefix_is_a_prefix(run: Run) -> None:
    for key in ("a*b", "axxb", "a[1]", "a1", "a?c", "abc", "a\\d", "ad", "tenant:1", "tenant:10"):
        upsert(run, key)
    wanted = {
        "a*": ["a*b"],
        "a[1": ["a[1]"],
        "a?": ["a?c"],
        "a\\": ["a\\d"],
        "tenant:1": ["tenant:1", "tenant:10"],
    }
    for prefix, keys in wanted.items():
        assert [found["key"] for found in objects(run("list", "--prefix", prefix, "--json"))] == keys
        assert run("count", "--prefix", prefix).stdout == f"{len(keys)}\n"
    assert run("cancel", "--prefix", "a*", "--yes").stdout == "1 cancelled\n"
    assert run("count").stdout == "9\n"


def test_list_goes_page_by_page(run: Run, queue: TimerQueue) -> None:
    run("init", "--partitions", "3")
    queue.upsert_many({"key": f"k{i:04}", "event": Event("t"), "delay": "1h"} for i in range(450))
    assert [found["key"] for found in objects(run("list", "--json"))] == [f"k{i:04}" for i in range(450)]
    assert run("list", "--prefix", "k", "--limit", "3").stderr.startswith("There is more behind")
    none = run("list", "--prefix", "x", "--tenant", "acme")
    assert (none.stdout, none.stderr) == ("", "There is none in namespace timerq, tenant acme.\n")
    assert run("list", "--prefix", "x", "--json").stderr == ""
    plain = run("list").stdout.splitlines()
    assert plain[0].split()[:3] == ["KEY", "OWNER", "DUE"]
    assert len(plain) == 451

    seen: list[str] = []
    after: list[str] = []
    for _ in range(20):
        *page, last = objects(run("list", "--limit", "220", "--json", *after))
        if "cursor" not in last:
            page.append(last)
        seen += [found["key"] for found in page]
        if "cursor" not in last:
            break
        after = ["--after", last["cursor"]]
    assert seen == [f"k{i:04}" for i in range(450)]
    assert "--after" in run("list", "--limit", "5").stderr


def test_list_by_due_time_is_soonest_first(run: Run) -> None:
    for key, at in (("a", "1900000003000"), ("b", "1900000001000"), ("c", "1900000002000")):
        upsert(run, key, "--at", at)
    found = objects(run("list", "--due-from", "1900000001000", "--due-to", "1900000002999", "--json"))
    assert [one["key"] for one in found] == ["b", "c"]
    assert run("list", "--due-to", "1900000002999", "--after", "x").exit_code == 2


def test_list_filters_by_state_and_by_set(run: Run, queue: TimerQueue, redis_client: redis.Redis) -> None:
    queue.upsert_many({"key": f"k{i:03}", "event": Event("t"), "every": "1h"} for i in range(250))
    for i in (3, 100, 240):
        run("pause", f"k{i:03}")
    queue.apply_set("web", [{"key": "set1", "event": Event("t"), "every": "1h"}])
    paused = ["k003", "k100", "k240"]

    def keys(*words: str) -> list[str]:
        return [found["key"] for found in objects(run("list", "--json", *words)) if "key" in found]

    assert keys("--state", "paused") == paused
    assert keys("--set", "web") == ["set1"]
    assert keys("--state", "held") == keys("--state", "paused", "--set", "web") == []
    assert len(keys("--state", "armed", "--state", "paused")) == 251
    assert keys("--state", "paused", "--due-to", "9999-01-01T00:00:00Z") == []
    assert len(keys("--state", "armed", "--due-to", "9999-01-01T00:00:00Z", "--limit", "5")) == 5
    first = objects(run("list", "--json", "--state", "paused", "--limit", "2"))
    assert [found.get("key") for found in first] == ["k003", "k100", None]
    assert keys("--state", "paused", "--limit", "2", "--after", first[-1]["cursor"]) == ["k240"]
    rows = run("list", "--state", "paused").stdout.splitlines()[1:]
    assert len(rows) == 3
    assert all(re.search(r"Z|:\d\d  +paused  +every 1h  +t$", row) and " in " not in row for row in rows)
    assert run("list", "--state", "asleep").exit_code == 2


def test_what_is_held_is_found_and_told_in_short(
    run: Run, queue: TimerQueue, redis_client: redis.Redis
) -> None:
    redis_client.set("{timerq:0}:s:odd", "no stream")
    upsert(run, "k", "--at", "1000", "--stream", "odd")
    upsert(run, "fine")
    assert "--state held" not in run("stats").stderr
    fire_due(queue)
    assert "timerq list --state held" in run("stats").stderr
    (row,) = run("list", "--state", "held").stdout.splitlines()[1:]
    assert re.search(r"  held: stream odd: WRONGTYPE .{1,20}…  ", row)
    (found,) = objects(run("list", "--state", "held", "--json"))
    assert f"held: {found['held']}" in run("get", "k").stdout
    assert "To mend it, what lies under the name of its stream" in run("why", "k").stdout


def test_what_waits_for_an_event_is_shown_so(run: Run, queue: TimerQueue) -> None:
    upsert(run, "k", "--every", "1ms", "--overlap", "queue")
    while not fire_due(queue):  # until its first one is due
        pass
    while "armed" in run("list").stdout:  # until its next one is due
        pass
    assert re.search(r" ago  +waits  +every 1ms", run("list").stdout)
    assert "waits for the event that is not done" in run("get", "k").stdout
    assert objects(run("get", "k", "--json"))[0]["state"] == "armed"


def test_a_table_on_a_narrow_terminal_cuts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    expression, zone = "cron 0 9,12 * * MON-FRI,SAT#2", "America/Argentina/Buenos_Aires"
    for columns, together in (("120", True), ("80", False), ("20", False)):
        monkeypatch.setenv("COLUMNS", columns)
        rows = show.Rows("key", "owner", "timing", "state", whole=("timing",), optional=("owner",))
        rows.add(
            [
                ["a-key-that-is-longer", "", f"{expression}, {zone}", "paused"],
                ["b", "", "every 5s", "held: why"],
            ]
        )
        shown = capsys.readouterr().out
        assert expression in shown
        assert zone in shown
        assert (f"{expression}, {zone}" in shown) is together
        assert "paused" in shown
        assert "owner" not in shown
        rows.add([["c", "somebody", "every 5s", "armed"]])
        assert "somebody" in capsys.readouterr().out


def test_tenants_are_apart_and_options_may_stand_behind_the_command(run: Run) -> None:
    upsert(run, "k", "--tenant", "a")
    assert run("--tenant", "b", "count").stdout == "0\n"
    assert run("count", "--tenant", "a").stdout == "1\n"
    assert run("count", "--namespace", "other", "--tenant", "a").stdout == "0\n"


def test_names_cannot_play_tricks_on_a_terminal(run: Run, queue: TimerQueue) -> None:
    hostile = "k\x1b[2J\x1b]0;owned\x07\u202e\x9b\u2028é🧥"
    queue.upsert(hostile, Event("t\x1b[31m", {"x": "\x1b[5m\u202e"}), delay="1h", owner="\x08o")
    shown = run("list"), run("get", hostile, "--owner", "\x08o"), run("list", "--json"), run("stats")
    for result in shown:
        assert result.exit_code == 0
        assert all(char.isprintable() or char == "\n" for char in result.output)
    assert "é🧥" in shown[0].stdout
    (found,) = objects(shown[2])
    assert (found["key"], found["owner"], found["event"]["type"]) == (hostile, "\x08o", "t\x1b[31m")


def test_what_json_does_not_have_is_shown_all_the_same(run: Run, queue: TimerQueue) -> None:
    payload = {
        "bytes": b"\x00\xff",
        "when": datetime(2030, 1, 31, 9, tzinfo=UTC),
        "nan": float("nan"),
        "map": {1: "a", "1": "b"},
        "big": 2**64 - 1,
    }
    queue.upsert("k", Event("t", payload), delay="1h")
    (found,) = objects(run("get", "k", "--json"))
    assert found["event"]["payload"] == {
        "bytes": {"base64": "AP8="},
        "when": "2030-01-31T09:00:00.000Z",
        "nan": {"float": "nan"},
        "map": {"pairs": [[1, "a"], ["1", "b"]]},
        "big": 2**64 - 1,
    }
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    queue.upsert("deep", Event("t", deep), delay="1h")
    assert run("get", "deep", "--json").exit_code == run("get", "deep").exit_code == 0


def test_the_end_of_time_can_be_shown(run: Run) -> None:
    upsert(run, "k", "--at", "9999-12-31T23:59:59.999Z")
    assert "9999-12-31" in run("get", "k").stdout
    assert "9999-12-31" in run("list").stdout


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0ms"), (999, "999ms"), (1000, "1s"), (61_000, "1m 1s"), (3_600_000, "1h"), (90_000_000, "1d 1h")],
)
def test_lengths(ms: int, text: str) -> None:
    assert show.length(ms) == text
    assert show.relative(10**12 + ms, 10**12) == ("now" if ms == 0 else f"in {text}")


# ---------------------------------------------------------------------------------------------- cancelling many


def test_many_are_cancelled_only_when_one_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("a1", "a2", "b1"):
        upsert(run, key)
    upsert(run, "a3", "--owner", "o")
    result = run("cancel", "--prefix", "a")
    assert result.exit_code == 2
    assert "3 schedules" in result.stderr
    assert "--yes" in result.stderr

    sit_down(monkeypatch)
    result = run("cancel", "--prefix", "a", input="n\n")
    assert result.exit_code == 1
    assert "Cancel 3 schedules whose key begins with 'a'?" in result.stderr
    assert run("count").stdout == "4\n"
    assert run("cancel", "--prefix", "a", "--owner", "o", input="y\n").stdout.endswith("1 cancelled\n")
    assert run("count").stdout == "3\n"
    assert objects(run("cancel", "--prefix", "", "--yes", "--json")) == [{"cancelled": 3}]
    upsert(run, "x", "--owner", "u1")
    upsert(run, "x", "--owner", "u10")
    assert run("cancel", "--owner", "u1", "--all", "-y").stdout == "1 cancelled\n"
    assert run("count").stdout == "1\n"
