"""Durations, as whole milliseconds.

``"1h30m"``: parts NUMBER UNIT with the units w d h m s ms in that order, each at most once (Go and systemd
write them so); ``"PT1H30M"``: ISO 8601 ``PnW`` or ``PnDTnHnMnS``, a fraction only in the last part; a mapping
``{"hours": 1, "minutes": 30}``; a `datetime.timedelta`; an int of milliseconds. There is one spelling of each
text: blanks, upper-case units, words, signs, decimal commas, other orders and a fraction without a digit on
both sides are refused, and so is a number without a unit (readers of such texts differ by a factor of 1000).
The value is computed exactly, then rounded to the nearest millisecond, halves up.

Pure, and no reader of clocks. What cannot be read raises `InvalidSchedule`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import floor
from typing import Any, TypeAlias

from timerq.errors import InvalidSchedule

MAX_DURATION_MS = timedelta.max // timedelta(milliseconds=1)
"""`datetime.timedelta.max` in whole milliseconds: the longest duration `resolve_duration` accepts."""

Duration: TypeAlias = "int | str | timedelta | Mapping[str, int | float | Decimal]"
"""What `delay`, `every` and `initial_delay` may be; an int is milliseconds."""

# A text is measured before it is read, so that no input costs more than a few microseconds. 64 characters hold every
# duration and instant with its fraction written to 20 digits.
MAX_CHARS = 64

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

WANT_DURATION = (
    'want milliseconds as an int, a timedelta, a text like "1h30m" or "PT1H30M" (units w d h m s ms, in that order), '
    'or a mapping like {"minutes": 5, "seconds": 30}'
)
"""What a duration may be, in a refusal."""

_WANT_LENGTH = "want a duration of at most 999,999,999 days"
_WANT_NOT_NEGATIVE = "want a duration of 0 or more"

_LONGEST = Fraction(timedelta.max // timedelta(microseconds=1), 1000)
_HALF = Fraction(1, 2)


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
            return _text_ms(value) if len(value) <= MAX_CHARS else _refuse_length()
        if type(value) is timedelta:
            micros = timedelta_micros(value)
            if 0 <= micros < MAX_DURATION_MS * 1000:
                return (micros + 500) // 1000
        return _rounded(exact_ms(value))
    except Unreadable as unreadable:
        raise InvalidSchedule(field, value, str(unreadable)) from None


class Unreadable(ValueError):
    """A value that is no duration or instant; the message says what would be right."""


def _rounded(exact_ms: Fraction) -> int:
    if exact_ms < 0:
        raise Unreadable(_WANT_NOT_NEGATIVE)
    if exact_ms > _LONGEST:
        raise Unreadable(_WANT_LENGTH)
    return min(floor(exact_ms + _HALF), MAX_DURATION_MS)  # timedelta.max itself would be rounded up


def exact_ms(value: object) -> Fraction:
    """A duration in milliseconds, before rounding and before its range is checked."""
    if isinstance(value, timedelta):
        return Fraction(timedelta_micros(value), 1000)
    if isinstance(value, str):
        return _exact_text_ms(str.__str__(value)) if len(value) <= MAX_CHARS else _refuse_length()
    if isinstance(value, Mapping):
        return _exact_mapping_ms(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(int(value))
    raise Unreadable(WANT_DURATION)


@lru_cache(maxsize=1024)
def _text_ms(text: str) -> int:
    return _rounded(_exact_text_ms(text))


def _refuse_length() -> Any:
    raise Unreadable(f"want a text of at most {MAX_CHARS} characters")


def _exact_text_ms(text: str) -> Fraction:
    if not text:
        raise Unreadable(WANT_DURATION)
    if match := _PARTS.fullmatch(text):
        numbers = dict(zip(_MS, match.groups(), strict=True))
    elif match := _ISO_WEEKS.fullmatch(text):
        numbers = {"w": match[1]}
    elif text != "P" and (match := _ISO.fullmatch(text)):
        numbers = dict(zip("dhms", match.groups(), strict=True))
        written = [number for number in numbers.values() if number is not None]
        if any("." in number for number in written[:-1]):
            raise Unreadable("want a fraction only in the last part of an ISO 8601 duration")
    elif _BARE.fullmatch(text):
        raise Unreadable(f'want a unit, as in "{text.lstrip("+-").rstrip(".")}s", or milliseconds as an int')
    else:
        raise Unreadable(_WANT_NOT_NEGATIVE if text[0] == "-" else WANT_DURATION)
    total = Fraction(0)
    for unit, number in numbers.items():
        if number is not None:
            whole, _, fraction = number.partition(".")
            total += Fraction(int(whole + fraction) * _MS[unit], 10 ** len(fraction))
    return total


def _exact_mapping_ms(parts: Mapping[Any, Any]) -> Fraction:
    if not parts:
        raise Unreadable(WANT_DURATION)
    if "ms" in parts and "milliseconds" in parts:
        raise Unreadable("want either ms or milliseconds, not both")
    total = Fraction(0)
    for name, number in parts.items():
        unit = _NAMES.get(name) if isinstance(name, str) else None
        if unit is None:
            raise Unreadable("want only the keys weeks, days, hours, minutes, seconds, milliseconds (or ms)")
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
            raise Unreadable(f"want a finite number of {name}")
        exact = Fraction(int("".join(map(str, digits)))) * Fraction(10) ** exponent * (-1 if sign else 1)
    else:
        raise Unreadable(f"want a finite number of {name}, as an int, a float or a Decimal")
    if exact < 0:
        raise Unreadable(f"want 0 or more {name}")
    return exact


def timedelta_micros(value: timedelta) -> int:
    """A timedelta in microseconds, exactly."""
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
