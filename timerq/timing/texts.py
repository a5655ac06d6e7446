"""Durations as people read them."""

from __future__ import annotations

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"))


def length(ms: int) -> str:
    """A duration of ``ms`` milliseconds in its two largest units: ``1h 5m``."""
    if ms < 1000:
        return f"{ms}ms"
    for (unit, name), smaller in zip(_UNITS, (*_UNITS[1:], None), strict=True):
        if ms >= unit:
            rest = 0 if smaller is None else ms % unit // smaller[0]
            return f"{ms // unit}{name}" + (f" {rest}{smaller[1]}" if smaller and rest else "")
    raise AssertionError(ms)


def exact(ms: int) -> str:
    """A duration of ``ms`` milliseconds in full, as `resolve_duration` reads it: ``1h5m``."""
    parts = []
    for unit, name in (*_UNITS, (1, "ms")):
        count, ms = divmod(ms, unit)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0ms"
