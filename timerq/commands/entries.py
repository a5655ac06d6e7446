"""One parser for XREAD's reply, whatever protocol brought it, and for what an entry's fields should be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Entries = list[tuple[bytes, Mapping[bytes, bytes]]]


def read_entries(reply: Any) -> list[tuple[bytes, Entries]]:
    """XREAD's reply as (stream, [(entry, fields)]): RESP2 has a list of pairs, RESP3 a map, a time-out nothing."""
    found = []
    for stream, entries in reply.items() if isinstance(reply, Mapping) else reply or ():
        nested = len(entries) == 1 and entries[0] and isinstance(entries[0][0], (list, tuple))
        # redis-py nests a RESP3 stream's entries once more; a trimmed entry has no fields
        plain = entries[0] if nested else entries
        found.append((stream, [(entry, fields or {}) for entry, fields in plain]))
    return found


NUMBERS = ("at", "fired_ms", "n", "version", "missed")
"""The fields of an event that are whole numbers, in decimal text."""


def what_is_wrong(fields: Mapping[bytes, bytes], error: Exception) -> str:
    """What a person should know of ``error``, with which reading ``fields`` as an event has ended."""
    if isinstance(error, KeyError):
        name = error.args[0]
        return f"it has no field {(name.decode() if isinstance(name, bytes) else name)!r}"
    for name in NUMBERS:
        value = fields.get(name.encode(), b"0")
        try:
            int(value)
        except ValueError:
            return f"{name}: got {value.decode(errors='replace')!r}; want a whole number"
    return str(error)
