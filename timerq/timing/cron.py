"""Cron expressions, as sets of numbers.

The grammar is that of crontab(5), strict, with the additions most schedulers share:

fields      five (minute, hour, day of month, month, day of week), or six with the second first; ASCII blanks between
values      numbers; JAN to DEC and SUN to SAT in any case. 0 and 7 are Sunday, so 5-7 is Friday to Sunday
items       ``*``, ``a``, ``a-b`` with a ≤ b, each also with a step ``/n``; ``a/n`` goes on to the field's end; lists
days        ``?`` alone is ``*``; ``L`` the last day; ``15W`` the weekday nearest to the 15th inside its month, and
            ``LW`` the last weekday, both alone in their field
weekdays    ``?``; ``5L`` the last Friday; ``5#2`` the second one (1 to 5)
macros      @yearly @annually @monthly @weekly @daily @midnight @hourly

``L``, ``W`` and ``#`` are Quartz's. What is read in two ways elsewhere (reversed ranges, a year field, ``H``, ``R``,
@reboot) is refused, and so is what never fires. One expression is one set of instants: nothing is random.

Pure, and no reader of clocks. What cannot be read raises `InvalidSchedule`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

from timerq.errors import InvalidSchedule
from timerq.timing.cronfield import KINDS, ON_THE_MINUTE, Misfit, Part, read_field

MAX_CRON_CHARS = 1000
"""The longest expression that is read at all; every reasonable one is far shorter."""


@dataclass(frozen=True, slots=True)
class CronFields:
    """What a cron expression says, each field as a set of bits: bit n stands for the value n.

    ``text`` is the expression as it came. ``seconds`` has bit 0 only when there are five fields. ``days`` has the bits
    1 to 31, ``months`` 1 to 12, ``weekdays`` 0 (Sunday) to 6. ``last_day`` is ``L`` and ``last_weekday`` is ``LW``;
    ``nearest`` has the bit 15 for ``15W``; ``nth`` has (weekday, k) for ``5#k`` and (weekday, -1) for ``5L``.

    ``days_restricted`` and ``weekdays_restricted``: the field is none of ``*``, ``?``, ``*/1``. When both are, a day
    that fits either fits; else one that fits the restricted one does. ``follows_clock``: the minute, the hour or the
    second starts with ``*``, so that the job follows the clock through a DST change. ``has_seconds``: six fields.
    """

    text: str
    seconds: int
    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int
    last_day: bool
    last_weekday: bool
    nearest: int
    nth: frozenset[tuple[int, int]]
    days_restricted: bool
    weekdays_restricted: bool
    follows_clock: bool
    has_seconds: bool


def parse_cron(text: str, field: str = "cron") -> CronFields:
    """The fields of a cron expression; equal texts give one object while it is cached.

    Raises `InvalidSchedule` naming ``field`` for what is no such expression, is longer than `MAX_CRON_CHARS`, or never
    fires; ``want`` names the cron field, the position of the fault (the first character of ``text`` is 1) and what
    would be right there.
    """
    if not isinstance(text, str):
        raise InvalidSchedule(field, text, f"want {_WANT}, as a text")
    text = str.__str__(text)  # a subclass may count and hash as it likes
    if len(text) > MAX_CRON_CHARS:
        raise InvalidSchedule(field, text, f"want a cron expression of at most {MAX_CRON_CHARS:,} characters")
    try:
        return _parse(text)
    except _Refused as refused:
        raise InvalidSchedule(field, text, refused.want) from None


def is_pair_of_days(text: str) -> bool:
    """Whether both day fields of an expression are restricted, and one of them begins with ``*``, as ``*/2`` does.

    Debian's cron then wants a day that fits both; here, as in every pair of day fields, either is enough.
    """
    fields = parse_cron(text)
    day, _, weekday = (*_TOKEN.findall(text)[-3:], "", "")[:3]
    both = fields.days_restricted and fields.weekdays_restricted
    return both and "*" in (day[:1], weekday[:1])


# -------------------------------------------------------------------------------------------------- expressions

_WANT = (
    'a cron expression of five fields (minute, hour, day of month, month, day of week), like "0 9 * * MON-FRI", '
    'six (the second first), or a macro like "@daily"'
)

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_WANT_MACRO = f"one of {', '.join(_MACROS)}, alone"
_NO_MACROS = {
    "@reboot": "@reboot is no instant: it means the start of a cron daemon",
    "@every": "an interval is given with every=, not as a cron expression",
}

# Not str.split(): it takes the blanks of every script, and a few control characters.
_TOKEN = re.compile(r"[^ \t\n\r\v\f]+")


class _Refused(Exception):
    """An expression that is none; ``want`` is the whole sentence."""

    def __init__(self, want: str) -> None:
        self.want = want
        super().__init__(want)


@lru_cache(maxsize=4096)
def _parse(text: str) -> CronFields:
    tokens = _TOKEN.findall(text)
    if tokens and tokens[0][0] == "@":
        tokens = _macro(text, tokens)
    count = len(tokens)
    if not 5 <= count <= 6:
        _refuse_count(text, tokens)
    parts = [] if count == 6 else [ON_THE_MINUTE]
    for kind, token in zip(KINDS[-count:], tokens, strict=True):
        try:
            parts.append(read_field(kind, token))
        except Misfit as misfit:
            position = _position(text, len(tokens) - len(KINDS) + len(parts)) + misfit.at
            why = f": {misfit.why}" if misfit.why else ""
            raise _Refused(
                f"want {misfit.want} in the {kind.name} field (position {position}){why}"
            ) from None
    second, minute, hour, day, month, weekday = parts
    if not weekday.restricts and not _comes(day, month.bits):
        _refuse_never(day, _position(text, count - 3))
    return CronFields(
        text,
        second.bits,
        minute.bits,
        hour.bits,
        day.bits,
        month.bits,
        weekday.bits,
        day.last_day,
        day.last_weekday,
        day.nearest,
        weekday.nth,
        day.restricts,
        weekday.restricts,
        second.starred or minute.starred or hour.starred,
        count == 6,
    )


def _position(text: str, index: int) -> int:
    """Where the field number ``index`` starts; the first character is 1."""
    return [match.start() for match in _TOKEN.finditer(text)][index] + 1


def _macro(text: str, tokens: list[str]) -> list[str]:
    name = _lower(tokens[0])
    if len(tokens) == 1 and name in _MACROS:
        return _MACROS[name].split()
    why = f": {_NO_MACROS[name]}" if name in _NO_MACROS else ""
    raise _Refused(f"want {_WANT_MACRO} (position {_position(text, 0)}){why}")


def _lower(token: str) -> str:
    """In lower case if it is ASCII: other scripts have letters whose lower case is an ASCII one."""
    return token.lower() if token.isascii() else token


def _refuse_count(text: str, tokens: list[str]) -> NoReturn:
    count = len(tokens)
    if count == 1 and (macro := f"@{_lower(tokens[0])}") in _MACROS:
        raise _Refused(f"want {macro}, with the @ (position {_position(text, 0)})")
    why = f"; there {'is' if count == 1 else 'are'} {count}" if count else ""
    if count == 7:
        why += ", and no field is for the year or a command"
    raise _Refused(f"want {_WANT}{why}")


# --------------------------------------------------------------------------------------------- what never fires

_LONG = sum(1 << month for month in (1, 3, 5, 7, 8, 10, 12))
_FEBRUARY = 1 << 2


def _comes(day: Part, months: int) -> bool:
    """Whether one of the months ever has one of the days.

    A restricted day of week needs no such check: each one comes in every month, and even a fifth one comes in some
    February within any 40 years.
    """
    longest = 31 if months & _LONG else 30 if months & ~_FEBRUARY else 29
    return day.last_day or day.last_weekday or bool((day.bits | day.nearest) & ((2 << longest) - 1))


def _refuse_never(day: Part, position: int) -> NoReturn:
    given = day.bits | day.nearest
    first = (given & -given).bit_length() - 1
    raise _Refused(
        f"never fires: no month of those given has a day {first}; want a day that one of them has in the day of "
        f"month field (position {position})"
    )
