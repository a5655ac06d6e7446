"""What a calendar leaves out: dates, ranges of dates, and the times of cron expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

from timerq.errors import InvalidSchedule
from timerq.timing.cron import CronFields, parse_cron
from timerq.timing.walls import DayRange

_DATE = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
_DATES = re.compile(f"{_DATE}(?:/{_DATE})?")
_LIKE_A_DATE = re.compile(r"\s*[0-9]{3,}[-/.]|[^\s]*/[0-9]{4}-")
_LIKE_AN_EXPRESSION = re.compile(r"\s*(@|\S+\s+\S)")  # fields between blanks, or a macro
_WANT = (
    'want a date like "2026-12-25", a range of dates like "2026-12-24/2026-12-26" (both included), '
    "or a cron expression whose times are left out"
)
_EPOCH = date(1970, 1, 1).toordinal()


def parse_exclusions(
    texts: Sequence[str], field: str = "exclude"
) -> tuple[tuple[CronFields, ...], tuple[DayRange, ...]]:
    """The excluded expressions, and the excluded days: sorted, ranges that meet put together.

    Raises `InvalidSchedule` naming ``field`` for what is neither a date from 1970 to 9999, nor a range of such dates
    whose end is not before its start, nor a cron expression.
    """
    expressions, ranges = [], []
    for text in texts:
        if not isinstance(text, str):
            raise InvalidSchedule(field, text, _WANT)
        if match := _DATES.fullmatch(text):
            ranges.append(_range(field, text, match))
        elif _LIKE_A_DATE.match(text) or not _LIKE_AN_EXPRESSION.match(text):
            raise InvalidSchedule(field, text, _WANT)
        else:
            expressions.append(parse_cron(text, field))
    return tuple(expressions), _merged(ranges)


def _range(field: str, text: str, match: re.Match[str]) -> DayRange:
    numbers = [None if part is None else int(part) for part in match.groups()]
    first = _day(field, text, *numbers[:3])
    last = first if match[4] is None else _day(field, text, *numbers[3:])
    if last < first:
        raise InvalidSchedule(field, text, "want a range of dates whose end is not before its start")
    return first, last


def _day(field: str, text: str, *numbers: int | None) -> int:
    year, month, day = (number or 0 for number in numbers)
    try:
        if year >= 1970:
            return date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        pass  # no such day
    raise InvalidSchedule(field, text, "want dates that exist, in the years 1970 to 9999")


def _merged(ranges: list[DayRange]) -> tuple[DayRange, ...]:
    merged: list[DayRange] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return tuple(merged)
