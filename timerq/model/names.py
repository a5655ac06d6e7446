"""Names as callers may give them, and instants as people read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from timerq.errors import InvalidSchedule

MAX_NAME_BYTES = 512
"""The longest key, owner, event type or idempotency key, in bytes of UTF-8."""

ERRORS = "errors"
"""The stream of what operators should know."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_WANT_TEXT = f"want a text of 1 to {MAX_NAME_BYTES} bytes of UTF-8 without NUL"


def check_text(name: str, value: object) -> bytes:
    """The UTF-8 of a key, owner, event type or idempotency key; raises `InvalidSchedule` naming ``name``."""
    if isinstance(value, str) and value:
        try:
            encoded = value.encode()
        except UnicodeEncodeError:
            raise InvalidSchedule(name, value, "want text without lone surrogates") from None
        if len(encoded) <= MAX_NAME_BYTES and b"\x00" not in encoded:
            return encoded
    raise InvalidSchedule(name, value, _WANT_TEXT)


def check_plain_name(name: str, value: object) -> str:
    """A namespace, tenant or stream name; raises `InvalidSchedule` naming ``name``."""
    if isinstance(value, str) and _PLAIN_NAME.fullmatch(value):
        return value
    raise InvalidSchedule(name, value, "want 1 to 64 of the characters A-Z a-z 0-9 . _ -")


def to_datetime(instant_ms: int) -> datetime:
    """The aware UTC datetime of an instant in epoch milliseconds."""
    return _EPOCH + timedelta(milliseconds=instant_ms)


def instant_text(at_ms: int) -> str:
    """An instant (epoch ms) in UTC: ``2026-01-01 09:00:00Z``, with milliseconds where it has any."""
    parts = "milliseconds" if at_ms % 1000 else "seconds"
    return to_datetime(at_ms).isoformat(" ", parts).replace("+00:00", "Z")


def tick_name(name: str, at_ms: int) -> str:
    """The stable name of one occurrence: ``weekly-report-2026-10-05T090000Z`` for ``at_ms`` (epoch ms), in UTC.

    Milliseconds stand in it only where there are any: ``…T090000.250Z``.
    """
    instant = to_datetime(at_ms)
    fraction = f".{at_ms % 1000:03d}" if at_ms % 1000 else ""
    return f"{name}-{instant:%Y-%m-%dT%H%M%S}{fraction}Z"
