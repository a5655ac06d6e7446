"""What a set of cron expressions names on the clock on the wall, no matter which zone the wall is in.

A wall time is told as whole seconds since 1970-01-01T00:00:00 on that clock. The calendar repeats every 400 years, to
the day of the week, so nothing here ends, and every search does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from timerq.timing.cron import CronFields
from timerq.timing.days import days_of
from timerq.timing.times import Times, lowest

DAY_S = 86_400
NEVER = 1 << 60
"""A wall time after all others; with a minus, one before all others."""

_CYCLE_DAYS = 146_097  # 400 years
_EPOCH = date(1970, 1, 1).toordinal()
_THURSDAY = 4  # 1970-01-01; Sunday is 0
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAYS_BEFORE = tuple(
    tuple(sum(_LENGTHS[:month]) + (leap and month > 2) for month in range(14)) for leap in (0, 1)
)  # of the year's first 13 months; [1] of a leap year
_MAX_PATTERNS = 256

DayRange = tuple[int, int]
"""The first and the last of some days, both included, as days since 1970-01-01."""


class _Month(NamedTuple):
    """What the months of a kind have: the days with a time (bits 1 to 31), each expression's, the number of times."""

    days: int
    each: tuple[int, ...]
    total: int


class Walls:
    """The wall times of one or more expressions, without excluded ones.

    A wall time is named where one of ``due`` names it, none of ``excluded`` does, and its day is in none of ``off``
    (sorted, without overlaps).
    """

    __slots__ = ("_all", "_due", "_months", "_of_kind", "_off", "_off_starts", "_only", "_patterns", "_who")

    def __init__(
        self, due: Sequence[CronFields], excluded: Sequence[CronFields] = (), off: Sequence[DayRange] = ()
    ) -> None:
        self._all = (*due, *excluded)
        self._due = len(due)
        self._off = tuple(off)
        self._off_starts = [first for first, _ in off]
        self._of_kind: dict[int, _Month] = {}
        self._patterns: dict[int, Times] = {}
        self._only: Times | None = None
        self._months = 0
        for fields in due:
            self._months |= fields.months
        if len(self._all) == 1:
            self._only = Times.of(due)
            self._who: Sequence[int] = (0,) * 13
        else:  # which expressions have something to say in a month
            self._who = [
                sum(1 << i for i, fields in enumerate(self._all) if fields.months >> month & 1)
                for month in range(13)
            ]

    def next(self, wall: int) -> int:
        """The earliest wall time at or after ``wall``, or `NEVER`."""
        day, second = divmod(wall, DAY_S)
        found = self._day_from(day)
        if found is not None and found[0] == day:
            time = found[1].next(second)
            if time >= 0:
                return day * DAY_S + time
            found = self._day_from(day + 1)
        return NEVER if found is None else found[0] * DAY_S + found[1].first

    def prev(self, wall: int) -> int:
        """The latest wall time at or before ``wall``, or ``-NEVER``."""
        day, second = divmod(wall, DAY_S)
        found = self._day_upto(day)
        if found is not None and found[0] == day:
            time = found[1].prev(second)
            if time >= 0:
                return day * DAY_S + time
            found = self._day_upto(day - 1)
        return -NEVER if found is None else found[0] * DAY_S + found[1].last

    def count(self, start: int, end: int) -> int:
        """How many wall times there are from ``start`` on and before ``end`` (not before ``start``)."""
        first, second = divmod(start, DAY_S)
        last, until = divmod(end, DAY_S)
        whole = self._count_days(first, last)
        for begin, final in self._off[max(bisect_right(self._off_starts, first) - 1, 0) :]:
            if begin >= last:
                break
            whole -= self._count_days(max(begin, first), max(min(final + 1, last), first))
        return whole - self._before(first, second) + self._before(last, until)

    # ------------------------------------------------------------------------------------------- days

    def _day_from(self, day: int) -> tuple[int, Times] | None:
        """The first day at or after ``day`` that has a time, and its times."""
        while (found := self._plain_day_from(day)) is not None:
            off = self._off_at(found[0])
            if off is None:
                return found
            day = off[1] + 1
        return None

    def _day_upto(self, day: int) -> tuple[int, Times] | None:
        """The last day at or before ``day`` that has a time, and its times."""
        while (found := self._plain_day_upto(day)) is not None:
            off = self._off_at(found[0])
            if off is None:
                return found
            day = off[0] - 1
        return None

    def _off_at(self, day: int) -> DayRange | None:
        index = bisect_right(self._off_starts, day) - 1
        return self._off[index] if index >= 0 and day <= self._off[index][1] else None

    def _plain_day_from(self, day: int) -> tuple[int, Times] | None:
        year, month, of_month = _civil(day)
        first, leap, months = day - of_month + 1, _is_leap(year), self._months
        end = day + _CYCLE_DAYS
        days = -1 << of_month
        while first <= end:
            if months >> month & 1:
                found = self._month(month, leap, first)
                days &= found.days
                if days:
                    of_month = lowest(days)
                    return first + of_month - 1, self._times(found.each, of_month)
            days = -1
            later = months >> month + 1
            first -= _DAYS_BEFORE[leap][month]
            if later:
                month += 1 + lowest(later)
            else:
                first += _DAYS_BEFORE[leap][13]
                year += 1
                leap = _is_leap(year)
                month = lowest(months)
            first += _DAYS_BEFORE[leap][month]
        return None

    def _plain_day_upto(self, day: int) -> tuple[int, Times] | None:
        year, month, of_month = _civil(day)
        first, leap, months = day - of_month + 1, _is_leap(year), self._months
        end = day - _CYCLE_DAYS - 31
        days = (2 << of_month) - 1
        while first >= end:
            if months >> month & 1:
                found = self._month(month, leap, first)
                days &= found.days
                if days:
                    of_month = days.bit_length() - 1
                    return first + of_month - 1, self._times(found.each, of_month)
            days = -1
            earlier = months & (1 << month) - 1
            first -= _DAYS_BEFORE[leap][month]
            if not earlier:
                year -= 1
                leap = _is_leap(year)
                first -= _DAYS_BEFORE[leap][13]
                earlier = months
            month = earlier.bit_length() - 1
            first += _DAYS_BEFORE[leap][month]
        return None

    # ------------------------------------------------------------------------------------------- counts

    def _before(self, day: int, second: int) -> int:
        """How many times of a day are before ``second``."""
        if second == 0 or self._off_at(day) is not None:
            return 0
        year, month, of_month = _civil(day)
        if not self._months >> month & 1:
            return 0
        found = self._month(month, _is_leap(year), day - of_month + 1)
        return self._times(found.each, of_month).before(second) if found.days >> of_month & 1 else 0

    def _count_days(self, start: int, end: int) -> int:
        """How many times the days from ``start`` on and before ``end`` have, days off included."""
        cycles, days = divmod(end - start, _CYCLE_DAYS)
        total = self._count_months(start, start + _CYCLE_DAYS) * cycles if cycles else 0
        return total + self._count_months(start, start + days)

    def _count_months(self, start: int, end: int) -> int:
        year, month, of_month = _civil(start)
        first, leap = start - of_month + 1, _is_leap(year)
        total = 0
        while first < end:
            length = _DAYS_BEFORE[leap][month + 1] - _DAYS_BEFORE[leap][month]
            if self._months >> month & 1:
                found = self._month(month, leap, first)
                if start <= first and first + length <= end:
                    total += found.total
                else:
                    inside = (2 << min(end - first, length)) - (1 << max(start - first, 0) + 1)
                    total += self._total(found.each, found.days & inside)
            first += length
            month += 1
            if month == 13:
                year, month = year + 1, 1
                leap = _is_leap(year)
        return total

    def _total(self, each: tuple[int, ...], days: int) -> int:
        if self._only is not None:
            return days.bit_count() * self._only.total
        return sum(self._times(each, day).total for day in range(1, 32) if days >> day & 1)

    # ------------------------------------------------------------------------------------------- months

    def _month(self, month: int, leap: bool, first: int) -> _Month:
        """What a month has; ``first`` is its first day."""
        length = _DAYS_BEFORE[leap][month + 1] - _DAYS_BEFORE[leap][month]
        weekday = (first + _THURSDAY) % 7
        kind = self._who[month] << 8 | length << 3 | weekday
        found = self._of_kind.get(kind)
        if found is None:
            if self._only is not None:
                days = days_of(self._all[0], length, weekday)
                found = _Month(days, (), days.bit_count() * self._only.total)
            else:
                found = self._mixed(month, length, weekday)
            self._of_kind[kind] = found
        return found

    def _mixed(self, month: int, length: int, weekday: int) -> _Month:
        each = tuple(
            days_of(fields, length, weekday) if fields.months >> month & 1 else 0 for fields in self._all
        )
        days = total = 0
        for day in range(1, length + 1):
            if times := self._times(each, day).total:
                days |= 1 << day
                total += times
        return _Month(days, each, total)

    def _times(self, each: tuple[int, ...], day: int) -> Times:
        """The times of a day of a month, by which expressions name that day."""
        if self._only is not None:
            return self._only
        who = sum(1 << i for i, days in enumerate(each) if days >> day & 1)
        times = self._patterns.get(who)
        if times is None:
            due = [fields for i, fields in enumerate(self._all[: self._due]) if who >> i & 1]
            excluded = [f for i, f in enumerate(self._all[self._due :], self._due) if who >> i & 1]
            times = Times.of(due, excluded)
            if len(self._patterns) >= _MAX_PATTERNS:
                self._patterns.clear()
            self._patterns[who] = times
        return times


def _civil(day: int) -> tuple[int, int, int]:
    """Year (of a 400-year cycle), month and day of the month: `datetime.date` ends in 9999, this does not."""
    civil = date.fromordinal(day % _CYCLE_DAYS + _EPOCH)
    return civil.year, civil.month, civil.day


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
