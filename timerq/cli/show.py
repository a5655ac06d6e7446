"""How things look: readable lines and tables for people, JSON for programs.

Names and payloads are other people's text: what a terminal would obey (control characters, marks that turn the
direction of writing) is shown escaped.

An instant is written one way everywhere, ``2026-03-30 09:00:00+02:00``: the time of this machine's zone with its offset
(``Z`` for none), and in tables the schedule's own. Every option that takes an instant reads it so.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from timerq.cli.table import Rows as Rows
from timerq.cli.words import change_words as change_words
from timerq.cli.words import event_words as event_words
from timerq.cli.words import fire_words as fire_words
from timerq.cli.words import handle_words as handle_words
from timerq.cli.words import instant_words as instant_words
from timerq.cli.words import jsonable as jsonable
from timerq.cli.words import letter_words as letter_words
from timerq.cli.words import rfc3339 as rfc3339
from timerq.cli.words import schedule_words as schedule_words
from timerq.cli.words import timing_words as timing_words
from timerq.model import Policy, Schedule, State, Timing, to_datetime
from timerq.timing.texts import exact as exact
from timerq.timing.texts import length as length


def say(text: str) -> None:
    """A line of output."""
    click.echo(text)


def note(text: str) -> None:
    """A line beside the output, on stderr."""
    click.echo(clean_lines(text), err=True)


def clean(text: str) -> str:
    """The text with everything unprintable escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def clean_lines(text: str) -> str:
    """A message with everything unprintable escaped but its line breaks: it may quote files, and their names."""
    return "\n".join(map(clean, text.split("\n")))


def say_json(thing: Mapping[str, Any]) -> None:
    """One object on one line."""
    unicode_out = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
    text = json.dumps(jsonable(thing), ensure_ascii=not unicode_out, allow_nan=False, separators=(",", ":"))
    # json leaves U+2028 and C1 controls as they are; they are legal, but no terminal should see them
    click.echo(text if text.isprintable() else "".join(map(_json_safe, text)))


def _json_safe(char: str) -> str:
    if char.isprintable():
        return char
    return json.dumps(char)[1:-1]


def payload_text(payload: Any) -> str:
    """A payload on one line."""
    return clean(json.dumps(jsonable(payload), ensure_ascii=False, separators=(", ", ": ")))


def now_ms() -> int:
    """This machine's time, for saying how far away an instant is and for nothing else (epoch ms)."""
    return time.time_ns() // 1_000_000


def relative(at_ms: int, now: int) -> str:
    """How far away an instant is."""
    if at_ms == now:
        return "now"
    return f"in {length(at_ms - now)}" if at_ms > now else f"{length(now - at_ms)} ago"


def local(at_ms: int) -> str:
    """An instant in this machine's zone."""
    instant = to_datetime(at_ms)
    try:
        instant = instant.astimezone()
    except (OverflowError, ValueError, OSError):
        pass  # the last day of 9999, east of Greenwich
    return written(instant)


def written(instant: datetime) -> str:
    """An aware instant with its offset, with milliseconds where it has any."""
    parts = "milliseconds" if instant.microsecond else "seconds"
    return instant.isoformat(" ", parts).replace("+00:00", "Z")


def when(at_ms: int) -> str:
    """An instant in this machine's zone, and how far away it is."""
    return f"{local(at_ms)} ({relative(at_ms, now_ms())})"


def name_of(key: str, owner: str | None) -> str:
    """A schedule's key, and its owner where there is one."""
    return clean(key) if owner is None else f"{clean(key)} of {clean(owner)}"


def timing_text(timing: Timing) -> str:
    """``once``, ``every 5s``, ``cron 0 9 * * MON-FRI, Europe/Paris``."""
    rule = timing.rule
    if rule is not None and rule.cron:
        what = rule.cron[0] if len(rule.cron) == 1 else f"{len(rule.cron)} expressions"
        return clean(f"cron {what}, {rule.timezone}")
    if timing.every_ms is None:
        return timing.kind
    after = timing.policy is not None and timing.policy.fixed_delay
    return f"every {exact(timing.every_ms)}{' after the last' if after else ''}"


_MOST_OF_WHY = 40


def state_text(schedule: Schedule, *, short: bool = False) -> str:
    """The state: why it is held where it is, that it waits where it does; ``short`` for a table."""
    if schedule.state is State.HELD and schedule.held:
        why = clean(schedule.held)
        return f"held: {why[: _MOST_OF_WHY - 1]}…" if short and len(why) > _MOST_OF_WHY else f"held: {why}"
    if schedule.state is State.ARMED and schedule.held and schedule.at_ms <= now_ms():
        return "held back" if short else f"held back: {clean(schedule.held)}"
    if waits(schedule):
        return "waits" if short else "armed; its occurrence waits for the event that is not done"
    return schedule.state


def waits(schedule: Schedule) -> bool:
    """Whether its occurrence is due and waits for the event before it, as far as this machine's clock knows."""
    policy = schedule.timing.policy or Policy()
    return (
        schedule.state is State.ARMED
        and policy.overlap == "queue"
        and schedule.running is not None
        and schedule.at_ms <= now_ms()
    )
