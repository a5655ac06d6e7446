"""The command line and recurring schedules: set, previewed, described, changed, handled."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from click import Option
from click.testing import Result

from tests.support.cli import Run, objects, upsert
from tests.support.events import Events, server_ms
from timerq import Event, TimerQueue
from timerq.cli import cli
from timerq.commands.consume import Settlement, receive, settle
from timerq.dispatcher import Dispatcher
from timerq.testing import fire_due
from timerq.timing import Words

pytestmark = pytest.mark.one_server

PARIS = ("--cron", "0 9 * * MON-FRI", "--timezone", "Europe/Paris")


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """By ann, at her desk."""
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.setattr("socket.gethostname", lambda: "desk")
    return run


@pytest.fixture
def queue(redis_url: str) -> Iterator[TimerQueue]:
    with TimerQueue.connect(redis_url) as queue:
        yield queue


def fine(result: Result) -> Result:
    assert result.exit_code == 0, result.output
    return result


def refused(result: Result, *said: str) -> None:
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    for text in said:
        assert text in result.stderr


def shown(run: Run, key: str, *more: str) -> dict[str, str]:
    """The lines of `get` that name something."""
    lines = fine(run("get", key, *more)).stdout.split("\n\n")[0].splitlines()
    return dict(re.split(r"  +", line, maxsplit=1) for line in lines)


def got(run: Run, key: str) -> dict[str, Any]:
    (found,) = objects(fine(run("get", key, "--json")))
    return found


def records(client: Any) -> dict[bytes, bytes]:
    """Every record, as Redis dumps it."""
    return {key: client.dump(key) for key in client.keys("*:sch:*")}


# ------------------------------------------------------------------------------------------------ preview


def test_preview_shows_each_instant_in_its_zone_and_in_utc(run: Run) -> None:
    words = ("30 2 * * *", "--timezone", "Europe/Paris", "--dst-overlap", "both", "-n", "3")
    spring = fine(run("preview", *words, "--after", "2026-03-28T00:00:00Z")).stdout.splitlines()
    assert [line.rstrip() for line in spring] == [
        "LOCAL                          UTC                   CLOCK CHANGE",
        "Sat 2026-03-28 02:30:00+01:00  2026-03-28 01:30:00Z",
        "Sun 2026-03-29 03:00:00+02:00  2026-03-29 01:00:00Z  shifted from 02:30",
        "Mon 2026-03-30 02:30:00+02:00  2026-03-30 00:30:00Z",
    ]
    autumn = objects(fine(run("preview", *words, "--after", "2026-10-24T12:00:00Z", "--json")))
    assert autumn[0] == {
        "at_ms": 1_792_888_200_000,
        "at": "2026-10-25T00:30:00.000Z",
        "local": "2026-10-25T02:30:00.000+02:00",
        "mark": "first pass",
    }
    assert [one["mark"] for one in autumn] == ["first pass", "second pass", None]


def test_preview_shows_what_a_clock_change_leaves_out(run: Run) -> None:
    words = ("preview", "30 2 * * *", "--timezone", "Europe/Paris", "--dst-gap", "skip", "-n", "1")
    assert fine(run(*words, "--after", "2026-03-28T12:00:00Z")).stdout.splitlines() == [
        "LOCAL                          UTC                   CLOCK CHANGE",
        "Sun 2026-03-29                                       skipped: 02:30",
        "Mon 2026-03-30 02:30:00+02:00  2026-03-30 00:30:00Z",
    ]
    assert "skipped" not in fine(run(*words, "--after", "2026-03-29T12:00:00Z")).stdout
    words = ("preview", "*/15 2 * * *", "30 2 * * *", "0 3 * * *", *words[2:4], "-n", "2")
    assert fine(run(*words, "--after", "2026-03-28T12:00:00Z")).stdout.splitlines()[1:] == [
        "Sun 2026-03-29 03:00:00+02:00  2026-03-29 01:00:00Z  also for 02:30",
        "Mon 2026-03-30 02:00:00+02:00  2026-03-30 00:00:00Z",
    ]
    many = ("preview", "0,10,20,30,40 2 * * *", *words[4:6], "--dst-gap", "skip", "-n", "1")
    assert (
        "skipped: 02:00, 02:10, 02:20 and more" in fine(run(*many, "--after", "2026-03-28T12:00:00Z")).stdout
    )


def test_a_zone_without_an_offset_has_one_column(run: Run) -> None:
    rows = fine(run("preview", "@daily", "--after", "2026-01-01T12:00:00Z", "-n", "1")).stdout.splitlines()
    assert rows == ["LOCAL", "Fri 2026-01-02 00:00:00Z"]


def test_preview_needs_no_redis(run: Run, redis_client: redis.Redis) -> None:
    away = ("--redis", "redis://127.0.0.1:1/0")
    assert len(fine(run(*away, "preview", "@daily")).stdout.splitlines()) == 11
    assert len(fine(run(*away, "preview", "--every", "90s", "-n", "2")).stdout.splitlines()) == 3
    assert redis_client.keys() == []


def test_preview_takes_every_word_of_a_rule(run: Run) -> None:
    after = ("--after", "2026-12-23T00:00:00Z", "--json")
    found = objects(
        fine(
            run("preview", "0 9 * * *", "0 12 * * *", "--exclude", "2026-12-24/2026-12-26", *after, "-n", "3")
        )
    )
    assert [one["at"][:16] for one in found] == ["2026-12-23T09:00", "2026-12-23T12:00", "2026-12-27T09:00"]
    found = objects(fine(run("preview", "@daily", "--start", "2027-01-01T00:00:00Z", "--limit", "2", *after)))
    assert [one["at"][:10] for one in found] == ["2027-01-01", "2027-01-02"]
    until = ("--until", "2026-12-23T01:00:00Z")
    found = objects(fine(run("preview", "--every", "20m", "--anchor", "clock", *until, *after)))
    assert [one["at"][11:16] for one in found] == ["00:20", "00:40", "01:00"]
    assert objects(fine(run("preview", "30 2 * * *", "--dst-gap", "skip", *after)))


def test_a_word_list_without_quotes_is_told_from_an_expression(run: Run) -> None:
    refused(run("preview", "0", "9", "a.txt", "b.txt", "*", "1"), "in quotes")
    refused(run("preview"), "want exactly one of --every, EXPRESSION")
    refused(run("preview", "@daily", "-n", "0"), "n: got 0")


def test_the_jitter_of_a_key_is_what_the_stored_one_has(run: Run) -> None:
    rule = ("--jitter", "50m", "--timezone", "Asia/Kathmandu")
    fine(run("upsert", "k", "--type", "t", "--cron", "0 * * * *", *rule, "--owner", "o", "--tenant", "acme"))
    stored = objects(fine(run("next", "k", "--owner", "o", "--tenant", "acme", "-n", "5", "--json")))
    whose = ("--key", "k", "--owner", "o", "--tenant", "acme")
    before = str(stored[0]["at_ms"] - 1)
    assert objects(
        fine(run("preview", "0 * * * *", *rule, *whose, "--after", before, "-n", "5", "--json"))
    ) == (stored)
    assert len({one["at"][14:16] for one in stored}) > 1


# ------------------------------------------------------------------------------------------------ upsert


def test_every_word_of_upsert_has_an_option(run: Run, queue: TimerQueue) -> None:
    fine(
        run(
            *("upsert", "k", "--type", "t", "--cron", "0 9 * * MON-FRI", "--cron", "30 12 * * SAT"),
            *("--timezone", "Europe/Paris", "--dst-gap", "skip", "--dst-overlap", "both", "--jitter", "30s"),
            *("--exclude", "2026-12-25", "--exclude", "* * 24 12 *", "--misfire", "catch_up"),
            *("--max-catch-up", "7", "--overlap", "queue", "--ack-group", "g", "--running-timeout", "5m"),
            *("--pause-after", "3", "--by", "bob", "--start", "1900000000000"),
            *("--until", "2040-01-01T00:00:00Z", "--limit", "9"),
        )
    )
    schedule = queue.get("k")
    timing = schedule.timing
    assert (timing.start_ms, timing.until_ms, timing.limit) == (1_900_000_000_000, 2_208_988_800_000, 9)
    assert timing.rule.cron == ("0 9 * * MON-FRI", "30 12 * * SAT")
    assert (timing.rule.timezone, timing.rule.dst_gap, timing.rule.dst_overlap) == (
        "Europe/Paris",
        "skip",
        "both",
    )
    assert (timing.rule.exclude, timing.rule.jitter_ms) == (("2026-12-25", "* * 24 12 *"), 30_000)
    policy = timing.policy
    assert (policy.misfire, policy.max_catch_up, policy.overlap) == ("catch_up", 7, "queue")
    assert (policy.ack_group, policy.running_timeout_ms, policy.pause_after) == ("g", 300_000, 3)
    assert schedule.by == "bob"

    upsert(run, "e", "--every", "15m", "--anchor", "clock", "--misfire", "skip", "--grace", "3s")
    timing = queue.get("e").timing
    assert (timing.rule.anchor_ms, timing.policy.misfire, timing.policy.grace_ms) == (0, "skip", 3000)
    assert queue.get("e").at_ms % 900_000 == 0
    upsert(run, "f", "--every", "15m", "--fixed-delay")
    assert queue.get("f").timing.policy.fixed_delay
    assert queue.get("f").by == "ann@desk"
    upsert(run, "o")
    assert queue.get("o").by is None


def test_no_word_lacks_its_option() -> None:
    names = {
        command: {option.name for option in cli.commands[command].params if isinstance(option, Option)}
        for command in ("upsert", "preview")
    }
    assert set(Words._fields) <= names["upsert"]
    rule = {"timezone", "dst_gap", "dst_overlap", "exclude", "anchor", "jitter", "every", "start", "until"}
    assert rule | {"limit", "after", "key", "owner", "count"} <= names["preview"]


def test_the_help_says_what_each_option_is_for(run: Run) -> None:
    text = fine(run("upsert", "--help")).stdout
    sections = [line[:-1] for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert sections == [
        "What is published",
        "When",
        "Calendars and grids",
        "When things are late or not handled",
        "Where one waits already",
        "Options",
    ]
    for name, command in cli.commands.items():
        if name in ("upsert", "preview", "next", "backfill", "done", "get", "pause", "resume", "trigger"):
            assert f"timerq {name} " in str(command.help)
        for option in command.params:
            if isinstance(option, Option) and name in ("upsert", "preview", "backfill"):
                assert option.help or option.show_default, option.name


def test_upserting_at_every_start_changes_nothing(run: Run) -> None:
    first = objects(fine(run("upsert", "k", "--type", "t", *PARIS, "--json")))[0]
    again = objects(fine(run("upsert", "k", "--type", "t", *PARIS, "--by", "bob", "--json")))[0]
    assert (again["outcome"], again["version"]) == ("UNCHANGED", first["version"])
    assert got(run, "k")["by"] == "ann@desk"


def test_lines_of_a_file_have_the_same_words(run: Run, queue: TimerQueue) -> None:
    lines = """
    {"key": "a", "event": {"type": "t"}, "cron": ["0 9 * * *", "@monthly"], "timezone": "Europe/Paris"}
    {"key": "b", "event": {"type": "t"}, "every": "1h", "anchor": "clock", "by": "bob"}
    {"key": "c", "event": {"type": "t"}, "cron": "0 9 * * *", "timezone": "Europe/Pariss"}
    {"key": "d", "event": {"type": "t"}, "delay": "1h"}
    """
    result = run("upsert", "--file", "-", input=lines)
    refused(result, "stdin:4: timezone: got 'Europe/Pariss'", "did you mean Europe/Paris?")
    assert result.stdout == "stdin: 3 created, 1 bad\n"
    assert [(schedule.key, schedule.by) for schedule in queue.list()] == [
        ("a", "ann@desk"),
        ("b", "bob"),
        ("d", None),
    ]
    fine(
        run(
            "upsert",
            "--file",
            "-",
            "--by",
            "cron-host",
            input=lines.splitlines()[1].replace("@monthly", "@yearly"),
        )
    )
    assert queue.get("a").by == "cron-host"
    refused(run("upsert", "--file", "-", "--dry-run", input=""), "leave --dry-run out")


# ------------------------------------------------------------------------------------------------ dry runs


def test_a_dry_run_writes_nothing_and_makes_no_namespace(run: Run, redis_client: redis.Redis) -> None:
    result = fine(run("upsert", "k", "--type", "t", *PARIS, "--dry-run"))
    head, *words = result.stdout.split("\n\n")[0].splitlines()
    assert head == "would be CREATED  k  nothing is stored"
    assert [line.split(maxsplit=1) for line in words] == [
        ["cron", "0 9 * * MON-FRI"],
        ["timezone", "Europe/Paris"],
        ["type", "t"],
    ]
    assert len(result.stdout.split("\n\n")[1].splitlines()) == 6
    assert redis_client.keys() == []
    refused(run("upsert", "k", "--type", "t", "--cron", "0 9 * *", "--dry-run"), "cron: got '0 9 * *'")
    assert redis_client.keys() == []


def test_a_dry_run_says_what_would_change(run: Run, redis_client: redis.Redis) -> None:
    made = upsert(run, "k", *PARIS, "--payload", '{"a": 1}', "--limit", "5")
    before = records(redis_client)
    words = (
        "upsert",
        "k",
        "--type",
        "t",
        "--cron",
        "0 8 * * *",
        "--timezone",
        "UTC",
        "--payload",
        '{"a": true}',
    )
    said = fine(run(*words, "--dry-run")).stdout
    assert said.splitlines()[0] == f"would be REPLACED  k  version {made['version']} is stored"
    assert "cron      0 9 * * MON-FRI → 0 8 * * *" in said
    assert "timezone  Europe/Paris → UTC" in said
    assert 'payload   {"a": 1} → {"a": true}' in said
    assert "limit     5 → none" in said
    (found,) = objects(fine(run(*words, "--dry-run", "--json")))
    assert found["changes"] == {
        "cron": {"old": "0 9 * * MON-FRI", "new": "0 8 * * *"},
        "timezone": {"old": "Europe/Paris", "new": "UTC"},
        "limit": {"old": 5, "new": None},
        "event.payload": {"old": {"a": 1}, "new": {"a": True}},
    }
    assert [one["at"][11:16] for one in found["next"]] == ["08:00"] * 5
    after = records(redis_client)
    assert after == before


def test_a_dry_run_of_a_paused_one_says_that_none_fires(run: Run) -> None:
    result = fine(run("upsert", "k", "--type", "t", *PARIS, "--paused", "--dry-run"))
    assert result.stdout.splitlines()[0] == "would be CREATED  k  nothing is stored  paused"
    assert "NEXT, ONCE IT IS RESUMED" in result.stdout
    assert result.stderr == "It is paused: none of these fires until it is resumed.\n"
    assert "paused" not in fine(run("upsert", "k", "--type", "t", *PARIS, "--dry-run")).output


def test_instants_are_written_one_way(run: Run) -> None:
    words = ("--start", "2030-01-01T00:00:00Z", "--anchor", "2031-01-01T00:00:00Z", "--every", "1h")
    dry = fine(run("upsert", "k", "--type", "t", *words, "--dry-run")).stdout
    upsert(run, "k", *words)
    said = dry + fine(run("get", "k")).stdout + fine(run("why", "k")).stdout + fine(run("list")).stdout
    written = re.findall(r"20\d\d-\d\d-\d\d\S*(?: \d\S+)?", said)
    assert len(written) > 10
    for text in written:
        assert re.fullmatch(r"\S{10} \d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text.rstrip(".,:)")), text
    for text in written[:3]:
        upsert(run, "pasted", "--at", text)


# long ones: the next instant of a grid must not come between two commands
WEEKS = ("--every", "4w", "--anchor", "clock")
TRIES = {
    "created": ((), WEEKS, "CREATED"),
    "once": ((), ("--at", "1900000000000"), "CREATED"),
    "past": ((), ("--at", "1000"), "CREATED"),
    "started": ((), ("--every", "4w", "--start", "1000"), "CREATED"),
    "at once": ((), ("--every", "1h", "--initial-delay", "0s"), "CREATED"),
    "in a while": ((), ("--every", "1h", "--jitter", "10m", "--misfire", "skip"), "CREATED"),
    "same": (PARIS, PARIS, "UNCHANGED"),
    "same, paused": (PARIS, (*PARIS, "--paused"), "UNCHANGED"),
    "same, no longer paused": ((*PARIS, "--paused"), (*PARIS, "--not-paused"), "UNCHANGED"),
    "stays paused": ((*PARIS, "--paused"), WEEKS, "REPLACED"),
    "restarted": (PARIS, (*PARIS, "--restart"), "REPLACED"),
    "counted anew": (PARIS, (*PARIS, "--reset"), "REPLACED"),
    "another zone": (PARIS, (*PARIS[:2], "--timezone", "Europe/Berlin"), "REPLACED"),
    "another policy": (PARIS, (*PARIS, "--overlap", "skip"), "REPLACED"),
    "another kind": (WEEKS, ("--at", "1900000000000"), "REPLACED"),
    "one-shots have no phase": (("--at", "1900000000000"), ("--at", "1900000000000"), "REPLACED"),
    "kept": (PARIS, (*WEEKS, "--mode", "keep"), "KEPT"),
    "nothing to keep": ((), (*WEEKS, "--mode", "keep"), "CREATED"),
    "earlier": (("--at", "1900000000000"), ("--at", "1800000000000", "--mode", "earliest"), "REPLACED"),
    "not earlier": (("--at", "1900000000000"), ("--at", "1900000000000", "--mode", "earliest"), "KEPT"),
    "later": (("--at", "1900000000000"), ("--at", "1950000000000", "--mode", "latest"), "REPLACED"),
    "not later": (("--at", "1900000000000"), ("--at", "1800000000000", "--mode", "latest"), "KEPT"),
    "only new": (PARIS, (*WEEKS, "--if-version", "0"), "VERSION_MISMATCH"),
    "new": ((), (*WEEKS, "--if-version", "0"), "CREATED"),
}


@pytest.mark.parametrize(("first", "then", "outcome"), TRIES.values(), ids=TRIES)
def test_what_a_dry_run_says_is_what_happens(
    run: Run, first: tuple[str, ...], then: tuple[str, ...], outcome: str
) -> None:
    if first:
        upsert(run, "k", *first)
    (said,) = objects(run("upsert", "k", "--type", "t", *then, "--dry-run", "--json"))
    result = run("upsert", "k", "--type", "t", *then, "--json")
    (done,) = objects(result)
    assert said["outcome"] == done["outcome"] == outcome
    if outcome == "VERSION_MISMATCH":
        assert result.exit_code == run("upsert", "k", "--type", "t", *then, "--dry-run").exit_code == 3
        return
    assert said["state"] == done["state"]
    late_ms = 5000 if "--initial-delay" in then or "--jitter" in then else 0  # counted from now
    if "--jitter" not in then:
        assert said["next"][0]["at_ms"] <= done["at_ms"] <= said["next"][0]["at_ms"] + late_ms
        if not late_ms and got(run, "k")["next"]:
            assert said["next"] == got(run, "k")["next"]


@pytest.mark.parametrize(
    ("first", "then", "field"),
    [
        ((), ("--every", "1h", "--until", "2000"), "until"),
        ((), ("--cron", "@daily", "--until", "2000"), "until"),
        ((), ("--every", "1h", "--start", "253402300799999", "--until", "2000"), "until"),
        ((), ("--cron", "0 * * * *", "--jitter", "1h"), "jitter"),
        ((), ("--delay", "1h", "--max-wait", "2h"), "max-wait"),
        ((), ("--delay", "1h", "--idempotency-key", "x"), "idempotency-key"),
        ((), ("--every", "1h", "--mode", "earliest"), "mode"),
        (PARIS, ("--delay", "1h", "--mode", "earliest"), "mode"),
    ],
)
def test_a_dry_run_refuses_what_cannot_be(
    run: Run, first: tuple[str, ...], then: tuple[str, ...], field: str
) -> None:
    if first:
        upsert(run, "k", *first)
    words = ("upsert", "k", "--type", "t", *then)
    refused(run(*words, "--dry-run"), f"{field}: got ")
    if field not in ("max-wait", "idempotency-key"):
        refused(run(*words), f"{field}: got ")


def test_a_limit_that_is_used_up_is_refused(run: Run, queue: TimerQueue) -> None:
    upsert(run, "k", "--every", "1h", "--initial-delay", "0s")
    assert fire_due(queue) == 1
    words = ("upsert", "k", "--type", "t", "--every", "2h", "--limit", "1")
    refused(run(*words, "--dry-run"), "limit: got 1")
    refused(run(*words), "limit: got 1")
    (said,) = objects(fine(run(*words, "--reset", "--dry-run", "--json")))
    assert (said["outcome"], len(said["next"])) == ("REPLACED", 1)


# ------------------------------------------------------------------------------------------------ looking


def test_get_describes_a_calendar(run: Run) -> None:
    upsert(
        run,
        "k",
        *PARIS,
        "--dst-gap",
        "skip",
        "--exclude",
        "2026-12-25",
        "--overlap",
        "skip",
        "--jitter",
        "30s",
    )
    lines = shown(run, "k")
    assert lines["timing"] == "cron 0 9 * * MON-FRI, Europe/Paris"
    assert (lines["dst gap"], lines["exclude"], lines["jitter"]) == ("skip", "2026-12-25", "30s")
    assert (lines["overlap"], lines["running timeout"]) == ("skip", "1h")
    assert lines["set by"] == "ann@desk"
    assert not {"dst overlap", "misfire", "paused by", "cron", "owner", "declared in", "failures"} & set(
        lines
    )
    table = fine(run("get", "k")).stdout.split("\n\n")[-1].splitlines()
    assert table[0].split()[:2] == ["NEXT", "UTC"]
    assert "timezone" not in lines
    assert lines["due"].endswith(" in Europe/Paris)")
    assert len(table) == 6
    assert all(re.match(r"(Mon|Tue|Wed|Thu|Fri) 20\S+ 09:00:\d\d", line) for line in table[1:])
    assert "cron 0 9 * * MON-FRI, Europe/Paris" in run("list").stdout


def test_get_tells_several_expressions_and_a_fixed_delay(run: Run) -> None:
    upsert(run, "k", "--cron", "0 9 * * *", "--cron", "@monthly")
    said = run("get", "k").stdout
    assert re.search(r"timing +cron 2 expressions, UTC\n", said)
    assert re.findall(r"^cron +(.*)$", said, re.MULTILINE) == ["0 9 * * *", "@monthly"]
    upsert(run, "f", "--every", "90s", "--fixed-delay", "--ack-group", "g")
    assert shown(run, "f")["timing"] == "every 1m30s after the last"
    assert len(got(run, "f")["next"]) == 1
    upsert(run, "o")
    assert got(run, "o")["next"] == []


def test_get_and_why_show_what_became_of_the_last_fires(run: Run, queue: TimerQueue) -> None:
    upsert(run, "k", "--every", "1h", "--initial-delay", "0s")
    assert fire_due(queue) == 1
    assert queue._scope is not None
    namespace = queue._scope.namespace
    words = (namespace, 0, "events", "mails", "c1")
    (received,) = queue._link.send([receive(*words, count=1, lease_ms=60_000)])
    (raw,) = received.deliveries
    group = got_stats(run)["groups"]
    assert group == [{"stream": "events", "group": "mails", "pending": 1, "retrying": 0, "dead": 0}]
    assert "group mails of stream events: not yet acknowledged" in fine(run("stats")).stdout
    item = Settlement(raw.entry, raw.delivery, "ack", outcome="3 mails\tsent")
    assert queue._link.send([settle(*words, [item])]) == [["SETTLED"]]
    (fire,) = got(run, "k")["fires"]
    assert (fire["outcome"], fire["attempt"], fire["summary"]) == ("ok", 1, "3 mails\tsent")
    table = fine(run("get", "k")).stdout.split("\n\n")[1].splitlines()
    assert table[0].split() == ["LAST", "DUE", "FIRED", "LAG", "MISSED", "OUTCOME"]
    assert table[1].endswith("ok: 3 mails\\tsent")
    assert "its event was handled: 3 mails" in fine(run("why", "k")).stdout


def got_stats(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fine(run("stats", "--json")).stdout)
    return found


def wait_until_missed(client: redis.Redis, queue: TimerQueue, key: str) -> None:
    """Waits until a schedule with a period of 1 ms has missed an occurrence, and the next one has passed too."""
    while server_ms(client) <= queue.get(key).at_ms + 1:
        pass


def test_get_shows_the_last_fires(run: Run, queue: TimerQueue, redis_client: redis.Redis) -> None:
    upsert(run, "k", "--every", "1ms", "--paused")
    wait_until_missed(redis_client, queue, "k")
    fine(run("resume", "k"))
    assert fire_due(queue) >= 1
    fires = got(run, "k")["fires"]
    parts = "at_ms at fired_ms fired lag_ms missed outcome attempt summary"
    assert list(fires[0]) == parts.split()
    assert fires[0]["lag_ms"] == fires[0]["fired_ms"] - fires[0]["at_ms"]
    assert fires[0]["missed"] > 0
    table = fine(run("get", "k")).stdout.split("\n\n")[1].splitlines()
    assert table[0].split() == ["LAST", "DUE", "FIRED", "LAG", "MISSED"]
    assert table[1].split()[-1] == f"{fires[0]['missed']:,}"


def test_json_has_the_words_of_python(run: Run, queue: TimerQueue) -> None:
    upsert(run, "k", *PARIS, "--misfire", "skip")
    fine(run("pause", "k", "--note", "because"))
    schedule, found = queue.get("k"), got(run, "k")
    for name in ("skipped_total", "by", "paused_by", "paused_note", "label", "running", "failures"):
        assert found[name] == getattr(schedule, name)
    assert found["timing"]["rule"]["cron"] == ["0 9 * * MON-FRI"]
    assert found["timing"]["policy"]["misfire"] == "skip"
    assert objects(run("list", "--json"))[0] == {
        name: value for name, value in found.items() if name != "next"
    }


def test_next_tells_the_zones_time_and_utc(run: Run) -> None:
    upsert(run, "k", "--cron", "0 9 * * *", "--timezone", "Asia/Kathmandu")
    rows = fine(run("next", "k", "-n", "2")).stdout.splitlines()[1:]
    assert [re.sub(r"\S+-\S+-\S+", "D", row).split() for row in rows] == [
        [row.split()[0], "D", "09:00:00+05:45", "D", "03:15:00Z"] for row in rows
    ]
    assert len(objects(run("next", "k", "--json"))) == 10
    assert run("next", "nothing").exit_code == 3
    refused(run("next", "k", "-n", "1001"), "n: got 1001")
    fine(run("pause", "k"))
    assert "until it is resumed" in run("next", "k").stderr
    upsert(run, "o")
    assert len(objects(run("next", "o", "--json"))) == 1


def test_a_zone_that_is_not_known_here_is_still_shown(run: Run, queue: TimerQueue, redis_client: Any) -> None:
    upsert(run, "k", *PARIS)
    (record,) = redis_client.keys("*:sch:*")
    text = redis_client.hget(record, "x").replace(b"Europe/Paris", b"Mars/Phobos")
    redis_client.hset(record, "x", text)
    result = fine(run("get", "k"))
    assert "Mars/Phobos" in result.stdout
    assert "cannot be told here: timezone: got 'Mars/Phobos'" in result.stderr
    assert fine(run("list")).stdout.count("Mars/Phobos") == 1
    refused(run("next", "k"), "Mars/Phobos")


# ------------------------------------------------------------------------------------------------ changing


def test_a_pause_says_why_and_by_whom(run: Run) -> None:
    upsert(run, "k", *PARIS)
    fine(run("pause", "k", "--note", "closed\x1b[2J until the 7th"))
    lines = shown(run, "k")
    assert re.fullmatch(r"20\S+ \S+ \(\S+ ago\)|20\S+ \S+ \(now\)", lines["paused at"])
    assert lines["due"].endswith(", not until it is resumed")
    assert "NEXT, ONCE IT IS RESUMED" in run("get", "k").stdout
    assert "NEXT, ONCE IT IS RESUMED" in run("next", "k").stdout
    assert (lines["paused by"], lines["because"]) == ("ann@desk", "closed\\x1b[2J until the 7th")
    fine(run("resume", "k", "--by", "bob"))
    assert "paused by" not in shown(run, "k")
    refused(run("pause", "k", "--note", "x" * 1001), "note: got")
    refused(run("pause", "k", "--by", "x" * 513), "by: got")
    told = fine(run("why", "k")).stdout
    assert "paused by ann@desk" in told
    assert "resumed by bob" in told


def test_resume_from_now_leaves_out_what_was_missed(
    run: Run, queue: TimerQueue, redis_client: redis.Redis
) -> None:
    upsert(run, "k", "--every", "1ms", "--paused")
    wait_until_missed(redis_client, queue, "k")
    fine(run("resume", "k", "--from-now"))
    schedule = queue.get("k")
    assert schedule.skipped_total > 0
    assert shown(run, "k")["fired"].endswith("skipped)")
    upsert(run, "l", "--every", "1ms", "--paused")
    fine(run("resume", "l"))
    assert queue.get("l").skipped_total == 0


def test_triggered_twice_in_one_second_is_once(run: Run) -> None:
    upsert(run, "k", *PARIS)
    seen: list[dict[str, Any]] = []
    while not seen or seen[-1]["outcome"] != "DUPLICATE":
        seen += objects(fine(run("trigger", "k", "--json")))
        assert len(seen) < 50, "each of these took a second"
    assert {change["outcome"] for change in seen} == {"TRIGGERED", "DUPLICATE"}
    assert seen[-1]["event_id"] == seen[-2]["event_id"]
    told = fine(run("why", "k")).stdout
    assert "triggered by ann@desk" in told
    assert seen[0]["event_id"] in told
    said = run("trigger", "k").stdout
    assert said.split()[0] in ("DUPLICATE", "TRIGGERED")
    events = objects(run("tail", "--no-follow", "--json"))
    assert len({event["id"] for event in events}) == len(events)


def test_a_backfill_asks_with_the_count_first(run: Run, terminal: None) -> None:
    upsert(run, "k", *PARIS)
    week = ("backfill", "k", "--start", "2026-03-02T00:00:00Z", "--end", "2026-03-08T23:59:59Z")
    result = run(*week, input="n\n")
    assert result.exit_code == 1
    assert "Publish 5 events of k?" in result.stderr
    assert run("tail", "--no-follow").stdout == ""
    assert fine(run(*week, input="y\n")).stdout.endswith("5 published\n")
    (told,) = objects(fine(run(*week, "--yes", "--json")))
    assert (told["outcome"], told["key"], told["published"]) == ("PUBLISHED", "k", 5)
    events = objects(run("tail", "--no-follow", "--json"))
    assert [event["at"][:16] for event in events[:5]] == [f"2026-03-0{day}T08:00" for day in range(2, 7)]
    assert [event["id"] for event in events[:5]] == [event["id"] for event in events[5:]]
    assert all("-b" in event["id"] for event in events)
    assert got(run, "k")["fired_total"] == 0
    assert "backfilled by ann@desk" in run("why", "k").stdout


def test_a_backfill_that_cannot_be(run: Run) -> None:
    upsert(run, "k", *PARIS)
    upsert(run, "o")
    march = ("--start", "2026-03-01T00:00:00Z", "--end", "2026-03-30T00:00:00Z")
    refused(run("backfill", "k", *march), "publish 20 events of k", "--yes")
    for yes in ((), ("--yes",)):
        refused(run("backfill", "k", "--start", "2000", "--end", "1000", *yes), "end: got 1000")
        refused(run("backfill", "k", "--start", "2000", "--end", "2999-01-01T00:00:00Z", *yes), "of the past")
        refused(run("backfill", "o", *march, *yes), "want a recurring schedule")
        assert run("backfill", "nothing", *march, *yes).exit_code == 3
    none = ("--start", "2026-03-07T00:00:00Z", "--end", "2026-03-08T00:00:00Z")
    assert fine(run("backfill", "k", *none)).stdout == "0 published\n"
    refused(run("backfill", "k", "--start", "1000"), "--end")


def test_done_lets_the_next_one_go_on_and_counts_failures(run: Run, queue: TimerQueue) -> None:
    upsert(run, "k", "--every", "1h", "--initial-delay", "0s", "--pause-after", "2", "--owner", "o")
    assert fire_due(queue) == 1
    (event,) = objects(run("tail", "--no-follow", "--json"))
    assert queue.get("k", owner="o").running == event["id"]
    (told,) = objects(fine(run("done", event["id"], "--error", "boom", "--json")))
    assert (told["outcome"], told["key"], told["owner"]) == ("DONE", "k", "o")
    assert shown(run, "k", "--owner", "o")["failures"] == "1 in a row"
    result = run("done", event["id"])
    assert result.exit_code == 3
    assert "nobody waits for this event" in result.stderr
    refused(run("done", "9999-1-1"), "EVENT_ID: got")
    refused(run("done", ""), "EVENT_ID: got")

    upsert(run, "p", "--every", "1h", "--initial-delay", "0s", "--pause-after", "1")
    assert fire_due(queue) == 1
    event = objects(run("tail", "--no-follow", "--json"))[-1]
    assert fine(run("done", event["id"], "--error", "no such account")).stdout.startswith("PAUSED  p  event ")
    lines = shown(run, "p")
    assert lines["state"] == "paused"
    assert "no such account" in lines["because"]


# ------------------------------------------------------------------------------------------------ cases

NO_ZONES = ("America/New_Yrok", "Mars/Phobos", "", "America", "../UTC", "/etc/localtime", "A" * 300)


@pytest.mark.parametrize("name", NO_ZONES, ids=[f"B13-{name[:16]}" for name in NO_ZONES])
def test_b13_no_zone(run: Run, redis_client: redis.Redis, name: str) -> None:
    for words in (("upsert", "k", "--type", "t", "--cron", "0 * * * *"), ("preview", "0 * * * *")):
        result = run(*words, "--timezone", name)
        refused(result, "timezone: got ", "IANA name")
        if name == "America/New_Yrok":
            assert "did you mean America/New_York?" in result.stderr
    assert not redis_client.keys("*:sch:*")
    assert run("count").stdout == "0\n"


def test_b15_an_offset_is_no_zone_and_the_others_are_listed(run: Run) -> None:
    refused(
        run("upsert", "k", "--type", "t", "--cron", "0 9 * * *", "--timezone", "+05:30"),
        "timezone: got '+05:30'",
        "an offset is no zone",
    )
    upsert(run, "a")
    upsert(run, "b", *PARIS)
    assert [found["key"] for found in objects(run("list", "--json"))] == ["a", "b"]


def test_b26_seconds_come_first_everywhere(run: Run, redis_url: str, queue: TimerQueue) -> None:
    found = objects(run("preview", "0 0 12 * * 1", "--after", "2026-01-01T00:00:00Z", "-n", "1", "--json"))
    assert found[0]["at"] == "2026-01-05T12:00:00.000Z"
    upsert(run, "noon", "--cron", "0 0 12 * * 1")
    nexts = objects(run("next", "noon", "--json"))
    assert got(run, "noon")["at_ms"] == nexts[0]["at_ms"]
    before = str(nexts[0]["at_ms"] - 1)
    assert objects(run("preview", "0 0 12 * * 1", "--after", before, "--json")) == nexts
    assert {datetime.fromtimestamp(one["at_ms"] / 1000, UTC).isoweekday() for one in nexts} == {1}

    # and the real fire: every other second
    queue.init()
    with Events(redis_url, queue.namespace) as events, Dispatcher(redis_url):
        upsert(run, "odd", "--cron", "1-59/2 * * * * *")
        wanted = [one["at_ms"] for one in objects(run("next", "odd", "-n", "2", "--json"))]
        fired = events.wait(lambda seen: any(event.at_ms >= wanted[1] for event in seen), key="odd")
    slots = [event.at_ms + i * 2000 for event in fired for i in range(event.missed + 1)]
    assert slots == [slots[0] + i * 2000 for i in range(len(slots))]
    assert set(wanted) <= set(slots)
    assert {at_ms // 1000 % 2 for at_ms in wanted} == {1}


@pytest.mark.parametrize(
    "text",
    ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 1 1 * 0 2020"],
    ids=lambda text: f"B29-{text}",
)
def test_b29_what_never_comes_is_refused_at_once(run: Run, redis_client: redis.Redis, text: str) -> None:
    began_s = time.process_time()
    refused(run("upsert", "k", "--type", "t", "--cron", text), f"cron: got '{text}'")
    refused(run("upsert", "k", "--type", "t", "--cron", text, "--dry-run"), f"cron: got '{text}'")
    refused(run("preview", text), f"EXPRESSION: got '{text}'")
    assert time.process_time() - began_s < 3
    assert not redis_client.keys("*:sch:*")


def test_b29_the_weekday_side_may_come(run: Run) -> None:
    words = ("preview", "0 0 31 9 1", "--after", "2026-09-01T00:00:00Z", "-n", "1", "--json")
    assert objects(fine(run(*words)))[0]["at"] == "2026-09-07T00:00:00.000Z"
    assert upsert(run, "k", "--cron", "0 0 31 9 1")["outcome"] == "CREATED"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("0 9 * * *", "--exclude", "2020-01-01/9999-12-31"), "--exclude: got '2020-01-01/9999-12-31'; want"),
        (("30 2 * 3 0L", "--timezone", "Europe/Berlin", "--dst-gap", "skip"), "--dst-gap: got 'skip'; want"),
    ],
)
def test_what_would_never_fire_again_is_refused_by_the_option_that_leaves_nothing(
    run: Run, words: tuple[str, ...], told: str
) -> None:
    refused(run("preview", *words), told)
    cron, *others = words
    refused(run("upsert", "k", "--type", "t", "--cron", cron, *others), told)
    refused(run("upsert", "k", "--type", "t", "--cron", cron, *others, "--dry-run"), told)


def test_b34_the_end_of_9999_is_an_answer(run: Run, redis_client: redis.Redis) -> None:
    refused(run("preview", "0 0 * * *", "--after", "9999-12-31T12:00:00Z"), "there is none")
    late = ("--start", "9999-12-31T12:00:00Z")
    refused(run("upsert", "k", "--type", "t", "--cron", "0 0 * * *", *late), "cron: got")
    refused(run("upsert", "k", "--type", "t", "--cron", "0 0 * * *", *late, "--dry-run"), "cron: got")
    zone = ("--timezone", "Pacific/Auckland")
    upsert(run, "k", "--cron", "30 * * * *", *zone, "--start", "9999-12-31T23:00:00Z")
    assert got(run, "k")["at"] == "9999-12-31T23:30:00.000Z"
    assert "9999-12-31 23:30:00Z" in fine(run("get", "k")).stdout
    assert len(objects(fine(run("next", "k", "--json")))) == 1
    assert "9999-12-31" in fine(run("list")).stdout
    made = upsert(run, "at", "--at", "9999-12-31T23:59:59Z")
    assert (made["at_ms"], made["at"]) == (253_402_300_799_000, "9999-12-31T23:59:59.000Z")


def test_what_is_new_is_refused_as_the_rest_is(run: Run, redis_client: redis.Redis) -> None:
    for words, said in (
        (("--cron", "R R * * *"), "cron: got 'R R * * *'"),
        (("--cron", "60 * * * *"), "position"),
        (
            ("--cron", "@daily", "--delay", "1h"),
            "want exactly one of --at, --delay, --every, --cron; there are --delay and --cron",
        ),
        (("--delay", "1h", "--timezone", "UTC"), "timezone"),
        (("--cron", "@daily", "--dst-gap", "jump"), "--dst-gap"),
        (("--cron", "@daily", "--exclude", "2026-13-01"), "exclude: got"),
        (("--cron", "@daily", "--exclude", "* * * * *"), "nothing would ever fire"),
        (("--cron", "@daily", "--fixed-delay"), "want --fixed-delay only together with --every"),
        (("--cron", "@daily", "--grace", "1s"), "only together with --misfire skip"),
        (("--cron", "@daily", "--jitter", "90"), "no unit"),
        (("--cron", "@daily", "--ack-group", "g"), "with --overlap, --fixed-delay or --pause-after"),
        (("--cron", "@daily", "--overlap", "skip", "--ack-group", "a b"), "--ack-group: got"),
        (("--every", "1h", "--anchor", "noon"), "anchor"),
        (("--every", "1h", "--max-catch-up", "0", "--misfire", "catch_up"), "--max-catch-up: got 0"),
        (("--every", "1h", "--pause-after", "x"), "--pause-after"),
        (("--cron", "@daily", "--by", ""), "by: got"),
    ):
        refused(run("upsert", "k", "--type", "t", *words), said)
        refused(run("upsert", "k", "--type", "t", *words, "--dry-run"), said)
    assert not redis_client.keys("*:sch:*")


def test_it_is_redis_whose_time_counts(run: Run, redis_client: redis.Redis) -> None:
    upsert(run, "k", "--cron", "* * * * * *")
    (said,) = objects(run("upsert", "j", "--type", "t", "--cron", "* * * * * *", "--dry-run", "--json"))
    now_ms = server_ms(redis_client)
    assert now_ms - 5000 < said["next"][0]["at_ms"] <= now_ms + 1000


def test_hostile_names_stay_harmless(run: Run, queue: TimerQueue) -> None:
    hostile = "k\x1b[2J\u202e"
    queue.upsert(hostile, Event("t\x07"), cron="@daily", by="\x1b[31m", exclude="2026-12-25")
    queue.pause(hostile, note="\x9b", by="\u202e")
    dry = run("upsert", hostile, "--type", "u\x07", "--cron", "@hourly", "--dry-run")
    for result in (
        run("get", hostile),
        run("get", hostile, "--json"),
        run("next", hostile),
        run("list"),
        dry,
    ):
        assert result.exit_code == 0
        assert all(char.isprintable() or char == "\n" for char in result.output)


# ------------------------------------------------------------------------------------------------ what may surprise


def test_two_day_fields_are_not_debians(run: Run, tmp_path: Path) -> None:
    for words in (("preview",), ("upsert", "k", "--type", "t", "--cron")):
        assert "Debian's cron wants both" in fine(run(*words, "0 9 */2 * 1-5")).stderr
        for plain in ("0 9 2 * 1-5", "0 9 */2 * *", "@daily", "0 9 * * 1-5"):
            assert fine(run(*words, plain)).stderr == ""
    (tmp_path / "tab").write_text("0 9 */2 * 1-5 run\n0 9 2 * 1-5 run\n")
    said = fine(run("crontab", str(tmp_path / "tab"), "--dry-run")).stderr.splitlines()
    assert len(said) == 1
    assert "tab:1: cron-1: a day must fit both day fields" in said[0]


def test_a_clock_that_does_not_divide_the_day(run: Run) -> None:
    for every, said in (("7h", True), ("25h", True), ("6h", False), ("2w", False), ("15m", False)):
        words = ("--every", every, "--anchor", "clock")
        assert ("does not divide the day" in fine(run("preview", *words)).stderr) == said
        assert ("does not divide the day" in fine(run("upsert", "k", "--type", "t", *words)).stderr) == said


def test_whose_it_is_is_told_where_it_is_not_found(run: Run) -> None:
    upsert(run, "k", "--every", "1h", "--owner", "session-7")
    upsert(run, "k2", "--every", "1h")
    for verb in ("get", "next", "trigger", "pause", "resume", "cancel"):
        result = run(verb, "k")
        assert (result.exit_code, "belongs to session-7: name its --owner" in result.stderr) == (3, True), (
            verb
        )
        result = run(verb, "k2", "--owner", "o")
        assert (result.exit_code, "without an owner: leave --owner out" in result.stderr) == (3, True), verb
        assert "timerq list" in run(verb, "k3").stderr
    past = ("--start", "2026-01-01T00:00:00Z", "--end", "2026-01-01T01:00:00Z")
    for more in ((), ("--yes",)):
        assert "belongs to session-7" in run("backfill", "k", *past, *more).stderr


def test_a_reset_forgets_the_last_fires(run: Run, queue: TimerQueue) -> None:
    upsert(run, "k", "--every", "1h", "--initial-delay", "0s")
    fire_due(queue)
    assert len(got(run, "k")["fires"]) == 1
    upsert(run, "k", "--every", "2h", "--reset")
    assert (got(run, "k")["fires"], got(run, "k")["fired_total"]) == ([], 0)


def test_nothing_waits_for_an_event_that_was_triggered(run: Run) -> None:
    upsert(run, "k", "--every", "1h", "--overlap", "skip")
    (said,) = objects(run("trigger", "k", "--json"))
    result = run("done", said["event_id"])
    assert (result.exit_code, "NOT_PENDING" in result.stderr) == (3, True)


def test_a_name_that_something_else_has_taken_is_no_redis_that_is_away(
    run: Run, queue: TimerQueue, redis_client: redis.Redis
) -> None:
    upsert(run, "k", "--every", "1h", "--stream", "taken")
    redis_client.set(queue.init().tags[0] + b":s:taken", "a text")
    result = run("trigger", "k")
    assert (result.exit_code, "Is Redis running" in result.stderr) == (4, False)
    assert "WRONGTYPE" in result.stderr
    assert "another type, which is not timerq's" in result.stderr
