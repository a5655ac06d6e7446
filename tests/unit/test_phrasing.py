"""Refusals in the words of a command line, and of a file: neither speaks Python."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from timerq import InvalidSchedule
from timerq.commands.arming import Upsert, timing_of
from timerq.commands.phrasing import for_file, for_options, unknown_word
from timerq.model import Event

OPTIONS = {word: f"--{word.replace('_', '-')}" for word in Upsert._fields} | {
    "paused": "--paused/--not-paused"
}


def error_of(**words: Any) -> InvalidSchedule:
    with pytest.raises(InvalidSchedule) as caught:
        timing_of(Upsert("k", Event("t"), **words))
    return caught.value


@pytest.mark.parametrize(
    ("words", "option", "file"),
    [
        ({}, "want exactly one of --at, --delay, --every, --cron", "want exactly one of at, delay, every, cron"),
        (
            {"at": 5, "delay": 5},
            "want exactly one of --at, --delay, --every, --cron; there are --at and --delay",
            "want exactly one of at, delay, every, cron; there are at and delay",
        ),
        (
            {"every": "5s", "grace": "1s"},
            "--grace: got '1s'; want --grace only together with --misfire skip",
            "got '1s'; want grace only together with misfire: \"skip\"",
        ),
        (
            {"every": "5s", "fixed_delay": True, "running_timeout": "1m"},
            "--running-timeout: got '1m'; want --running-timeout with --fixed-delay only ",
            "got '1m'; want running_timeout with fixed_delay: true only ",
        ),
        (
            {"cron": "@daily", "fixed_delay": True},
            "--fixed-delay: want --fixed-delay only together with --every",
            "got True; want fixed_delay only together with every",
        ),
        (
            {"delay": "5s", "limit": 3},
            "--limit: got 3; want --limit only with recurring schedules (here: --delay)",
            "got 3; want limit only with recurring schedules (here: delay)",
        ),
        ({"every": "5 s"}, "--every: got '5 s'; want a duration like", "got '5 s'; want a duration like"),
        ({"at": "soon"}, "--at: got 'soon'; want an instant like", "got 'soon'; want an instant like"),
    ],
)  # fmt: skip
def test_a_refusal_speaks_the_language_of_its_place(words: dict[str, Any], option: str, file: str) -> None:
    error = error_of(**words)
    said = for_options(error, OPTIONS, words), for_file(error, words)
    assert said[0].startswith(option), said
    assert said[1].startswith(file), said
    for text in said:
        assert not any(python in text for python in ("timedelta", "an int", "aware", "=", "None")), text


def test_what_came_is_shown_as_it_came() -> None:
    error = InvalidSchedule("until", 1_577_836_800_000, "want until= at or after the first occurrence")
    given = {"until": "2020-01-01T00:00:00Z"}
    assert for_file(error, given).startswith("got '2020-01-01T00:00:00Z'; ")
    assert for_options(error, OPTIONS, given).startswith(
        "--until: got '2020-01-01T00:00:00Z'; want --until at"
    )
    error = error_of(cron=["@daily", "x"])
    assert for_file(error, {"cron": ["@daily", "x"]}).startswith("got 'x'; ")
    naive = datetime(2026, 1, 1)  # what TOML has as a local date-time
    assert for_file(error_of(every="5s", start=naive), {"start": naive}) == (
        "got '2026-01-01 00:00:00'; want an offset, as in 2030-01-31T09:00:00Z"
    )


def test_a_flag_that_is_off_is_called_as_one() -> None:
    error = InvalidSchedule("paused", None, "want paused=False or misfire=")
    assert for_options(error, OPTIONS, {}) == "--paused: want --not-paused or --misfire"


def test_python_is_told_what_to_write_instead() -> None:
    error = error_of(cron="@daily", timezone=ZoneInfo("Europe/Paris"))
    assert 'timezone="Europe/Paris"' in error.want
    assert "IANA name" in error_of(cron="@daily", timezone=UTC).want
    assert 'as in "0 9 * * 1-5"' in error_of(cron=["0", "9", "*", "*", "1-5"]).want
    assert (
        "timedelta" in error_of(every=timedelta(-1)).want or "0 or more" in error_of(every=timedelta(-1)).want
    )


def test_a_word_that_is_almost_known() -> None:
    assert unknown_word("timezon", Upsert._fields) == "did you mean timezone?"
    assert unknown_word("qqq", ("a", "b")) == "want only a, b"
