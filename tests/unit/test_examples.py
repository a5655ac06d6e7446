"""The examples are what their generator makes, and every line can be stored."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from timerq import Upsert, resolve_duration
from timerq.cli.demo import EXAMPLES, read_alterations
from timerq.cli.lines import LONGEST_LINE, read_pieces
from timerq.cli.play import check_fit

CHANGES = EXAMPLES.with_name("reminders-changes.jsonl")


def test_the_generator_makes_the_same_bytes() -> None:
    make = runpy.run_path(str(EXAMPLES.with_name("make_reminders.py")))["make"]
    assert make() == make() == tuple(Path(path).read_text(encoding="utf-8") for path in (EXAMPLES, CHANGES))


def test_there_are_enough_of_them_due_over_ten_seconds() -> None:
    with open(EXAMPLES, "rb") as source:
        lines = [line for piece in read_pieces(source, LONGEST_LINE) for line in piece.lines]
    upserts = []
    for line in lines:
        assert line.wrong is None
        check_fit(line.value)
        upserts.append(Upsert.of(line.value))
    delays = [resolve_duration(upsert.delay or 0) for upsert in upserts]
    assert len({(upsert.key, upsert.owner) for upsert in upserts}) == len(upserts) >= 2000
    assert 0 < min(delays) < 1000
    assert 9_000 < max(delays) < 11_000
    alterations = read_alterations(CHANGES)
    assert sum(alteration.cancel is not None for alteration in alterations) > 200
    assert sum(alteration.upsert is not None for alteration in alterations) > 200


@pytest.mark.parametrize("timing", [{"every": "1s"}, {"cron": "* * * * * *"}])
def test_the_demo_takes_no_recurring_schedules(timing: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="one-shots"):
        check_fit({"key": "k", "event": {"type": "t"}, **timing})
