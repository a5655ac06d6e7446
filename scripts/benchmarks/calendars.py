"""Cron: what the next instant costs, and how calendars drain, beside bare croniter and one-shots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations, islice
from typing import Any

from croniter import croniter

from scripts.benchmarks import bare
from scripts.benchmarks.firing import drained, past, stream_of
from scripts.benchmarks.rig import NAMESPACE, Rig, dispatchers, rate, take_turns, wait_until
from scripts.benchmarks.table import Row, Target, compare, ratio_at_least, ratio_at_most
from timerq import Event, TimerQueue, Upsert
from timerq.model import Rule
from timerq.timing.calendar import calendar_of

ZONE = "Europe/Paris"
START = datetime(2026, 1, 1)  # noqa: DTZ001 - what croniter calls naive
START_MS = int(START.replace(tzinfo=UTC).timestamp() * 1000)

EXPRESSIONS = {
    "*/5 * * * *": "*/5 * * * *",
    "0 9 * * MON-FRI": "0 9 * * MON-FRI",
    "0 0 29 2 *": "0 0 29 2 *",
    "0 0 * * 5#5": "0 0 * * 5#5",
    "*/10 * * * * *": "*/10 * * * * *",
}
"""Ours, and as croniter takes it."""

LEAD_S = 40
"""How long the arming of a backlog may take."""


def next_instants(rig: Rig) -> list[Row]:
    """One next instant of an expression that is parsed already: ours in a zone, croniter's naive."""
    rounds, seconds = rig.choose(7, 3), 0.15
    rows = []
    for text, theirs in EXPRESSIONS.items():
        calendar = calendar_of(Rule(cron=(text,), timezone=ZONE))
        iterator = croniter(theirs, START, second_at_beginning=True)
        sides = {"ours": _ours(calendar, seconds), "bare": _bare(iterator, seconds)}
        found = take_turns(rounds, sides)
        rows.append(
            compare(f"next instant of {text}", "µs", found["ours"], found["bare"], ratio_at_most(1.5))
        )
    return rows


def _ours(calendar: Any, seconds: float) -> Callable[[], float]:
    def run() -> float:
        at_ms = START_MS

        def step() -> int:
            nonlocal at_ms
            for _ in range(20):
                at_ms = calendar.next_ms(at_ms)
            if at_ms > START_MS * 2:  # some five decades on: rare days must not leave the calendar's years
                at_ms = START_MS
            return 20

        return 1e6 / rate(seconds, step)

    return run


def _bare(iterator: Any, seconds: float) -> Callable[[], float]:
    def run() -> float:
        iterator.set_current(START)

        def step() -> int:
            for _ in range(20):
                found = iterator.get_next(datetime)
            if found.year > 2070:
                iterator.set_current(START)
            return 20

        return 1e6 / rate(seconds, step)

    return run


def drain(rig: Rig) -> list[Row]:
    """Calendars that are due in the same second, beside as many one-shots and beside bare croniter."""
    count, rounds = rig.choose(100_000, 20_000), rig.choose(3, 1)
    rows = []
    with rig.redis() as (url, client), TimerQueue.connect(url, namespace=NAMESPACE) as queue:
        stream = stream_of(queue)

        def calendars(distinct: int) -> Callable[[], float]:
            def run() -> float:
                client.flushall()
                due = datetime.now(UTC) + timedelta(seconds=rig.choose(LEAD_S, LEAD_S // 4))
                expressions = [*islice(expressions_due(due), distinct)]
                queue.upsert_many(
                    Upsert(
                        bare.key(number), Event(bare.TYPE, bare.PAYLOAD), cron=expressions[number % distinct]
                    )
                    for number in range(count)
                )
                if datetime.now(UTC) > due:
                    raise RuntimeError("the machine is too slow to arm the backlog in time")
                wait_until(lambda: datetime.now(UTC) > due + timedelta(seconds=1), "the instant", LEAD_S + 10)
                with dispatchers(url):
                    return drained(client, stream, count)

            return run

        def one_shots() -> float:
            client.flushall()
            due_ms = past()
            queue.upsert_many(bare.upsert(number, due_ms) for number in range(count))
            with dispatchers(url):
                return drained(client, stream, count)

        def croniters() -> float:
            expressions = [*islice(expressions_due(datetime.now(UTC)), min(count, 20_000))]
            start = time.perf_counter()
            for text in expressions:
                croniter(text, START, second_at_beginning=True).get_next(datetime)
            return len(expressions) / (time.perf_counter() - start)

        found = take_turns(
            rounds,
            {
                "few": calendars(1000),
                "many": calendars(count),
                "one-shots": one_shots,
                "croniter": croniters,
            },
        )
    what = f"draining {count:,} calendars due in one second, 1,000 expressions (beside: one-shots)"
    rows.append(compare(what, "/s", found["few"], found["one-shots"], ratio_at_least(0.3)))
    what = f"draining and refilling {count:,} distinct expressions (beside: bare croniter, parse and next)"
    rows.append(compare(what, "/s", found["many"], found["croniter"], Target("ratio", "≥", 0.7)))
    return rows


def expressions_due(due: datetime) -> Iterator[str]:
    """Different expressions whose next instant is the second of ``due`` (UTC)."""
    others = [day for day in range(1, 29) if day != due.day]
    for days in (pair for size in range(1, 8) for pair in combinations(others, size)):
        dates = ",".join(map(str, sorted((due.day, *days))))
        yield f"{due.second} {due.minute} {due.hour} {dates} * *"
