"""A sentence for each thing that happened."""

from __future__ import annotations

import re
from collections.abc import Callable

from timerq.explain.story import Line
from timerq.model import Schedule, Timing, to_datetime
from timerq.timing.instants import MAX_INSTANT_MS
from timerq.timing.texts import exact, length

When = Callable[[int], str]
"""How an instant (epoch ms) is written."""

LEAVES_NO_TRACE = (
    "a one-shot that fires or is consumed leaves nothing but its event, for as long as the stream keeps that"
)


def utc(at_ms: int) -> str:
    """An instant (epoch ms) in UTC: ``2026-01-01 09:00:00Z``, with milliseconds where it has any."""
    parts = "milliseconds" if at_ms % 1000 else "seconds"
    return to_datetime(at_ms).isoformat(" ", parts).replace("+00:00", "Z")


# ------------------------------------------------------------------------------------------------ the schedule


def describe(schedule: Schedule, when: When) -> str:
    """What a schedule is."""
    timing = schedule.timing
    parts = [f"It publishes {schedule.event.type} on stream {schedule.event.stream}", timing_text(timing)]
    if timing.until_ms is not None:
        parts.append(f"until {when(timing.until_ms)}")
    if timing.limit is not None:
        parts.append(f"{times(timing.limit)} at the most")
    if schedule.label is not None:
        parts.append(f"as the set {schedule.label} declares it")
    return f"{', '.join(parts)}."


def timing_text(timing: Timing) -> str:
    """A timing in words: ``once``, ``every 5s``, ``by cron 0 9 * * MON-FRI in Europe/Paris``."""
    rule = timing.rule
    if rule is not None and rule.cron:
        text = f"by cron {' and '.join(rule.cron)} in {rule.timezone}"
    elif timing.every_ms is not None:
        text = f"every {exact(timing.every_ms)}"
        if timing.policy is not None and timing.policy.fixed_delay:
            text += " after the last one"
    else:
        return "by a calendar" if timing.kind == "cron" else timing.kind
    if rule is not None and rule.exclude:
        text += f", but not on {' or '.join(rule.exclude)}"
    if rule is not None and rule.jitter_ms:
        text += f", each put off by up to {exact(rule.jitter_ms)}"
    return text


def times(count: int, more: str = "") -> str:
    """``once`` is no good with a number."""
    return f"{count:,} {more}time{'' if count == 1 else 's'}"


# ------------------------------------------------------------------------------------------------ what happened


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


def _brackets(line: Line) -> str:
    return (f" ({line.detail})" if line.detail else "") + _again(line)


def _colon(line: Line) -> str:
    return _again(line) + (f": {line.detail.rstrip('.')}" if line.detail else "")


def _occurrences(count: int) -> str:
    return f"{count:,} occurrence{'' if count == 1 else 's'}"


def _set(line: Line, when: When) -> str:
    text = f"set{_by(line)}, as version {line.version}"
    if line.left:
        text += f"; version {line.left} had gone without an entry: {LEAVES_NO_TRACE}"
    return text


def _fired(line: Line, when: When) -> str:
    lag_ms = int(line.detail)
    text = f"fired, {length(lag_ms)} late" if lag_ms > 0 else "fired on time"
    if line.count:
        text += f"; the event stands for {line.count:,} later occurrence{'' if line.count == 1 else 's'} too"
    return text


def _replaced(line: Line, when: When) -> str:
    if line.times > 1:
        return f"replaced{_by(line)}, {times(line.times)}, at last by version {line.version}"
    old = (
        "one that could not be read" if line.detail == "0" else f"version {line.detail}, which fires no more"
    )
    return f"replaced{_by(line)}: version {line.version} took the place of {old}"


def _cancelled(line: Line, when: When) -> str:
    return f"cancelled{_by(line)}: version {line.version} fires no more{_brackets(line)}"


def _triggered(line: Line, when: When) -> str:
    event = f" as event {line.detail}" if line.detail else ""
    return f"triggered{_by(line)}: published at once{event}, outside its timing{_again(line)}"


def _backfilled(line: Line, when: When) -> str:
    first = re.fullmatch(r"from (\d{1,15})", line.detail)
    since = f", from that of {when(min(int(first[1]), MAX_INSTANT_MS))} on" if first else _brackets(line)
    return f"backfilled{_by(line)}: {_occurrences(line.count)} of the past published{since}"


def _skipped(line: Line, when: When) -> str:
    return f"{_occurrences(line.count or line.times)} left out{_colon(line)}"


def _missed(line: Line, when: When) -> str:
    return f"{_occurrences(line.count or line.times)} missed, for which one late event stands{_colon(line)}"


_WORDS: dict[str, Callable[[Line, When], str]] = {
    "set": _set,
    "fired": _fired,
    "replaced": _replaced,
    "cancelled": _cancelled,
    "paused": lambda line, _: f"paused{_by(line)}{_brackets(line)}",
    "resumed": lambda line, _: f"resumed{_by(line)}{_brackets(line)}",
    "triggered": _triggered,
    "backfilled": _backfilled,
    "skipped": _skipped,
    "missed": _missed,
    "queued": lambda line, _: f"an occurrence waits for the event before it to be done{_brackets(line)}",
    "timed_out": lambda line, _: (
        f"the event before was not done in time and is waited for no more{_brackets(line)}"
    ),
    "failed": lambda line, _: f"the handling of an event failed{_by(line)}{_colon(line)}",
    "held": lambda line, _: f"could not be fired, and is tried again{_colon(line)}",
    "ended": lambda line, _: f"ended: no occurrence was left{_brackets(line)}",
    "dropped": lambda line, _: f"dropped{_colon(line)}",
    "orphan": lambda line, _: f"removed{_colon(line)}",
}
