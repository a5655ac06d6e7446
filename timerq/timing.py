"""When a schedule is due: durations, instants and intervals, as pure arithmetic on whole milliseconds.

Durations
    ``"1h30m"``: parts NUMBER UNIT with the units w d h m s ms in that order, each at most once (Go and systemd
    write them so); ``"PT1H30M"``: ISO 8601 ``PnW`` or ``PnDTnHnMnS``, a fraction only in the last part; a mapping
    ``{"hours": 1, "minutes": 30}``; a `datetime.timedelta`; an int of milliseconds. There is one spelling of each
    text: blanks, upper-case units, words, signs, decimal commas, other orders and a fraction without a digit on
    both sides are refused, and so is a number without a unit (readers of such texts differ by a factor of 1000).
    The value is computed exactly, then rounded to the nearest millisecond, halves up.

Instants
    An aware `datetime.datetime`; an int of epoch milliseconds; RFC 3339 text (the strict part of ISO 8601) with
    ``Z`` or an offset, where the seconds may be left out and a blank may stand for the ``T``. What lies between two
    milliseconds is taken as the later one: nothing may be early, not by a microsecond.

Everything that cannot be read raises `InvalidSchedule`. Nobody here reads a clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import floor
from typing import Any, NamedTuple, Protocol, TypeAlias

from timerq.errors import InvalidSchedule
from timerq.model import Timing

MAX_INSTANT_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last instant a schedule can be due, in epoch milliseconds."""

MAX_DURATION_MS = timedelta.max // timedelta(milliseconds=1)
"""`datetime.timedelta.max` in whole milliseconds: the longest duration `resolve_duration` accepts."""

MAX_LIMIT = 2**53 - 1
"""The largest `limit`: the scripts count in doubles, which are exact up to here."""

Duration: TypeAlias = "int | str | timedelta | Mapping[str, int | float | Decimal]"
"""What `delay`, `every` and `initial_delay` may be; an int is milliseconds."""

Instant: TypeAlias = "int | str | datetime"
"""What `at`, `start` and `until` may be; an int is epoch milliseconds, a datetime must be aware."""

# A text is measured before it is read, so that no input costs more than a few microseconds. 64 characters hold every
# duration and instant with its fraction written to 20 digits.
_MAX_CHARS = 64

_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_NAMES = {
    "weeks": "w",
    "days": "d",
    "hours": "h",
    "minutes": "m",
    "seconds": "s",
    "milliseconds": "ms",
    "ms": "ms",
}

# [0-9], never \d: int() and \d take the digits of every script.
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_PARTS = re.compile("".join(f"(?:{_NUMBER}{unit})?" for unit in _MS))
_ISO_WEEKS = re.compile(f"P{_NUMBER}W")
_ISO = re.compile(f"P(?:{_NUMBER}D)?(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?")
_BARE = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?")
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
    r"(Z|([+-])([0-9]{2}):([0-9]{2}))?"
)

_WANT_DURATION = (
    'want milliseconds as an int, a timedelta, a text like "1h30m" or "PT1H30M" (units w d h m s ms, in that order), '
    'or a mapping like {"minutes": 5, "seconds": 30}'
)
_WANT_LENGTH = "want a duration of at most 999,999,999 days"
_WANT_NOT_NEGATIVE = "want a duration of 0 or more"
_WANT_INSTANT = (
    'want an aware datetime, epoch milliseconds as an int, or a text like "2030-01-31T09:00:00Z" or '
    '"2030-01-31T09:00:00+01:00"'
)
_WANT_RANGE = "want an instant from 1970-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z"

