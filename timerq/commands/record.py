"""The record of a schedule: what its hash holds, and how it reads.

A hash stays compact (a listpack) only while no value is longer than 64 bytes, and there it costs half the memory. So
what belongs together is packed into few fields, and a payload is cut:

======  =============================================================================================
field   holds
======  =============================================================================================
``s``   state (a armed, c claimed, h held, p paused), version, at, following (- unknown, 0 none), n
``d``   kind (o once, e<interval ms>, c calendar), stream, content (m msgpack, j json), type
``p``   the payload; up to 256 bytes it goes on in ``p1`` ``p2`` ``p3``, 64 bytes each
``c``   the correlation, as JSON
``w``   until, limit, start, initial delay of a recurring one (- not given)
``x``   a calendar's definition, see `timerq.timing.definition`
``o``   a recurring one's policy where it is not the usual one: overlap (a allow, s skip, q queue), running time-out,
        fixed delay (1 yes), pause after, grace (- none), group (- none)
``y``   the declared set it belongs to
``b``   who set it
``t``   a recurring one's fired, missed and skipped occurrences, over all versions
``l0``  … ``l9``, its last ten: at, fired, missed
``r0``  … ``r9``, what became of these: at, outcome (ok, retry, failed), attempt, summary
``u``   the event that is not handled yet, until when it may run, and w where an occurrence waits for it
``q``   how many handlings failed in a row
``g``   the second of the last trigger, and its event
``f``   when a debounced one was first armed
``m``   how many occurrences the armed one of a calendar stands for besides itself
``e``   why a held one is held
``z``   who paused it, why and when, NUL between
======  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from timerq import codec
from timerq.errors import ContractBroken
from timerq.keys import split_identity
from timerq.lua import Word
from timerq.model import Event, Fire, Policy, Schedule, State, Timing
from timerq.timing import MAX_INSTANT_MS, MAX_LIMIT, definition

STATES = {"a": State.ARMED, "c": State.CLAIMED, "h": State.HELD, "p": State.PAUSED}
_CONTENT = {"application/msgpack": "m", "application/json": "j"}
_CONTENT_TYPES = {"m": "application/msgpack", "j": "application/json"}
_CODECS = {"m": "msgpack", "j": "json"}
_PIECE = 64
_CUT_UP_TO = 256


def payload_fields(event: Event, limit_bytes: int) -> tuple[str, bytes]:
    """The content letter and the bytes of an event's payload; raises `InvalidSchedule` naming ``payload``."""
    content_type, data = codec.encode(event.payload, event.codec, limit_bytes=limit_bytes)
    return _CONTENT[content_type], data


def definition_fields(event: Event, kind: str, limit_bytes: int) -> list[Word]:
    """Field, value … of an event and its timing's kind (``o``, ``e5000``); ``d`` comes first.

    Raises `InvalidSchedule` for the payload or the correlation.
    """
    content_type, data = codec.encode(event.payload, event.codec, limit_bytes=limit_bytes)
    definition = f"{kind} {event.stream} {_CONTENT[content_type]} {event.type}".encode()
    size = len(data)
    fields: list[Word]
    if size <= _PIECE or size > _CUT_UP_TO:
        fields = ["d", definition, "p", data]
    else:
        fields = ["d", definition, "p", data[:_PIECE], "p1", data[_PIECE : 2 * _PIECE]]
        if size > 2 * _PIECE:
            fields += ("p2", data[2 * _PIECE : 3 * _PIECE])
            if size > 3 * _PIECE:
                fields += ("p3", data[3 * _PIECE :])
    if event.correlation is not None:
        correlation = codec.encode_correlation(event.correlation)
        if event.correlation:
            fields += ("c", correlation)
    return fields


def window_fields(timing: Timing) -> list[Word]:
    """Field and value of a recurring one's window; none where it has none."""
    window = (timing.until_ms, timing.limit, timing.start_ms, timing.initial_delay_ms)
    if timing.kind == "once" or window == (None, None, None, None):
        return []
    return ["w", " ".join("-" if part is None else str(part) for part in window)]


def recurring_fields(timing: Timing) -> list[Word]:
    """Field, value … of what a recurring one has besides: its window, its calendar's definition, its policy."""
    fields = window_fields(timing)
    if text := definition.write(timing):
        fields += ("x", text.encode())
    if timing.policy is not None and (policy := _policy_text(timing.policy)) is not None:
        fields += ("o", policy)
    return fields


_OVERLAPS = {"allow": "a", "skip": "s", "queue": "q"}
_OVERLAP_NAMES: dict[str, Any] = {letter: name for name, letter in _OVERLAPS.items()}


def _policy_text(policy: Policy) -> str | None:
    """The part of a policy that the scripts follow; None where it is the usual one."""
    grace = policy.grace_ms if policy.misfire == "skip" else None
    words = (
        _OVERLAPS[policy.overlap],
        policy.running_timeout_ms,
        int(policy.fixed_delay),
        policy.pause_after or 0,
        "-" if grace is None else grace,
        policy.ack_group or "-",
    )
    text = " ".join(map(str, words))
    return None if text == _USUAL_TEXT else text


