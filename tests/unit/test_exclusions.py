"""What is meant as a date is refused as one, not as a cron expression."""

from __future__ import annotations

import pytest

from timerq import InvalidSchedule
from timerq.timing.exclusions import parse_exclusions


@pytest.mark.parametrize(
    "text", ["25.12.2026", "12/25/2026", "today", "25-12-2026", "2026-12-25 09:00", "", " "]
)
def test_what_is_no_date_is_told_how_dates_are_written(text: str) -> None:
    with pytest.raises(InvalidSchedule, match=r'exclude: got .*; want a date like "2026-12-25"'):
        parse_exclusions((text,))


def test_a_bad_expression_is_told_as_one() -> None:
    with pytest.raises(InvalidSchedule, match="want a cron expression of five fields"):
        parse_exclusions(("0 9 * *",))
    with pytest.raises(InvalidSchedule, match="want one of @yearly"):
        parse_exclusions(("@reboot",))


def test_macros_with_blanks_around_them_are_expressions() -> None:
    (fields,), days = parse_exclusions((" @daily ",))
    assert (fields.hours, days) == (1, ())
