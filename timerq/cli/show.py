"""How things look: readable lines and tables for people, JSON for programs.

Names and payloads are other people's text: what a terminal would obey (control characters, marks that turn the
direction of writing) is shown escaped.
"""

from __future__ import annotations

import base64
import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from timerq.client import Handle
from timerq.model import Change, Fire, Schedule, State, Timing, to_datetime
from timerq.tail import Published
from timerq.timing.texts import exact as exact
from timerq.timing.texts import length as length


def say(text: str) -> None:
    """A line of output."""
    click.echo(text)


def note(text: str) -> None:
    """A line beside the output, on stderr."""
    click.echo(text, err=True)


def clean(text: str) -> str:
    """The text with everything unprintable escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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


def jsonable(value: Any) -> Any:
    """A payload as JSON: bytes as ``{"base64": …}``, instants as RFC 3339, NaN and infinities as ``{"float": …}``.

    A map with other keys than texts, which JSON does not have, is ``{"pairs": [[key, value], …]}``.
    """
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            plain = {}
            for key, inner in value.items():
                plain[key] = jsonable(inner)
            return plain
        pairs = []
        for key, inner in value.items():
            pairs.append([jsonable(key), jsonable(inner)])
        return {"pairs": pairs}
    if isinstance(value, (list, tuple)):
        items = []
        for inner in value:
            items.append(jsonable(inner))
        return items
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def rfc3339(instant: datetime) -> str:
    """UTC, to the millisecond where that says all."""
    instant = instant.astimezone(UTC)
    parts = "microseconds" if instant.microsecond % 1000 else "milliseconds"
    return instant.isoformat(timespec=parts).replace("+00:00", "Z")


def instant_words(name: str, at_ms: int | None) -> dict[str, Any]:
    """An instant as JSON has it here: a number of ms and a text."""
    text = None if at_ms is None else rfc3339(to_datetime(at_ms))
    return {f"{name}_ms": at_ms, name: text}


def timing_words(timing: Timing) -> dict[str, Any]:
    """A timing as JSON: the parts that were given."""
    return _given(asdict(timing))


def _given(parts: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _given(value) if isinstance(value, dict) else value
        for name, value in parts.items()
        if value is not None
    }


def schedule_words(schedule: Schedule) -> dict[str, Any]:
    """A schedule as JSON."""
    event = schedule.event
    return {
        "key": schedule.key,
        "owner": schedule.owner,
        "tenant": schedule.tenant,
        "state": schedule.state,
        **instant_words("at", schedule.at_ms),
        "timing": timing_words(schedule.timing),
        "event": {
            "type": event.type,
            "payload": event.payload,
            "stream": event.stream,
            "correlation": dict(event.correlation or {}),
            "codec": event.codec,
        },
        "version": schedule.version,
        "n": schedule.n,
        "fired_total": schedule.fired_total,
        "missed_total": schedule.missed_total,
        "skipped_total": schedule.skipped_total,
        "held": schedule.held,
        "fires": [fire_words(fire) for fire in schedule.fires],
        "by": schedule.by,
        "paused_by": schedule.paused_by,
        "paused_note": schedule.paused_note,
        "label": schedule.label,
        "running": schedule.running,
        "failures": schedule.failures,
    }


def fire_words(fire: Fire) -> dict[str, Any]:
    """A past occurrence as JSON."""
    return {
        **instant_words("at", fire.at_ms),
        **instant_words("fired", fire.fired_ms),
        "lag_ms": fire.lag_ms,
        "missed": fire.missed,
    }


def handle_words(handle: Handle) -> dict[str, Any]:
    """What an upsert did, as JSON."""
    return {
        "outcome": handle.outcome,
        "key": handle.key,
        "owner": handle.owner,
        "version": handle.version,
        **instant_words("at", handle.at_ms),
        "state": handle.state,
        "replaced_version": handle.replaced_version,
        **instant_words("replaced_at", handle.replaced_at_ms),
        "durable": handle.durable,
    }


def change_words(change: Change) -> dict[str, Any]:
    """What a change did, as JSON."""
    return {
        "outcome": change.outcome,
        "key": change.key,
        "owner": change.owner,
        "version": change.version,
        **instant_words("at", change.at_ms),
        "event_id": change.event_id,
        "durable": change.durable,
    }


def event_words(event: Published) -> dict[str, Any]:
    """A published event as JSON."""
    return {
        "id": event.id,
        "type": event.type,
        "key": event.key,
        "tenant": event.tenant,
        "owner": event.owner,
        **instant_words("at", event.at_ms),
        "fired_ms": event.fired_ms,
        "n": event.n,
        "version": event.version,
        "missed": event.missed,
        "payload": event.payload,
        "content_type": event.content_type,
        "correlation": dict(event.correlation),
        "partition": event.partition,
        "entry": event.entry,
    }


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
    return instant.isoformat(sep=" ", timespec="milliseconds" if at_ms % 1000 else "seconds")


def local_short(at_ms: int) -> str:
    """The same for a column of a terminal, whose reader knows the zone; in full elsewhere."""
    return local(at_ms)[:19] if sys.stdout.isatty() else local(at_ms)


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
        more = "" if len(rule.cron) == 1 else f" and {len(rule.cron) - 1} more"
        return clean(f"cron {rule.cron[0]}{more}, {rule.timezone}")
    if timing.every_ms is None:
        return timing.kind
    after = timing.policy is not None and timing.policy.fixed_delay
    return f"every {exact(timing.every_ms)}{' after the last' if after else ''}"


def state_text(schedule: Schedule) -> str:
    """The state, and why it is held where it is."""
    if schedule.state is State.HELD and schedule.held:
        return f"held: {clean(schedule.held)}"
    return schedule.state


class Rows:
    """A table that may come in pieces: drawn by rich on a terminal, aligned with blanks elsewhere."""

    def __init__(self, *columns: str, right: Sequence[str] = (), whole: Sequence[str] = ()) -> None:
        """``right`` ones are set to the right, ``whole`` ones are not broken on a narrow terminal."""
        self._columns = columns
        self._right = right
        self._whole = whole
        self._widths: list[int] = []
        self._on_terminal = sys.stdout.isatty()

    def add(self, rows: Iterable[Sequence[str]]) -> None:
        """Prints some rows; on a terminal each piece has its header, elsewhere the first one alone."""
        piece = [list(row) for row in rows]
        if not piece:
            return
        if self._on_terminal:
            self._draw(piece)
            return
        if not self._widths:
            piece.insert(0, [column.upper() for column in self._columns])
            self._widths = [0] * len(self._columns)
        self._widths = [
            max(width, *map(len, cells))
            for width, cells in zip(self._widths, zip(*piece, strict=True), strict=True)
        ]
        for row in piece:
            cells = [
                cell.rjust(width) if column in self._right else cell.ljust(width)
                for cell, width, column in zip(row, self._widths, self._columns, strict=True)
            ]
            say("  ".join(cells).rstrip())

    def _draw(self, piece: Sequence[Sequence[str]]) -> None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in self._columns:
            table.add_column(
                column,
                justify="right" if column in self._right else "left",
                overflow="fold",
                no_wrap=column in self._whole,
            )
        for row in piece:
            table.add_row(*map(Text, row))
        Console(highlight=False).print(table)
