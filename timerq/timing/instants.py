"""Instants, as whole epoch milliseconds.

An aware `datetime.datetime`; an int of epoch milliseconds; RFC 3339 text (the strict part of ISO 8601) with
``Z`` or an offset, where the seconds may be left out and a blank may stand for the ``T``. What lies between two
milliseconds is taken as the later one: nothing may be early, not by a microsecond.

Pure, and no reader of clocks. What cannot be read raises `InvalidSchedule`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TypeAlias

from timerq.errors import InvalidSchedule
from timerq.timing.durations import MAX_CHARS, Unreadable, timedelta_micros

MAX_INSTANT_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last instant a schedule can be due, in epoch milliseconds."""

Instant: TypeAlias = "int | str | datetime"
"""What `at`, `start` and `until` may be; an int is epoch milliseconds, a datetime must be aware."""

_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
    r"(Z|([+-])([0-9]{2}):([0-9]{2}))?"
)

WANT_INSTANT = (
    'want an aware datetime, epoch milliseconds as an int, or a text like "2030-01-31T09:00:00Z" or '
    '"2030-01-31T09:00:00+01:00"'
)
"""What an instant may be, in a refusal."""

WANT_AWARE = "want an aware datetime: give it a zone, as in datetime(…, tzinfo=timezone.utc)"
"""What a datetime without an offset is refused with."""

_WANT_RANGE = "want an instant from 1970-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def resolve_instant(value: Instant, *, field: str = "at") -> int:
    """An instant in whole epoch milliseconds, from 1970 to the end of 9999.

    ``value`` is an aware datetime, an int of epoch milliseconds, or RFC 3339 text with ``Z`` or an offset. Parts of a
    millisecond count as a whole one, so that the result is never before ``value``.

    Raises `InvalidSchedule` naming ``field`` for everything else: a datetime or text without an offset, a float, a
    bool, a date, a leap second, an instant outside the range.
    """
    if type(value) is int:
        if 0 <= value <= MAX_INSTANT_MS:
            return value
        raise InvalidSchedule(field, value, _WANT_RANGE)
    try:
        micros = _epoch_micros(value)
    except Unreadable as unreadable:
        raise InvalidSchedule(field, value, str(unreadable)) from None
    if not 0 <= micros <= MAX_INSTANT_MS * 1000:
        raise InvalidSchedule(field, value, _WANT_RANGE)
    return -(-micros // 1000)


def is_whole(value: object) -> bool:
    """Whether it is an int and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _epoch_micros(value: object) -> int:
    if isinstance(value, datetime):
        return _datetime_micros(value)
    if isinstance(value, str):
        return _text_micros(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) * 1000
    raise Unreadable(WANT_INSTANT)


def _datetime_micros(moment: datetime) -> int:
    """Epoch microseconds of an aware datetime, in integers: datetime.timestamp() is a float and loses some."""
    try:
        since = moment - _EPOCH if moment.utcoffset() is not None else None
    except Exception as error:  # a tzinfo is the caller's code
        raise Unreadable(f"want a tzinfo that tells its offset (it raised {type(error).__name__})") from None
    if not isinstance(since, timedelta):
        raise Unreadable(WANT_AWARE)
    return timedelta_micros(since)


def _text_micros(text: str) -> int:
    """Epoch microseconds of an RFC 3339 text; digits after the sixth count as one more microsecond."""
    match = _INSTANT.fullmatch(text) if len(text) <= MAX_CHARS else None
    if match is None:
        raise Unreadable(WANT_INSTANT)
    year, month, day, hour, minute = map(int, match.groups()[:5])
    second, fraction = int(match[6] or 0), match[7] or ""
    if match[8] is None:
        raise Unreadable(f'want an offset: "{text}Z" for UTC, or one like "{text}+01:00"')
    try:
        ordinal = date(year, month, day).toordinal()
    except ValueError:
        raise Unreadable("want a date that exists, in the years 1970 to 9999") from None
    offset_hours, offset_minutes = int(match[10] or 0), int(match[11] or 0)
    if hour > 23 or minute > 59 or second > 59 or offset_hours > 23 or offset_minutes > 59:
        raise Unreadable("want a time from 00:00:00 to 23:59:59, and an offset below 24 hours")
    offset = (offset_hours * 3600 + offset_minutes * 60) * (-1 if match[9] == "-" else 1)
    micros = int(fraction[:6].ljust(6, "0")) + (fraction[6:].strip("0") != "")
    seconds = (ordinal - _EPOCH.toordinal()) * 86_400 + hour * 3600 + minute * 60 + second - offset
    return seconds * 1_000_000 + micros
