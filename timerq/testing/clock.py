"""The clock of tests: it moves only when told."""

from __future__ import annotations

from datetime import datetime

from timerq.errors import InvalidSchedule
from timerq.model import to_datetime
from timerq.timing import Duration, Instant, resolve_duration, resolve_instant
from timerq.timing.instants import MAX_INSTANT_MS


class ManualClock:
    """A `Clock` that stands still until `advance` or `set` moves it; starts at 2026-01-01T00:00:00Z by default.

    For namespaces made with ``clock="manual"``; every other namespace refuses its time.
    """

    def __init__(self, start: Instant = "2026-01-01T00:00:00Z") -> None:
        self._now_ms = resolve_instant(start, field="start")

    def __call__(self) -> int:
        """Its time in epoch milliseconds."""
        return self._now_ms

    @property
    def now_ms(self) -> int:
        """Its time in epoch milliseconds."""
        return self._now_ms

    @property
    def now(self) -> datetime:
        """Its time as an aware UTC datetime."""
        return to_datetime(self._now_ms)

    def advance(self, duration: Duration) -> int:
        """Moves it on by a duration (ms as an int, timedelta, "30m", …); returns the new time in epoch ms.

        Raises `InvalidSchedule` for one that ends after the year 9999.
        """
        self._now_ms = self.after(duration)
        return self._now_ms

    def after(self, duration: Duration) -> int:
        """The time that `advance` would move it to (epoch ms); raises as it does."""
        after_ms = self._now_ms + resolve_duration(duration, field="duration")
        if after_ms > MAX_INSTANT_MS:
            raise InvalidSchedule("duration", duration, "want one that ends before the year 10000")
        return after_ms

    def set(self, instant: Instant) -> int:
        """Moves it to an instant, also backwards; returns the new time in epoch ms."""
        self._now_ms = resolve_instant(instant, field="instant")
        return self._now_ms
