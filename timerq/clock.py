"""Who tells the time.

Due is judged by Redis ``TIME`` inside the scripts, so nothing in timerq reads the local clock to decide anything. A
`Clock` is the one port through which another time can come in: a namespace made with ``clock="manual"`` takes its
instants from it, every other namespace refuses them.
"""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], int | None]
"""Returns the time in epoch milliseconds, or None for "ask Redis"."""


def ask_redis() -> None:
    """The default clock: Redis tells the time."""
    return None
