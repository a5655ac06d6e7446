"""Signals that ask a process to stop, in order: once. One that is sent again has its way."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Literal

SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""What asks a process to stop."""

SAME_S = 0.5
"""Two of a kind within so long (s) are one: who stops a process may tell it and then its whole group, as timeout(1)."""

Heard = Literal["first", "same", "again"]


class Heeded:
    """Tells a signal that is sent again from one that has come twice; ``now_s`` is a clock that only goes on (s)."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._first_s: dict[int, float] = {}

    def heard(self, number: int) -> Heard:
        """What a signal is that has come: the first of its kind, the same once more, or one sent again."""
        now_s = self._now_s()
        if number not in self._first_s:
            self._first_s[number] = now_s
            return "first"
        return "same" if now_s - self._first_s[number] < SAME_S else "again"


def heed_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Calls ``stop`` in an event loop when a signal asks; one sent again does what it would do without a handler."""
    heeded = Heeded()

    def asked(number: int) -> None:
        heard = heeded.heard(number)
        if heard == "first":
            stop()
        elif heard == "again" and loop.remove_signal_handler(number):
            signal.raise_signal(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, asked, number)


def ignore_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Ends what `heed_signals` does."""
    for number in SIGNALS:
        loop.remove_signal_handler(number)
