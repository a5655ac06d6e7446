"""From words of the command line and lines of files to values; what they mean is the library's to say."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

import click

_DIGITS = re.compile(r"[0-9]{1,18}")
_BARE = re.compile(r"[0-9]+(\.[0-9]*)?")
_MAX_DIGITS = 100


def number(text: str | int) -> int:
    """A whole number, 0 or more, in plain digits: no signs, blanks, underscores or digits of other scripts."""
    if isinstance(text, int):
        return text  # an option's default
    if not _DIGITS.fullmatch(text):
        raise click.BadParameter(f"{text[:40]!r} is not a whole number of 0 or more")
    return int(text)


def instant(text: str) -> int | str:
    """An instant: digits are epoch milliseconds, the rest is for the library to read.

    Ten digits are what a clock of whole seconds shows: taken for milliseconds they are a day of 1970, and it would fire
    at once.
    """
    if not _DIGITS.fullmatch(text):
        return text
    if len(text) == 10:
        raise click.BadParameter(f"{text!r} looks like epoch seconds: want milliseconds, as in {text}000")
    return int(text)


def duration(text: str) -> str:
    """A duration, for the library to read; a number without a unit gets a message that suits the command line."""
    if len(text) < 30 and _BARE.fullmatch(text):
        plain = text.rstrip(".")
        raise click.BadParameter(f'{text!r} has no unit: say "{plain}s" or "{plain}ms"')
    return text


@dataclass(frozen=True, slots=True, repr=False)
class Age:
    """How long ago: a duration, for the library to read. It shows itself as what was typed."""

    text: str

    def __repr__(self) -> str:
        return repr(self.text)


def age_or_instant(text: str) -> Age | int | str:
    """An age ("2h"), or an instant as `instant` has it."""
    if _DIGITS.fullmatch(text) and len(text) >= 10:
        return instant(text)
    return text if "-" in text or ":" in text else Age(duration(text))


def parse_json(text: str) -> Any:
    """The value of a JSON text, strictly: no NaN, no Infinity, no name twice, no number beyond a double.

    Raises ValueError with a message for the one who wrote it.
    """
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise ValueError(f"not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def parse_correlation(pairs: tuple[str, ...]) -> dict[str, str] | None:
    """``NAME=TEXT`` words as a correlation."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(
                f"{pair[:60]!r} is not of the form NAME=TEXT", param_hint="--correlation"
            )
        if name in found:
            raise click.BadParameter(f"{name[:60]!r} is given twice", param_hint="--correlation")
        found[name] = text
    return found or None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def _whole_number(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits is too large")
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the name {twice[:60]!a} comes twice in one object")
    return found


_decode = json.JSONDecoder(
    parse_constant=_refuse_constant,
    parse_float=_float,
    parse_int=_whole_number,
    object_pairs_hook=_object,
).decode
