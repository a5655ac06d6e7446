"""@schedule: what it refuses, how a decorated function is run, and how modules are read."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from timerq import InvalidDeclaration, InvalidSchedule, ScheduledFunction, Upsert, schedule, tick_name
from timerq.declare import load
from timerq.declare.entries import TIMING_WORDS
from timerq.declare.modules import scheduled_functions


@dataclass
class Fired:
    """As much of an event as running takes."""

    at_ms: int = 1_791_190_800_000


EVENT = Fired()
AT = datetime(2026, 10, 5, 9, 0, tzinfo=UTC)


# ------------------------------------------------------------------------------------------------ decorating


def test_a_decorated_function_stays_a_function_and_knows_its_schedule() -> None:
    @schedule(cron="0 9 * * MON-FRI", timezone="Europe/Paris", payload={"a": 1}, stream="s", codec="json")
    def evening(y: int = 2) -> int:
        """Says two."""
        return y

    assert evening() == 2
    assert evening(y=3) == 3
    assert evening.__doc__ == "Says two."
    assert evening.name == "evening"
    assert inspect.signature(evening) == inspect.signature(evening.__wrapped__)
    upsert = evening.upsert
    assert (upsert.key, upsert.cron, upsert.timezone) == ("evening", "0 9 * * MON-FRI", "Europe/Paris")
    assert (upsert.event.type, upsert.event.payload, upsert.event.stream, upsert.event.codec) == (
        "evening", {"a": 1}, "s", "json",
    )  # fmt: skip
    assert "evening" in repr(evening)
    assert evening.declared.where.startswith(__file__)


def test_a_name_of_its_own_is_the_type_too() -> None:
    @schedule(every="5m", name="beat:1")
    def heartbeat() -> None: ...

    assert (heartbeat.name, heartbeat.upsert.key, heartbeat.upsert.event.type) == ("beat:1",) * 3


def test_every_word_of_a_file_may_stand_in_the_decorator() -> None:
    given = {*inspect.signature(schedule).parameters}
    assert given == {*TIMING_WORDS, "name", "payload", "stream", "correlation", "codec"}
    others = {
        "jitter": "30s",
        "start": AT,
        "until": datetime(2030, 1, 1, tzinfo=UTC),
        "limit": 5,
        "paused": True,
    }

    @schedule(every="5m", **others)  # type: ignore[arg-type]
    def job() -> None: ...

    assert {word: getattr(job.upsert, word) for word in others} == others


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("cron", {"cron": "61 * * * *"}),
        ("cron", {"cron": "0 0 30 2 *"}),
        ("cron", {}),
        ("cron", {"cron": "@daily", "every": "5s"}),
        ("timezone", {"cron": "@daily", "timezone": "Europe/Pariss"}),
        ("every", {"every": "5"}),
        ("jitter", {"every": "5s", "jitter": "5s"}),
        ("jitter", {"cron": "0 9 * * *", "jitter": "1d"}),
        ("cron", {"cron": "0 9 * * *", "start": "9999-12-31T23:00:00Z"}),
        ("paused", {"every": "5s", "paused": "yes"}),
        ("name", {"every": "5s", "name": ""}),
        ("name", {"every": "5s", "name": 5}),
        ("stream", {"every": "5s", "stream": "a b"}),
        ("codec", {"every": "5s", "codec": "xml"}),
        ("payload", {"every": "5s", "payload": object()}),
        ("correlation", {"every": "5s", "correlation": {"a": 1}}),
    ],
)
def test_a_bad_schedule_is_refused_where_it_stands(field: str, words: dict[str, Any]) -> None:
    def job() -> None: ...

    with pytest.raises(InvalidSchedule) as caught:
        schedule(**words)(job)
    assert caught.value.field == field


def test_a_function_that_could_not_be_called_is_refused() -> None:
    def needs_more(event: Any, database: Any) -> None: ...

    def needs_more_by_name(*, database: Any) -> None: ...

    for function in (needs_more, needs_more_by_name):
        with pytest.raises(InvalidSchedule, match="fired_at, name, event") as caught:
            schedule(every="5s")(function)
        assert "database" in str(caught.value)
    twice = schedule(every="5s")(lambda: None)
    with pytest.raises(InvalidSchedule, match="want one @schedule"):
        schedule(every="6s", name="other")(twice)
    for thing in (5, int):
        with pytest.raises(InvalidSchedule, match="on a function"):
            schedule(every="5s")(thing)  # type: ignore[arg-type]
    with pytest.raises(InvalidSchedule, match="name="):
        schedule(every="5s")(type("Callable", (), {"__call__": lambda self: None})())


# ------------------------------------------------------------------------------------------------ running


def _all(fired_at: Any, name: Any, event: Any) -> Any:
    return fired_at, name, event


def _in_another_order(event: Any, fired_at: Any) -> Any:
    return fired_at, None, event


def _by_name(*, name: Any, fired_at: Any = None) -> Any:
    return fired_at, name, None


def _by_place(event: Any, name: Any, /) -> Any:
    return None, name, event


def _with_defaults(extra: int = 5, *more: Any, event: Any = None) -> Any:
    assert (extra, more) == (5, ())
    return None, None, event


def _whatever(**offered: Any) -> Any:
    return offered["fired_at"], offered["name"], offered["event"]


def _mixed(name: Any, /, **offered: Any) -> Any:
    assert set(offered) == {"fired_at", "event"}
    return offered["fired_at"], name, offered["event"]


def _nothing() -> Any:
    return None, None, None


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (_all, "fne"),
        (_in_another_order, "fe"),
        (_by_name, "fn"),
        (_by_place, "ne"),
        (_with_defaults, "e"),
        (_whatever, "fne"),
        (_mixed, "fne"),
        (_nothing, ""),
    ],
    ids=lambda thing: getattr(thing, "__name__", thing),
)
def test_a_function_gets_what_its_signature_takes(function: Any, takes: str) -> None:
    job = schedule(every="5s", name="job")(function)
    wanted = (AT if "f" in takes else None, "job" if "n" in takes else None, EVENT if "e" in takes else None)
    assert job.run(EVENT) == wanted


def test_what_a_function_returns_or_raises_is_the_callers() -> None:
    @schedule(every="5s")
    async def job(fired_at: datetime) -> datetime:
        return fired_at

    assert asyncio.run(job.run(EVENT)) == AT

    @schedule(every="5s")
    def fails() -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fails.run(EVENT)


def test_a_tick_is_called_by_its_schedule_and_instant() -> None:
    assert tick_name("weekly-report", 1_791_190_800_000) == "weekly-report-2026-10-05T090000Z"
    assert tick_name("a", 1_791_190_800_250) == "a-2026-10-05T090000.250Z"
    assert tick_name("a", 1_791_190_800_001) == "a-2026-10-05T090000.001Z"
    assert tick_name("a", 0) == "a-1970-01-01T000000Z"
    assert tick_name("a", 253_402_300_799_999) == "a-9999-12-31T235959.999Z"


# ------------------------------------------------------------------------------------------------ modules


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None) or tmp_path):
            del sys.modules[name]


JOBS = """
from timerq import schedule