_LONGEST = Fraction(timedelta.max // timedelta(microseconds=1), 1000)
_HALF = Fraction(1, 2)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def resolve_duration(value: Duration, *, field: str = "delay") -> int:
    """A duration in whole milliseconds, 0 or more.

    ``value`` is an int of milliseconds, a timedelta, a text (``"1h30m"``, ``"1.5h"``, ``"PT1H30M"``) or a mapping with
    the keys weeks, days, hours, minutes, seconds, milliseconds (or ms). Rounded to the nearest millisecond, halves up;
    no binary floats on the way: ``"1.005s"`` is 1005.

    Raises `InvalidSchedule` naming ``field`` for everything else: negative, NaN, infinite, longer than timedelta.max,
    a number without a unit in a text, a float, a bool.
    """
    if type(value) is int:
        if 0 <= value <= MAX_DURATION_MS:
            return value
        raise InvalidSchedule(field, value, _WANT_NOT_NEGATIVE if value < 0 else _WANT_LENGTH)
    try:
        if type(value) is str:
            return _text_ms(value) if len(value) <= _MAX_CHARS else _refuse_length()
        if type(value) is timedelta:
            micros = _timedelta_micros(value)
            if 0 <= micros < MAX_DURATION_MS * 1000:
                return (micros + 500) // 1000
        return _rounded(_exact_ms(value))
    except _Unreadable as unreadable:
        raise InvalidSchedule(field, value, str(unreadable)) from None


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
    except _Unreadable as unreadable:
        raise InvalidSchedule(field, value, str(unreadable)) from None
    if not 0 <= micros <= MAX_INSTANT_MS * 1000:
        raise InvalidSchedule(field, value, _WANT_RANGE)
    return -(-micros // 1000)


def resolve_due(
    *, at: Instant | None = None, delay: Duration | None = None, now_ms: int | None = None
) -> int:
    """The epoch milliseconds at which a one-shot is due: ``at``, or ``delay`` counted from ``now_ms``.

    Exactly one of ``at`` and ``delay``. ``now_ms`` (epoch ms) is needed with ``delay``: nobody reads a clock here.
    Raises `InvalidSchedule` for bad values and for an instant after 9999-12-31T23:59:59.999Z.
    """
    if delay is None:
        if at is None:
            raise InvalidSchedule("timing", None, "want exactly one of at=, delay=")
        return resolve_instant(at)
    if at is not None:
        raise InvalidSchedule("timing", "at and delay", "want exactly one of at=, delay=")
    if now_ms is None or not _whole(now_ms):
        raise InvalidSchedule("now_ms", now_ms, "want the epoch milliseconds to count delay= from, as an int")
    due_ms = resolve_instant(now_ms, field="now_ms") + resolve_duration(delay)
    if due_ms > MAX_INSTANT_MS:
        raise InvalidSchedule("delay", delay, "want a delay that ends before the year 10000")
    return due_ms


def resolve_timing(
    *,
    at: Instant | None = None,
    delay: Duration | None = None,
    every: Duration | None = None,
    initial_delay: Duration | None = None,
    start: Instant | None = None,
    until: Instant | None = None,
    limit: int | None = None,
) -> Timing:
    """The `Timing` of a schedule: exactly one of ``at``, ``delay`` and ``every``, with what belongs to it.

    ``at``, ``start``, ``until`` are instants, ``delay``, ``every``, ``initial_delay`` durations; None is "not given".
    With ``every`` (1 ms or more) go ``initial_delay`` (0 fires at once) or ``start``, and ``until`` and ``limit`` (1 or
    more). A duration that would end after the year 9999 even if counted from 1970 is refused here; the rest of that
    check needs the time, and is made by who knows it.

    Raises `InvalidSchedule` naming the argument.
    """
    if every is None and initial_delay is None and start is None and until is None and limit is None:
        if delay is None:
            if at is not None:
                return _once(resolve_instant(at), None)
        elif at is None:
            return _once(None, resolve_wait(delay, "delay"))

    given = [name for name, value in (("at", at), ("delay", delay), ("every", every)) if value is not None]
    if every is None or len(given) != 1:
        if len(given) != 1:
            raise InvalidSchedule(
                "timing", " and ".join(given) or None, "want exactly one of at=, delay=, every="
            )
        extras = {"initial_delay": initial_delay, "start": start, "until": until, "limit": limit}
        field, got = next((name, value) for name, value in extras.items() if value is not None)
        raise InvalidSchedule(field, got, f"want {field}= only together with every= (here: {given[0]}=)")

    every_ms = resolve_wait(every, "every")
    if every_ms < 1 or (every_ms == 1 and type(every) is not int and _exact_ms(every) < 1):
        raise InvalidSchedule("every", every, "want an interval of 1 ms or more")
    if initial_delay is not None and start is not None:
        raise InvalidSchedule(
            "initial_delay", initial_delay, "want either initial_delay= or start=, not both"
        )
    initial_delay_ms = None if initial_delay is None else resolve_wait(initial_delay, "initial_delay")
    start_ms = None if start is None else resolve_instant(start, field="start")
    until_ms = None if until is None else resolve_instant(until, field="until")
    if start_ms is not None and until_ms is not None and until_ms < start_ms:
        raise InvalidSchedule("until", until, "want until= at or after start=: nothing would ever fire")
    if limit is not None:
        if not _whole(limit) or not 1 <= limit <= MAX_LIMIT:
            raise InvalidSchedule("limit", limit, "want the number of occurrences as an int, 1 or more")
        limit = int(limit)
    return Timing("every", None, None, every_ms, start_ms, initial_delay_ms, until_ms, limit)


def interval_after(at_ms: int, every_ms: int, now_ms: int) -> tuple[int, int]:
    """The slot to arm after the one at ``at_ms``, and how many slots between them were missed.

    The grid is ``at_ms + k * every_ms`` (fixed rate: a late fire does not move it). The next slot is the first that is
    later than both ``at_ms`` and ``now_ms``; missed are the slots later than ``at_ms`` that are not later than
    ``now_ms``. The same arithmetic as the firing script's, for previews and for tests. All in milliseconds.
    """
    missed = max(0, (now_ms - at_ms) // every_ms)
    return at_ms + (missed + 1) * every_ms, missed


class Plan(NamedTuple):
    """What comes after an occurrence: epoch milliseconds, None for "there is none", and the number of missed ones."""

    next_ms: int | None
    then_ms: int | None
    missed: int


class Planner(Protocol):
    """Plans a recurring schedule whose instants the scripts cannot compute.

    Given the stored ``definition``, the occurrence at ``at_ms`` and the time ``now_ms`` (both epoch ms), it answers the
    first occurrence after both, the one after that, and how many in between were missed. Pure: same input, same plan.
    """

    def __call__(self, definition: Mapping[str, str], at_ms: int, now_ms: int, /) -> Plan:
        """What to arm after the occurrence at ``at_ms``."""
        ...


class _Unreadable(ValueError):
    """A value that is no duration or instant; the message says what would be right."""


# Writing the slots one by one takes half the time of a frozen __init__; a bulk load makes 100,000 a second.
_new = object.__new__
_set_kind, _set_at, _set_delay, _set_every, _set_start, _set_initial, _set_until, _set_limit = (
    vars(Timing)[field.name].__set__ for field in fields(Timing)
)


def _once(at_ms: int | None, delay_ms: int | None) -> Timing:
    timing = _new(Timing)
    _set_kind(timing, "once")
    _set_at(timing, at_ms)
    _set_delay(timing, delay_ms)
    _set_every(timing, None)
    _set_start(timing, None)
    _set_initial(timing, None)
    _set_until(timing, None)
    _set_limit(timing, None)
    return timing


def resolve_wait(value: Duration, field: str) -> int:
    """A duration that can be counted from now, in ms: one longer than MAX_INSTANT_MS ends after 9999 in any case.

    Raises `InvalidSchedule` naming ``field``.
    """
    wait_ms = value if type(value) is int and value >= 0 else resolve_duration(value, field=field)
    if wait_ms > MAX_INSTANT_MS:
        raise InvalidSchedule(field, value, "want a duration that ends before the year 10000")
    return wait_ms


def _rounded(exact_ms: Fraction) -> int:
    if exact_ms < 0:
        raise _Unreadable(_WANT_NOT_NEGATIVE)
    if exact_ms > _LONGEST:
        raise _Unreadable(_WANT_LENGTH)
    return min(floor(exact_ms + _HALF), MAX_DURATION_MS)  # timedelta.max itself would be rounded up


def _exact_ms(value: object) -> Fraction:
    """A duration in milliseconds, before rounding and before its range is checked."""
    if isinstance(value, timedelta):
        return Fraction(_timedelta_micros(value), 1000)
    if isinstance(value, str):
        return _exact_text_ms(str.__str__(value)) if len(value) <= _MAX_CHARS else _refuse_length()
    if isinstance(value, Mapping):
        return _exact_mapping_ms(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(int(value))
    raise _Unreadable(_WANT_DURATION)


@lru_cache(maxsize=1024)
def _text_ms(text: str) -> int:
    return _rounded(_exact_text_ms(text))


def _refuse_length() -> Any:
    raise _Unreadable(f"want a text of at most {_MAX_CHARS} characters")


def _exact_text_ms(text: str) -> Fraction:
    if not text:
        raise _Unreadable(_WANT_DURATION)
    if match := _PARTS.fullmatch(text):
        numbers = dict(zip(_MS, match.groups(), strict=True))
    elif match := _ISO_WEEKS.fullmatch(text):
        numbers = {"w": match[1]}
    elif text != "P" and (match := _ISO.fullmatch(text)):
        numbers = dict(zip("dhms", match.groups(), strict=True))
        written = [number for number in numbers.values() if number is not None]
        if any("." in number for number in written[:-1]):
            raise _Unreadable("want a fraction only in the last part of an ISO 8601 duration")
    elif _BARE.fullmatch(text):
        raise _Unreadable(f'want a unit, as in "{text.lstrip("+-").rstrip(".")}s", or milliseconds as an int')
    else:
        raise _Unreadable(_WANT_NOT_NEGATIVE if text[0] == "-" else _WANT_DURATION)
    total = Fraction(0)
    for unit, number in numbers.items():
        if number is not None:
            whole, _, fraction = number.partition(".")
            total += Fraction(int(whole + fraction) * _MS[unit], 10 ** len(fraction))
    return total


def _exact_mapping_ms(parts: Mapping[Any, Any]) -> Fraction:
    if not parts:
        raise _Unreadable(_WANT_DURATION)
    if "ms" in parts and "milliseconds" in parts:
        raise _Unreadable("want either ms or milliseconds, not both")
    total = Fraction(0)
    for name, number in parts.items():
        unit = _NAMES.get(name) if isinstance(name, str) else None
        if unit is None:
            raise _Unreadable("want only the keys weeks, days, hours, minutes, seconds, milliseconds (or ms)")
        total += _exact_number(number, str(name)) * _MS[unit]
    return total


def _exact_number(number: object, name: str) -> Fraction:
    """A number of a mapping as it is written: a float means its shortest decimal, so 1.005 is 1.005."""
    if isinstance(number, int) and not isinstance(number, bool) and number.bit_length() <= 256:
        exact = Fraction(int(number))
    elif isinstance(number, (float, Decimal)):
        decimal = Decimal(float.__repr__(number)) if isinstance(number, float) else number
        sign, digits, exponent = decimal.as_tuple()
        # The second bound keeps Decimal("1e999999999") from being written out; a float stays within it.
        if not isinstance(exponent, int) or len(digits) + abs(exponent) > 400:
            raise _Unreadable(f"want a finite number of {name}")
        exact = Fraction(int("".join(map(str, digits)))) * Fraction(10) ** exponent * (-1 if sign else 1)
    else:
        raise _Unreadable(f"want a finite number of {name}, as an int, a float or a Decimal")
    if exact < 0:
        raise _Unreadable(f"want 0 or more {name}")
    return exact


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _epoch_micros(value: object) -> int:
    if isinstance(value, datetime):
        return _datetime_micros(value)
    if isinstance(value, str):
        return _text_micros(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) * 1000
    raise _Unreadable(_WANT_INSTANT)


def _datetime_micros(moment: datetime) -> int:
    """Epoch microseconds of an aware datetime, in integers: datetime.timestamp() is a float and loses some."""
    try:
        since = moment - _EPOCH if moment.utcoffset() is not None else None
    except Exception as error:  # a tzinfo is the caller's code
        raise _Unreadable(f"want a tzinfo that tells its offset (it raised {type(error).__name__})") from None
    if not isinstance(since, timedelta):
        raise _Unreadable("want an aware datetime: give it a zone, as in datetime(…, tzinfo=timezone.utc)")
    return _timedelta_micros(since)


def _timedelta_micros(value: timedelta) -> int:
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds


def _text_micros(text: str) -> int:
    """Epoch microseconds of an RFC 3339 text; digits after the sixth count as one more microsecond."""
    match = _INSTANT.fullmatch(text) if len(text) <= _MAX_CHARS else None
    if match is None:
        raise _Unreadable(_WANT_INSTANT)
    year, month, day, hour, minute = map(int, match.groups()[:5])
    second, fraction = int(match[6] or 0), match[7] or ""
    if match[8] is None:
        raise _Unreadable(f'want an offset: "{text}Z" for UTC, or one like "{text}+01:00"')
    try:
        ordinal = date(year, month, day).toordinal()
    except ValueError:
        raise _Unreadable("want a date that exists, in the years 1970 to 9999") from None
    offset_hours, offset_minutes = int(match[10] or 0), int(match[11] or 0)
    if hour > 23 or minute > 59 or second > 59 or offset_hours > 23 or offset_minutes > 59:
        raise _Unreadable("want a time from 00:00:00 to 23:59:59, and an offset below 24 hours")
    offset = (offset_hours * 3600 + offset_minutes * 60) * (-1 if match[9] == "-" else 1)
    micros = int(fraction[:6].ljust(6, "0")) + (fraction[6:].strip("0") != "")
    seconds = (ordinal - _EPOCH.toordinal()) * 86_400 + hour * 3600 + minute * 60 + second - offset
    return seconds * 1_000_000 + micros
