"""A year under the manual clock: the real scripts, the real calendars, and what the preview says beside it."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.support.state import check_structure, dump, parts
from tests.support.ticks import calendar, previewed
from timerq import Event, InvalidSchedule, Outcome, TimerQueue, preview
from timerq.model import Fire
from timerq.testing import ManualClock, fire_due, fire_until
from timerq.timing import resolve_instant
from timerq.timing.calendar import Calendar

START, END = "2025-12-31T23:59:59.999Z", "2027-01-01T00:00:00Z"
"""What is due at an instant is later than `START`, and no later than `END`."""
DAY = 86_400_000
EVENT = Event("t")
FEW = 6
"""Two to open the namespace, and fire, advance, fire, advance."""

ZONES = [
    "Europe/Paris",
    "America/New_York",
    "America/Santiago",
    "America/St_Johns",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Antarctica/Troll",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
]
RULES = [("shift", "first"), ("skip", "second"), ("shift", "both")]
NIGHTLY = ["30 2 * * *", "15 0 * * *", "45 1 * * *"]

YEAR: dict[str, dict[str, Any]] = {
    # each rule of a clock change, on both sides of the equator, with changes of half an hour, of one and of two
    **{
        f"night {zone} {gap} {overlap}": {
            "cron": NIGHTLY,
            "timezone": zone,
            "dst_gap": gap,
            "dst_overlap": overlap,
        }
        for n, zone in enumerate(ZONES)
        for gap, overlap in [RULES[n % 3], RULES[(n + 1) % 3]]
    },
    # jobs that follow the clock
    "half hours": {"cron": "*/30 1-3 * * *", "timezone": "Australia/Lord_Howe"},
    "hours": {"cron": "0 */2 * * *", "timezone": "Europe/Paris"},
    # days of all kinds
    "office": {"cron": "0 9 * * MON-FRI", "timezone": "Europe/Paris"},
    "last day": {"cron": "0 23 L * *", "timezone": "America/New_York"},
    "last weekday": {"cron": "0 12 LW * *"},
    "nearest weekday": {"cron": "15 10 15W * *"},
    "second friday": {"cron": "0 8 * * 5#2"},
    "last friday": {"cron": "0 18 * * 5L", "timezone": "Pacific/Chatham"},
    "either day": {"cron": "0 0 13 * 5"},
    "quarters": {"cron": "0 6 1 JAN,APR,JUL,OCT *", "timezone": "Asia/Kolkata"},
    "leap": {"cron": "@monthly"},
    "weekly": {"cron": "@weekly", "timezone": "America/Santiago"},
    "seconds": {"cron": "30 15 4 * * *"},
    # several expressions, and what is left out
    "two": {"cron": ["0 9 * * MON-FRI", "0 11 * * SAT,SUN"], "timezone": "America/New_York"},
    "holidays": {
        "cron": "0 */6 * * *",
        "timezone": "Europe/Paris",
        "exclude": ["2026-12-25", "2026-08-01/2026-08-15", "* * 1 5 *", "* 12 * * MON"],
    },
    # jitter
    "spread": {"cron": "0 3 * * *", "timezone": "Africa/Cairo", "jitter": "2h"},
    "spread hours": {"every": "2h", "jitter": "90m"},
    "spread grid": {"every": "1d", "anchor": "clock", "jitter": "12h"},
    # intervals
    "plain": {"every": "7h"},
    "on the hour": {"every": "6h", "anchor": "clock"},
    "from a day": {"every": "36h", "start": "2026-02-03T04:05:06.007Z"},
    "anchored": {"every": "5h", "anchor": "2026-01-01T01:30:00Z", "misfire": "skip"},
    # windows and limits
    "summer": {
        "cron": "0 8 * * *",
        "timezone": "Europe/Paris",
        "start": "2026-06-21T00:00:00Z",
        "until": "2026-09-22T06:00:00Z",
    },
    "twelve": {"cron": "0 8 * * *", "limit": 12},
    "a hundred": {"every": "11h", "limit": 100, "misfire": "catch_up"},
    "until noon": {"every": "25m", "until": "2026-01-03T12:00:00Z"},
    # policies that have nothing to do for a dispatcher that is never late
    "skips": {"cron": "20 */8 * * *", "misfire": "skip", "grace": 0},
    "catches up": {"cron": "40 */8 * * *", "timezone": "Europe/Paris", "misfire": "catch_up"},
    "waits": {"cron": "5 5 * * *", "overlap": "queue", "running_timeout": "1h"},
    "fails": {"cron": "6 6 * * *", "pause_after": 3},
}
PREVIEWED = inspect.signature(preview).parameters.keys()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def queue(redis_url: str, clock: ManualClock) -> Iterator[TimerQueue]:
    with TimerQueue.connect(redis_url, clock=clock) as queue:
        yield queue


def published(client: redis.Redis, queue: TimerQueue) -> list[dict[str, str]]:
    """All events, in the order in which they were fired."""
    events: list[dict[str, str]] = []
    for tag in queue.namespace.tags:
        entries: Any = client.xrange(tag + b":s:events")
        events += [{k.decode(): v.decode("latin-1") for k, v in fields.items()} for _, fields in entries]
    return sorted(events, key=lambda event: int(event["fired_ms"]))


def script_calls(client: redis.Redis) -> int:
    """How many scripts the server has run since it was last asked."""
    stats: Any = client.info("commandstats")
    calls = sum(stats.get(f"cmdstat_{verb}", {}).get("calls", 0) for verb in ("evalsha", "eval"))
    client.config_resetstat()
    return int(calls)


def test_a_year_of_mixed_schedules(redis_client: redis.Redis, queue: TimerQueue, clock: ManualClock) -> None:
    """Each event comes at its own time, and they are those of the preview, to the millisecond and in order."""
    namespace = queue.init(partitions=2, clock="manual")
    wanted: dict[str, list[int]] = {}
    for key, words in YEAR.items():
        assert queue.upsert(key, EVENT, **words).outcome is Outcome.CREATED
        given = {name: value for name, value in words.items() if name in PREVIEWED}
        until_ms = min(resolve_instant(given.pop("until", END)), resolve_instant(END))
        instants = preview(**given, until=until_ms, after=START, n=100_000, key=key)
        wanted[key] = [resolve_instant(at) for at in instants]
    script_calls(redis_client)
    count = fire_until(queue, clock, END)
    calls = script_calls(redis_client)

    events = published(redis_client, queue)
    assert count == len(events) == sum(map(len, wanted.values())) > 20_000
    found: dict[str, list[int]] = {key: [] for key in YEAR}
    for event in events:
        found[event["key"]].append(int(event["at"]))
        assert event["fired_ms"] == event["at"]
        assert (event["missed"], event["n"]) == ("0", str(len(found[event["key"]])))
    for key in YEAR:
        assert found[key] == wanted[key], key
    instants_seen = len({event["fired_ms"] for event in events})
    assert calls < 6 * instants_seen  # it went from one to the next, and asked no more than it must

    assert clock.now_ms == resolve_instant(END)
    left = {schedule.key: schedule for schedule in queue.list()}
    assert YEAR.keys() - left.keys() == {"summer", "twelve", "a hundred", "until noon"}
    for key, schedule in left.items():
        assert schedule.at_ms == calendar(schedule).next_ms(clock.now_ms)
        assert (schedule.fired_total, schedule.missed_total, schedule.skipped_total) == (
            len(found[key]),
            0,
            0,
        )
        assert schedule.fires == tuple(Fire(at, at) for at in found[key][-10:])
    state = dump(redis_client)
    logs = [parts(state, tag).get(b"log", []) for tag in namespace.tags]
    what = Counter(fields[b"what"].decode() for log in logs for _, fields in log)
    assert what.keys() == {"ended", "timed_out"}
    assert what["ended"] == 4
    check_structure(state, namespace.tags)


def test_an_interval_that_waits_first(
    redis_client: redis.Redis, queue: TimerQueue, clock: ManualClock
) -> None:
    """The words for beginning mean the same to a plain interval and to one whose instants a calendar tells."""
    queue.init(clock="manual")
    begun = clock.now_ms
    policies: list[dict[str, Any]] = [{}, {"misfire": "skip"}, {"misfire": "catch_up"}]
    for n, words in enumerate(policies):
        queue.upsert(f"wait {n}", EVENT, every="3h", initial_delay="10h", **words)
        queue.upsert(f"now {n}", EVENT, every="3h", initial_delay=0, **words)
        queue.upsert(f"start {n}", EVENT, every="3h", start=begun, **words)
    fire_until(queue, clock, begun + DAY)
    found: dict[str, list[int]] = {}
    for event in published(redis_client, queue):
        found.setdefault(event["key"], []).append((int(event["at"]) - begun) // 3_600_000)
    for n in range(3):
        assert found[f"wait {n}"] == [10, 13, 16, 19, 22]
        assert found[f"now {n}"] == found[f"start {n}"] == [0, 3, 6, 9, 12, 15, 18, 21, 24]


def test_b17_another_zone_moves_the_next_fire_and_fires_nothing(
    redis_client: redis.Redis, queue: TimerQueue, clock: ManualClock
) -> None:
    queue.init(clock="manual")
    clock.set("2026-05-19T10:30:00Z")
    old = queue.upsert("k", EVENT, cron="0 21 * * *", timezone="Australia/Sydney")
    new = queue.upsert("k", EVENT, cron="0 21 * * *", timezone="Europe/Berlin")
    assert (old.at_ms, new.at_ms) == tuple(
        map(resolve_instant, ("2026-05-19T11:00:00Z", "2026-05-19T19:00:00Z"))
    )
    assert (new.outcome, new.replaced_at_ms) == (Outcome.REPLACED, old.at_ms)
    assert [schedule.timing.rule.timezone for schedule in queue.list()] == ["Europe/Berlin"]
    assert fire_until(queue, clock, new.at_ms - 1) == 0
    assert fire_until(queue, clock, new.at_ms) == 1
    (event,) = published(redis_client, queue)
    assert (event["at"], event["n"], event["version"]) == (str(new.at_ms), "1", str(new.version))


def test_time_that_has_passed_does_not_come_back(queue: TimerQueue, clock: ManualClock) -> None:
    queue.init(clock="manual")
    assert fire_until(queue, clock, START) == 0
    with pytest.raises(InvalidSchedule, match="until"):
        fire_until(queue, clock, clock.now_ms - 1)
    assert clock.now_ms == resolve_instant(START)


# ------------------------------------------------------------------------------------------------ nobody was there


@pytest.mark.parametrize(
    ("words", "events", "missed", "skipped", "most_calls"),
    [
        ({}, 1, 525_599, 0, FEW),
        ({"misfire": "skip"}, 1, 0, 525_599, FEW),
        ({"misfire": "skip", "grace": "1h"}, 1, 60, 525_539, FEW),
        ({"misfire": "catch_up"}, 100, 0, 525_500, 400),
        ({"misfire": "catch_up", "max_catch_up": 1}, 1, 0, 525_599, FEW),
        ({"overlap": "skip"}, 1, 525_599, 0, FEW),
        ({"timezone": "Europe/Paris", "dst_overlap": "both"}, 1, 525_599, 0, FEW),
        ({"cron": ["* * * * *", "*/7 * * * *"], "exclude": "30 * * * *"}, 1, 516_839, 0, FEW),
        ({"cron": None, "every": "1m", "jitter": "59s"}, 1, 525_599, 0, FEW),
        ({"cron": None, "every": "1m"}, 1, 525_599, 0, FEW),
    ],
)
def test_a_year_that_nobody_was_there_costs_milliseconds(
    redis_client: redis.Redis,
    queue: TimerQueue,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    words: dict[str, Any],
    events: int,
    missed: int,
    skipped: int,
    most_calls: int,
) -> None:
    """Half a million occurrences are counted, not gone through: few scripts run, calendars are asked few questions."""
    asked: Counter[str] = Counter()

    def counting(name: str, real: Any) -> Any:
        def counted(*args: Any) -> Any:
            asked[name] += 1
            return real(*args)

        return counted

    for name in ("next_ms", "prev_ms", "count"):
        monkeypatch.setattr(Calendar, name, counting(name, getattr(Calendar, name)))
    queue.init(clock="manual")
    clock.set("2026-01-01T00:00:00Z")
    queue.upsert("first", EVENT, cron="* * * * *", limit=2)
    fire_until(queue, clock, clock.now_ms + 120_000)  # from now on the server knows the scripts
    redis_client.delete(queue.namespace.tags[0] + b":s:events")
    first = queue.upsert("k", EVENT, **{"cron": "* * * * *", **words})
    clock.advance("365d")
    asked.clear()
    script_calls(redis_client)
    assert fire_due(queue) == events
    assert script_calls(redis_client) <= most_calls
    assert asked.total() <= most_calls * 6 + 100

    stored = queue.get("k")
    assert (stored.fired_total, stored.missed_total, stored.skipped_total) == (events, missed, skipped)
    slots = calendar(stored)
    ats = [int(event["at"]) for event in published(redis_client, queue)]
    if skipped:
        assert ats == previewed(slots, ats[0], clock.now_ms)[:events]
        assert slots.count(first.at_ms - 1, ats[0] - 1) == skipped
    else:
        assert ats == [first.at_ms]
    assert stored.at_ms == slots.next_ms(clock.now_ms)
    clock.set(stored.at_ms)
    if stored.running is not None:
        queue.done(stored.running)
    assert fire_due(queue) == 1  # and on it goes
