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
``x``   a calendar's definition
``t``   a recurring one's fired and missed occurrences, over all versions
``f``   when a debounced one was first armed
``m``   how many occurrences the armed one of a calendar stands for besides itself
``e``   why a held one is held
======  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from timerq import codec
from timerq.errors import ContractBroken
from timerq.keys import split_identity
from timerq.lua import Word
from timerq.model import Event, Schedule, State, Timing

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
        totals = fields.get(b"t", b"0 0").split()
        held = fields.get(b"e")
        return Schedule(
            key=key,
            event=Event(
                event_type,
                codec.decode(_CONTENT_TYPES[content], data),
                stream=stream,
                correlation=correlation,
                codec=_CODECS[content],  # type: ignore[arg-type]
            ),
            timing=_timing(kind, at, fields.get(b"w")),
            at_ms=int(at),
            version=int(version),
            state=STATES[state],
            owner=owner or None,
            tenant=tenant,
            n=int(n),
            fired_total=int(totals[0]),
            missed_total=int(totals[1]),
            held=None if held is None else held.decode(errors="replace"),
        )
    except ContractBroken:
        raise
    except (KeyError, ValueError, IndexError) as error:
        raise ContractBroken(f"unreadable record of {id!r}: {error!r}") from error


def _timing(kind: str, at: str, window: bytes | None) -> Timing:
    if kind == "o":
        return Timing("once", at_ms=int(at))
    until, limit, start, initial = (
        (None if part == b"-" else int(part)) for part in (window or b"- - - -").split(b" ")
    )
    if kind == "c":
        return Timing("cron", until_ms=until, limit=limit, start_ms=start)
    return Timing(
        "every",
        every_ms=int(kind[1:]),
        start_ms=start,
        initial_delay_ms=initial,
        until_ms=until,
        limit=limit,
    )


def take(count: str, rest: Iterator[bytes]) -> list[bytes]:
    """The next ``count`` elements of a reply."""
    return [next(rest) for _ in range(int(count))]
