"""One field of a cron expression, as a set of numbers; `timerq.timing.cron` tells the grammar.

Pure, and no reader of clocks. What cannot be read raises `Misfit`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple


@dataclass(frozen=True, eq=False, slots=True)
class Kind:
    """A kind of field: ``*`` is ``low`` to ``high``, and numbers go up to ``top``; 7 is one only for a weekday.

    ``want`` is what a message asks for. Equal to itself only, so that it is a cheap key.
    """

    name: str
    low: int
    high: int
    top: int
    want: str
    names: dict[str, int]


_MONTH_NAMES = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_WEEKDAY_NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]

_DAY = Kind("day of month", 1, 31, 31, "1 to 31", {})
_WEEKDAY = Kind(
    "day of week", 0, 6, 7, "0 to 7 or SUN to SAT", {name: i for i, name in enumerate(_WEEKDAY_NAMES)}
)
KINDS = (
    Kind("second", 0, 59, 59, "0 to 59", {}),
    Kind("minute", 0, 59, 59, "0 to 59", {}),
    Kind("hour", 0, 23, 23, "0 to 23", {}),
    _DAY,
    Kind(
        "month", 1, 12, 12, "1 to 12 or JAN to DEC", {name: i for i, name in enumerate(_MONTH_NAMES, start=1)}
    ),
    _WEEKDAY,
)


class Part(NamedTuple):
    """One field that was read; `CronFields` says what the parts of it are."""

    bits: int
    restricts: bool = True
    starred: bool = False
    last_day: bool = False
    last_weekday: bool = False
    nearest: int = 0
    nth: frozenset[tuple[int, int]] = frozenset()


ON_THE_MINUTE = Part(bits=1)


class Misfit(Exception):
    """A field that cannot be read, for ``why``: ``want`` would be right, ``at`` characters into it."""

    def __init__(self, at: int, want: str, why: str = "") -> None:
        self.at, self.want, self.why = at, want, why
        super().__init__(want)


@lru_cache(maxsize=4096)
def read_field(kind: Kind, token: str) -> Part:
    """What a field of this kind says; the token is one run of characters that are no blanks.

    Raises `Misfit`. Most expressions share their fields with others, so a new one is mostly looked up here.
    """
    whole = "*" if token == "?" and kind in (_DAY, _WEEKDAY) else token.translate(_UPPER)
    if kind is _DAY and whole[-1] == "W" and (nearest := _NEAREST.fullmatch(whole)):
        if whole == "LW":
            return Part(0, last_weekday=True)
        return Part(0, nearest=1 << _value(kind, nearest[1], 0))
    bits, restricts, last_day, at = 0, True, False, 0
    nth: list[tuple[int, int]] = []
    for item in whole.split(","):
        if kind is _DAY and item == "L":
            last_day = True
        elif kind is _WEEKDAY and (special := _NTH.fullmatch(item)):
            nth.append((_value(kind, special[1], at) % 7, int(special[2] or -1)))
        else:
            low, high, step = _range(kind, item, at)
            if item[0] == "*" and step == 1:
                restricts = False
            for value in range(low, high + 1, step):
                bits |= 1 << value
        at += len(item) + 1
    if kind is _WEEKDAY:  # 7 is Sunday too, but only now: 1-7/2 counts from 1 to 7
        bits = (bits | bits >> 7) & 0x7F
    return Part(bits, restricts, whole[0] == "*", last_day, nth=frozenset(nth))


# Not str.upper(): other scripts have letters whose upper case is an ASCII one.
_UPPER = str.maketrans(ascii_lowercase, ascii_uppercase)
_NEAREST = re.compile(r"(?:L|([0-9]+))W")
_NTH = re.compile(r"([0-9]+|[A-Z]{3})(?:L|#([1-5]))")


def _range(kind: Kind, item: str, at: int) -> tuple[int, int, int]:
    """The first and the last value and the step of one item of a list, ``at`` characters into its field."""
    base, slash, every = item.partition("/")
    low, high, step = kind.low, kind.high, 1
    if base != "*":
        first, dash, last = base.partition("-")
        low = _value(kind, first, at)
        if dash:
            high = _value(kind, last, at + len(first) + 1)
        elif not slash:
            high = low
        if low > high:
            raise _backwards(kind, low, high, at, slash + every)
    if slash:
        step = int(every) if every.isascii() and every.isdigit() else 0
        if step < 1:
            raise Misfit(at + len(base) + 1, "a step of 1 or more after the /")
    return low, high, step


def _value(kind: Kind, word: str, at: int) -> int:
    if word.isascii() and word.isdigit():
        value = int(word)
        if kind.low <= value <= kind.top:
            return value
    elif word in kind.names:
        return kind.names[word]
    raise Misfit(at, kind.want, next((why for shape, why in _WHYS if shape.match(word)), ""))


_WHYS = [
    (re.compile(shape), why)
    for shape, why in {
        r"$": "a value is missing",
        r".*[^!-~]": "only ASCII digits, letters and signs are read",
        r"R(?:$|\()": "R is random, another schedule at each parse",
        r"H(?:$|\()": "H is hashed from a name, another schedule for each reader",
        r".*\?": "? stands alone in its field, which is the day of month or the day of week",
        r".*\*": "* stands alone or before a step",
        r".*#": "# stands in the day of week field, between one weekday and 1 to 5, like 5#2",
        r"(?:L|[0-9]*)W$": "W stands in the day of month field, like 15W or LW, and alone",
        r"(?:[0-9]*|[A-Z]{3})L$": "L stands in the day of month field, or after one day of week, like 5L",
        r"(?:19|[2-9][0-9])[0-9]{2}$": "no field is for the year",
    }.items()
]
"""What may be behind a word that is no value; the first shape that matches tells."""


def _backwards(kind: Kind, low: int, high: int, at: int, step: str) -> Misfit:
    if kind is _WEEKDAY and low == 7:
        return Misfit(at, "0 for Sunday at the start", "7 is the Sunday that ends a week")
    if kind is _WEEKDAY and high == 0:
        return Misfit(
            at, f"a range that does not run backwards, like {low}-7{step}", "7 is the Sunday that ends a week"
        )
    up, down = (f"{a}-{b}" if a < b else f"{a}" for a, b in ((low, kind.high), (kind.low, high)))
    why = "" if step else f"around the end it is {up},{down}"
    return Misfit(at, "a range that does not run backwards", why)
