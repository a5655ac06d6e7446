"""A stream entry as an event in the hands of a handler."""

from __future__ import annotations

from collections.abc import Mapping

from timerq import codec
from timerq.commands.consume import RawDelivery
from timerq.commands.entries import what_is_wrong
from timerq.errors import ContractBroken
from timerq.model import Delivery, make_delivery


def decode(raw: RawDelivery, *, partition: int, stream: str, group: str) -> Delivery:
    """The event in ``raw``; raises `ContractBroken`, saying what cannot be read.

    What a later version of timerq may add to an entry is no fault; what docs/events.md names must be there.
    """
    fields = raw.fields
    try:
        return make_delivery(
            fields[b"id"].decode(),
            fields[b"type"].decode(),
            fields[b"key"].decode(),
            fields[b"tenant"].decode(),
            fields[b"owner"].decode() or None,
            int(fields[b"at"]),
            int(fields[b"fired_ms"]),
            int(fields[b"n"]),
            int(fields[b"version"]),
            int(fields[b"missed"]),
            codec.decode(fields[b"content_type"].decode(), fields[b"payload"]),
            codec.decode_correlation(fields[b"correlation"]),
            stream,
            group,
            raw.attempt,
            raw.delivery,
            partition,
            raw.entry.decode(),
            fields.get(b"backfill") == b"1",
        )
    except (KeyError, ValueError) as error:
        raise ContractBroken(what_is_wrong(fields, error)) from None


def lane_of(fields: Mapping[bytes, bytes]) -> tuple[bytes, bytes]:
    """The tenant and the lane of an entry, also of one that cannot be read as an event."""
    return fields.get(b"tenant", b""), fields.get(b"owner") or fields.get(b"key", b"")
