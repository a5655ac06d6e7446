"""A refusal, which the library words for Python, in the words of the place where the bad value stands.

On a command line ``misfire="skip"`` is ``--misfire skip``, in a file ``misfire: "skip"``; neither has a timedelta.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any

from timerq.errors import InvalidSchedule
from timerq.timing.durations import WANT_DURATION
from timerq.timing.instants import WANT_AWARE, WANT_INSTANT

_WORD = re.compile(r'\b([a-z][a-z_]*)=("[^"]*"|True\b|False\b|)')
_HOW_OFTEN = ("at", "delay", "every", "cron")
_UNITS = "(units w d h m s ms, in that order)"
_PLAIN = (
    (WANT_INSTANT, 'want an instant like "2030-01-31T09:00:00Z" or "2030-01-31T09:00:00+01:00", or epoch ms'),
    (WANT_AWARE, "want an offset, as in 2030-01-31T09:00:00Z"),
    ("want True or False", "want true or false"),
    (" as an int", " as a whole number"),
)
_DURATION = f'want a duration like "1h30m" or "PT1H30M" {_UNITS}'
_DURATION_IN_A_FILE = f'{_DURATION}, milliseconds, or a mapping like {{"minutes": 5, "seconds": 30}}'


def for_options(error: InvalidSchedule, names: Mapping[str, str], given: Mapping[str, Any]) -> str:
    """The whole message for a command line: ``names`` has the option of a word, ``given`` what it was given."""

    def say(word: str, value: str) -> str:
        option = names.get(word)
        if option is None:
            return f"{word} {value}".rstrip()
        first, _, off = option.partition("/")
        if value in ("True", "False"):
            return first if value == "True" else off or f"no {first}"
        value = value.strip('"')
        return f"{first} {value}".rstrip()

    if error.field == "timing":
        known = [f"{word}=" for word in _HOW_OFTEN if word in names]
        error = InvalidSchedule("timing", error.got, f"want exactly one of {', '.join(known)}")
    if error.got is True:  # an option without a value
        error, given = InvalidSchedule(error.field, None, error.want), {}
    told = _told(error, say, given, ((WANT_DURATION, _DURATION), *_PLAIN))
    if error.field == "timing":
        return told
    return f"{names.get(error.field, error.field).partition('/')[0]}: {told}"


def for_file(error: InvalidSchedule, given: Mapping[str, Any]) -> str:
    """What came and what would be right, without the name of the word; ``given`` has the words of the entry."""

    def say(word: str, value: str) -> str:
        return f"{word}: {value.lower() if value in ('True', 'False') else value}" if value else word

    return _told(error, say, given, ((WANT_DURATION, _DURATION_IN_A_FILE), *_PLAIN))


def _told(
    error: InvalidSchedule,
    say: Callable[[str, str], str],
    given: Mapping[str, Any],
    plain: Iterable[tuple[str, str]],
) -> str:
    want = error.want
    for python, text in plain:
        want = want.replace(python, text)
    want = _WORD.sub(lambda match: say(match[1], match[2]), want)
    got = error.got
    if error.field == "timing":
        words = [say(word, "") for word in got.split(" and ")] if isinstance(got, str) else []
        return want + (f"; there are {' and '.join(words)}" if words else "")
    came = given.get(error.field)
    if error.field in ("payload", "correlation"):
        came = None  # the refusal tells the part that is wrong
    if came is not None and not (isinstance(came, (list, tuple)) and got in came):
        got = came[0] if isinstance(came, (list, tuple)) and len(came) == 1 else came
    if got is None:
        return want
    if isinstance(got, date):
        got = str(got)
    return str(InvalidSchedule(error.field, got, want)).removeprefix(f"{error.field}: ")


def unknown_word(word: object, known: Iterable[str]) -> str:
    """What may have been meant by a word that is none of those known."""
    names = list(known)
    close = difflib.get_close_matches(str(word), names, 1)
    return f"did you mean {close[0]}?" if close else f"want only {', '.join(names)}"