_USUAL_TEXT = "a 3600000 0 0 - -"


def _policy(text: bytes | None, policy: Policy) -> Policy | None:
    """``policy``, as it is in a definition, with what a record's field o adds; None for the usual one."""
    if text is not None:
        overlap, timeout, delay, pause_after, _, group = text.decode().split(" ")
        policy = replace(
            policy,
            overlap=_OVERLAP_NAMES[overlap],
            running_timeout_ms=int(timeout),
            fixed_delay=delay == "1",
            pause_after=int(pause_after) or None,
            ack_group=None if group == "-" else group,
        )
    return None if policy == Policy() else policy


def size_of(fields: Sequence[Word]) -> int:
    """The bytes of the values that may be large: all but their names."""
    size = 0
    for value in fields[1::2]:
        size += len(value)  # type: ignore[arg-type]  # no value of a definition is a number
    return size


def decode(id: bytes, flat: Sequence[bytes]) -> Schedule:
    """The schedule in a record's fields and values; raises `ContractBroken` for one that cannot be read."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    try:
        tenant, key, owner = split_identity(id)
        state, version, at, _, n = fields[b"s"].decode().split(" ")
        kind, stream, content, event_type = fields[b"d"].decode().split(" ", 3)
        data = b"".join(fields.get(piece, b"") for piece in (b"p", b"p1", b"p2", b"p3"))
        correlation = codec.decode_correlation(fields[b"c"]) if b"c" in fields else None
        totals = [*map(int, fields.get(b"t", b"0 0 0").split()), 0]
        paused_by, note, paused_ms = (*fields.get(b"z", b"").split(b"\x00"), b"", b"")[:3]
        running, running_until = (*fields.get(b"u", b"").split(b" "), b"", b"")[:2]
        fires = [
            _fire(fields.get(b"r" + name[1:], b""), *value.split())
            for name, value in fields.items()
            if name[:1] == b"l"
        ]
        return Schedule(
            key=key,
            event=Event(
                event_type,
                codec.decode(_CONTENT_TYPES[content], data),
                stream=stream,
                correlation=correlation,
                codec=_CODECS[content],  # type: ignore[arg-type]
            ),
            timing=_timing(kind, at, fields),
            at_ms=_number(at),
            version=_number(version, 10**18),
            state=STATES[state],
            owner=owner or None,
            tenant=tenant,
            n=int(n),
            fired_total=totals[0],
            missed_total=totals[1],
            skipped_total=totals[2],
            held=_text(fields.get(b"e")),
            fires=tuple(sorted(fires, key=lambda fire: (fire.fired_ms, fire.at_ms))),
            by=_text(fields.get(b"b")),
            paused_by=_text(paused_by) if state == "p" else None,
            paused_note=_text(note) if state == "p" else None,
            paused_ms=int(paused_ms) if paused_ms and state == "p" else None,
            label=_text(fields.get(b"y")),
            running=_text(running),
            running_until_ms=int(running_until) if running_until else None,
            failures=int(fields.get(b"q", 0)),
        )
    except ContractBroken:
        raise
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise ContractBroken(f"unreadable record of {id!r}: {error!r}") from error


def _number(text: bytes | str, most: int = MAX_INSTANT_MS) -> int:
    """A number that timerq has written, by default an instant; one that is spoilt must break nothing behind this."""
    if not 0 <= (number := int(text)) <= most:
        raise ValueError(f"{number} is out of range")
    return number


def _fire(result: bytes, at: bytes, fired: bytes, missed: bytes) -> Fire:
    of, outcome, attempt, summary = (*result.split(b" ", 3), b"", b"", b"", b"")[:4]
    if of != at:  # of the occurrence that was noted in this place before
        return Fire(_number(at), _number(fired), int(missed))
    return Fire(
        _number(at),
        _number(fired),
        int(missed),
        outcome.decode(),
        int(attempt),
        summary.decode(errors="replace"),
    )


def _text(value: bytes | None) -> str | None:
    return value.decode(errors="replace") if value else None


_WINDOW = (MAX_INSTANT_MS, MAX_LIMIT, MAX_INSTANT_MS, MAX_INSTANT_MS)
"""The largest until, limit, start and initial delay."""


def _timing(kind: str, at: str, fields: Mapping[bytes, bytes]) -> Timing:
    if kind == "o":
        return Timing("once", at_ms=int(at))
    until, limit, start, initial = (
        (None if part == b"-" else _number(part, most))
        for part, most in zip(fields.get(b"w", b"- - - -").split(b" "), _WINDOW, strict=True)
    )
    every_ms, rule, policy = definition.read(
        fields.get(b"x", b"{}").decode(errors="replace"), every_ms=int(kind[1:]) if kind != "c" else None
    )
    return Timing(
        "every" if every_ms else "cron",
        every_ms=every_ms,
        start_ms=start,
        initial_delay_ms=initial,
        until_ms=until,
        limit=limit,
        rule=rule,
        policy=_policy(fields.get(b"o"), policy),
    )


def take(count: str, rest: Iterator[bytes]) -> list[bytes]:
    """The next ``count`` elements of a reply."""
    return [next(rest) for _ in range(int(count))]
