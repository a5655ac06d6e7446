"""The days of a month that a cron expression names, as bits 1 to 31.

A month is told by its length and by the weekday of its first day (Sunday 0): there are 28 kinds of months, and an
expression names the same days in all months of a kind.
"""

from __future__ import annotations

from timerq.timing.cron import CronFields

_WEEKS = sum(1 << (1 + 7 * week) for week in range(5))  # a week's bits times this: that week, from day 1 on
_SUNDAY, _SATURDAY = 0, 6


def days_of(fields: CronFields, length: int, weekday: int) -> int:
    """The days that the two day fields name in a month of ``length`` days whose first is a ``weekday``, as bits.

    The field of the months is not looked at. Days a month does not have are left out: the 31st, a fifth Friday, 31W.
    """
    days = fields.days
    if fields.last_day:
        days |= 1 << length
    if fields.last_weekday:
        days |= 1 << _workday(length, length, weekday)
    if fields.nearest:
        for day in range(1, length + 1):
            if fields.nearest >> day & 1:
                days |= 1 << _workday(day, length, weekday)
    week = fields.weekdays
    by_week = ((week >> weekday | week << (7 - weekday)) & 0x7F) * _WEEKS
    for day_of_week, nth in fields.nth:
        first = 1 + (day_of_week - weekday) % 7
        last = first + (length - first) // 7 * 7
        by_week |= 1 << (last if nth == -1 else first + 7 * (nth - 1))
    if fields.days_restricted and fields.weekdays_restricted:
        days |= by_week
    else:  # the other field is every day
        days &= by_week
    return days & ((2 << length) - 2)


def _workday(day: int, length: int, weekday: int) -> int:
    """The workday nearest to ``day`` in its month: the Friday before a Saturday, the Monday after a Sunday."""
    of_week = (weekday + day - 1) % 7
    if of_week == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if of_week == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day
