"""A sentence for each thing that happened."""

from __future__ import annotations

import re
from collections.abc import Callable

from timerq.explain.definition import When, times
from timerq.explain.story import Line
from timerq.model import Fire
from timerq.timing.instants import MAX_INSTANT_MS
from timerq.timing.texts import length

LEAVES_NO_TRACE = (
    "a one-shot that fires or is consumed leaves nothing but its event, for as long as the stream keeps that"
)

_EVENT_ID = r"\d{1,4}-\d{1,16}-\w{1,20}"


def sentence(line: Line, when: When) -> str:
    """What happened, with its time in front."""
    span = when(line.at_ms) if line.times == 1 else f"{when(line.at_ms)} to {when(line.until_ms)}"
    tell = _WORDS.get(line.what)
    if tell is None:  # a word of a later version
        return f"{span}: {line.what or 'something'}{_by(line)}{_brackets(line)}."
    return f"{span}: {tell(line, when)}."


def _by(line: Line) -> str:
    return f" by {line.by}" if line.by else ""


def _again(line: Line) -> str:
    return f", {times(line.times)}" if line.times > 1 else ""


def _why(line: Line) -> str:
    return f": {line.detail.rstrip('.')}" if line.detail else ""


def _brackets(line: Line) -> str:
    return (f" ({line.detail})" if line.detail else "") + _again(line)


def _colon(line: Line) -> str:
    return _again(line) + _why(line)


def _occurrences(line: Line) -> str:
    """How many occurrences; that is all there is to say of a run of entries, too."""
    count = line.count or line.times
    return f"{count:,} occurrence{'' if count == 1 else 's'}"


def _set(line: Line, when: When) -> str:
    text = f"set{_by(line)}"
    if line.left:
        before = when(min(line.left // 1000, line.at_ms))
        text += f"; what was set at {before} had gone without an entry: {LEAVES_NO_TRACE}"
    return text


def _fired(line: Line, when: When) -> str:
    lag_ms = int(line.detail)
    text = f"fired, {length(lag_ms)} late" if lag_ms > 0 else "fired on time"
    if line.count:
        text += f"; the event stands for {line.count:,} later occurrence{'' if line.count == 1 else 's'} too"
    return text + _outcome(line.fire)


def _outcome(fire: Fire | None) -> str:
    """What a group of consumers last said of its event."""
    if fire is None or fire.outcome not in _OUTCOMES:
        return ""
    attempt = f" at attempt {fire.attempt:,}" if fire.attempt > 1 else ""
    text = _OUTCOMES[fire.outcome].format(attempt)
    return f"; {text}: {fire.summary.rstrip('.')}" if fire.summary else f"; {text}"


_OUTCOMES = {
    "ok": "its event was handled{}",
    "retry": "its event failed{} and is tried again",
    "failed": "its event failed{} and was given up",
}


def _replaced(line: Line, when: When) -> str:
    text = f"replaced{_by(line)}{_again(line)}"
    if line.detail == "0":
        text += ", what was there could not be read"
    return text


def _backfilled(line: Line, when: When) -> str:
    first = re.fullmatch(r"from (\d{1,15})", line.detail)
    since = f", from that of {when(min(int(first[1]), MAX_INSTANT_MS))} on" if first else _brackets(line)
    return f"backfilled{_by(line)}: {_occurrences(line)} of the past published{since}"


def _triggered(line: Line, when: When) -> str:
    event = f" as event {line.detail}" if line.detail else ""
    return f"triggered{_by(line)}: published at once{event}, outside its timing{_again(line)}"


def _failed(line: Line, when: When) -> str:
    found = re.fullmatch(rf"({_EVENT_ID})(?: (.*))?", line.detail, re.DOTALL)
    event, error = (f"event {found[1]}", found[2] or "") if found else ("an event", line.detail)
    reason = f": {error.rstrip('.')}" if error else ""
    return f"the handling of {event} failed{_by(line)}{_again(line)}{reason}"


def _ended(line: Line, when: When) -> str:
    found = re.fullmatch(r"(limit|until|last) (\d{1,16})", line.detail)
    if found is None:
        return f"ended: no occurrence was left{_brackets(line)}"
    fired = int(found[2])
    why = {
        "limit": f"its limit of {fired:,} is used up",
        "until": "no occurrence was left before its until",
        "last": "no occurrence was left",
    }[found[1]]
    return f"ended: {why}; it fired {times(fired)}{_again(line)}"


_WORDS: dict[str, Callable[[Line, When], str]] = {
    "set": _set,
    "fired": _fired,
    "replaced": _replaced,
    "cancelled": lambda line, _: f"cancelled{_by(line)}{_brackets(line)}",
    "paused": lambda line, _: f"paused{_by(line)}{_brackets(line)}",
    "resumed": lambda line, _: f"resumed{_by(line)}{_brackets(line)}",
    "triggered": _triggered,
    "backfilled": _backfilled,
    "skipped": lambda line, _: f"{_occurrences(line)} left out{_why(line)}",
    "missed": lambda line, _: f"{_occurrences(line)} missed, for which one late event stands{_why(line)}",
    "queued": lambda line, _: f"an occurrence waits for the event before it to be done{_brackets(line)}",
    "timed_out": lambda line, _: (
        f"the event before was not done in time and is waited for no more{_brackets(line)}"
    ),
    "failed": _failed,
    "held": lambda line, _: f"could not be fired, and is tried again{_colon(line)}",
    "ended": _ended,
    "destroyed": lambda line, _: f"its owner was destroyed, with all that it had{_brackets(line)}",
    "dropped": lambda line, _: f"dropped{_colon(line)}",
    "held_back": lambda line, _: f"held back{_colon(line)}",
    "overflowed": lambda line, _: f"an event was dropped unhandled{_colon(line)}",
    "orphan": lambda line, _: f"removed{_colon(line)}",
}
