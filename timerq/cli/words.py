"""What `--json` prints of things: their parts, under the names that Python has for them."""

from __future__ import annotations

import base64
import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from timerq import codec
from timerq.client import Handle
from timerq.commands.letters import DeadLetter
from timerq.errors import ContractBroken
from timerq.model import Change, Fire, Schedule, Timing, to_datetime
from timerq.tail import Published


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
        **instant_words("paused", schedule.paused_ms),
        "label": schedule.label,
        "running": schedule.running,
        **instant_words("running_until", schedule.running_until_ms),
        "failures": schedule.failures,
    }


def fire_words(fire: Fire) -> dict[str, Any]:
    """A past occurrence as JSON."""
    return {
        **instant_words("at", fire.at_ms),
        **instant_words("fired", fire.fired_ms),
        "lag_ms": fire.lag_ms,
        "missed": fire.missed,
        "outcome": fire.outcome,
        "attempt": fire.attempt,
        "summary": fire.summary,
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
        "backfill": event.backfill,
        "payload": event.payload,
        "content_type": event.content_type,
        "correlation": dict(event.correlation),
        "partition": event.partition,
        "entry": event.entry,
    }


def letter_words(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as JSON; of one whose payload cannot be read, why not, and all fields as they are."""
    payload, correlation, unreadable = None, {}, None
    try:
        payload = letter.payload
        correlation = dict(codec.decode_correlation(letter.fields.get(b"correlation", b"{}")))
    except (ContractBroken, ValueError) as error:
        unreadable = str(error)
    words = {
        "id": letter.id,
        "type": letter.type,
        "key": letter.key,
        "tenant": letter.tenant,
        "owner": letter.owner,
        "stream": letter.stream,
        "group": letter.group,
        "error": letter.error,
        "traceback": letter.traceback,
        "attempts": letter.attempts,
        **instant_words("first_failed", letter.first_failed_ms or None),
        **instant_words("last_failed", letter.last_failed_ms or None),
        "history": [
            {"attempt": past.attempt, **instant_words("failed", past.failed_ms), "error": past.error}
            for past in letter.history
        ],
        "payload": payload,
        "correlation": correlation,
        "unreadable": unreadable,
        "place": letter.place,
        "source_entry": letter.source_entry,
    }
    if unreadable is not None:
        words["fields"] = {_text(name): _text(value) for name, value in letter.fields.items()}
    return words


def _text(data: bytes) -> str | bytes:
    """A field as a text, where it is one."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