@schedule(cron="0 9 * * MON-FRI", timezone="Europe/Paris")
def morning(): ...

@schedule(cron="@daily")
def cleanup(): ...

again = morning
both = [cleanup, morning]
named = {"x": cleanup}

class Some:
    evening = schedule(every="5s")(lambda event: None)

some = Some()
nothing = 5
"""


@pytest.mark.parametrize(
    ("target", "label", "wanted"),
    [
        ("jobs_a", "jobs_a", ["morning", "cleanup"]),
        ("jobs_a:cleanup", "jobs_a.cleanup", ["cleanup"]),
        ("jobs_a:both", "jobs_a.both", ["cleanup", "morning"]),
        ("jobs_a:named", "jobs_a.named", ["cleanup"]),
        ("jobs_a:Some", "jobs_a.Some", ["<lambda>"]),
        ("jobs_a:Some.evening", "jobs_a.Some.evening", ["<lambda>"]),
    ],
)
def test_a_module_or_what_it_holds_is_a_set(folder: Path, target: str, label: str, wanted: list[str]) -> None:
    (folder / "jobs_a.py").write_text(JOBS)
    declared = load(target)
    assert (declared.label, [one.name for one in declared.schedules]) == (label, wanted)
    assert load(target, "mine").label == "mine"
    assert all(isinstance(upsert, Upsert) for upsert in declared.upserts)
    assert all(isinstance(function, ScheduledFunction) for function in scheduled_functions(target))


def test_a_schedule_is_where_its_function_is(folder: Path) -> None:
    (folder / "jobs_b.py").write_text(JOBS)
    (one, other) = load("jobs_b").schedules
    assert (one.where, other.where) == (f"{folder}/jobs_b.py:4", f"{folder}/jobs_b.py:7")


@pytest.mark.parametrize(
    ("text", "target", "says"),
    [
        ("", "jobs_c", "jobs_c: declares no schedule"),
        (JOBS, "jobs_c:nothing", "jobs_c:nothing: declares no schedule"),
        (JOBS, "jobs_c:some", "jobs_c:some: declares no schedule"),
        (JOBS, "jobs_c:none", "jobs_c:none: there is no none in it"),
        (JOBS.replace("MON-FRI", "MON-FRY"), "jobs_c", "{file}:4: cron: got '0 9 * * MON-FRY'; want 0 to 7"),
        (JOBS.replace("@daily", "@reboot"), "jobs_c:both", "{file}:7: cron: got '@reboot'"),
        ("import nowhere_at_all", "jobs_c", "{file}:1: cannot be imported: ModuleNotFoundError"),
        ("x = 1\ny = x / 0", "jobs_c", "{file}:2: cannot be imported: ZeroDivisionError: division by zero"),
        ("x = 1\ny = (", "jobs_c", "{file}:2: cannot be imported: SyntaxError"),
        ("raise SystemExit", "jobs_c", "{file}:1: cannot be imported: SystemExit; want what a program does"),
        ("import sys\nsys.exit(0)", "jobs_c", "{file}:2: cannot be imported: SystemExit: 0; want what a"),
        ("", "jobs_nowhere", "jobs_nowhere: no file, folder or module: jobs_nowhere"),
        ("", "jobs_nowhere.x:y", "jobs_nowhere.x:y: no file, folder or module: jobs_nowhere"),
    ],
)
def test_a_module_that_cannot_be_used_says_why(folder: Path, text: str, target: str, says: str) -> None:
    path = folder / "jobs_c.py"
    path.write_text(text)
    with pytest.raises(InvalidDeclaration) as caught:
        load(target)
    assert says.format(file=path) in str(caught.value)


def test_two_functions_of_one_name_are_refused(folder: Path) -> None:
    path = folder / "jobs_d.py"
    path.write_text(JOBS + "\n@schedule(every=5, name='morning')\ndef other(): ...\n")
    with pytest.raises(InvalidDeclaration) as caught:
        load("jobs_d")
    assert str(caught.value) == f"{path}:20: morning: the name is declared twice; first at {path}:4"


def test_a_lambdas_name_is_no_set(folder: Path) -> None:
    with pytest.raises(InvalidDeclaration, match="no such file or folder"):
        load("jobs_a:<lambda>")


def test_brackets_that_were_forgotten_are_asked_for() -> None:
    def job() -> None: ...

    with pytest.raises(InvalidSchedule, match=r"want brackets: @schedule\(cron="):
        schedule(job)  # type: ignore[arg-type]


def test_an_expression_may_stand_alone() -> None:
    @schedule("0 9 * * *", timezone="Europe/Paris")
    def job() -> None: ...

    assert job.upsert.cron == "0 9 * * *"


def test_a_refusal_of_a_module_names_the_function(folder: Path) -> None:
    (folder / "named_jobs.py").write_text(
        "import timerq\n\n@timerq.schedule(cron='61 * * * *', name='x')\ndef evening(): ...\n"
    )
    with pytest.raises(InvalidDeclaration) as caught:
        load("named_jobs")
    (fault,) = caught.value.faults
    assert (fault.line, fault.key) == (3, "cron")
    assert fault.text.endswith("; in @schedule(…) of the function evening")
