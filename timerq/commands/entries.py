"""One parser for XREAD's reply, whatever protocol brought it."""

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
