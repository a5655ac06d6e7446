"""The times of one day at which something is due, as bits.

Times are kept in layers: some of the day's 1,440 minutes, and the seconds (60 bits) of each of them at which it is due.
No minute is in two layers, so that an expression is one layer, whether it has seconds or not, and a union or an
exclusion is a few operations on integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from timerq.timing.cron import CronFields

_ALL_SECONDS = (1 << 60) - 1


class Times:
    """The times of a day, in whole seconds after midnight.

    ``total`` is their number, ``first`` and ``last`` the earliest and the latest (-1 where there is none).
    """

    __slots__ = ("_layers", "first", "last", "total")

    def __init__(self, layers: Iterable[tuple[int, int]]) -> None:
        self._layers = tuple(layers)
        self.total = sum(minutes.bit_count() * seconds.bit_count() for minutes, seconds in self._layers)
        self.first = self.next(0)
        self.last = self.prev(86_399)

    @classmethod
    def of(cls, due: Iterable[CronFields], excluded: Iterable[CronFields] = ()) -> Times:
        """The times of ``due`` expressions without those of ``excluded`` ones, whichever day it is.

        An excluded expression of five fields leaves out its whole minutes, one of six its seconds.
        """
        layers: dict[int, int] = {}
        for fields in due:
            layers = _joined(layers, minutes_of(fields), fields.seconds)
        for fields in excluded:
            seconds = fields.seconds if fields.has_seconds else _ALL_SECONDS
            layers = _without(layers, minutes_of(fields), seconds)
        return cls((minutes, seconds) for seconds, minutes in layers.items())

    def next(self, second: int) -> int:
        """The earliest time at or after ``second``, or -1."""
        minute, rest = divmod(second, 60)
        best = -1
        for minutes, seconds in self._layers:
            if minutes >> minute & 1 and (left := seconds >> rest):
                return second + lowest(left)  # no minute has two layers
            if later := minutes >> minute + 1:
                found = (minute + 1 + lowest(later)) * 60 + lowest(seconds)
                if best < 0 or found < best:
                    best = found
        return best

    def prev(self, second: int) -> int:
        """The latest time at or before ``second``, or -1."""
        minute, rest = divmod(second, 60)
        best = -1
        for minutes, seconds in self._layers:
            if minutes >> minute & 1 and (left := seconds & (2 << rest) - 1):
                return minute * 60 + left.bit_length() - 1
            if earlier := minutes & (1 << minute) - 1:
                best = max(best, (earlier.bit_length() - 1) * 60 + seconds.bit_length() - 1)
        return best

    def before(self, second: int) -> int:
        """How many times are earlier than ``second``."""
        minute, rest = divmod(second, 60)
        found = 0
        for minutes, seconds in self._layers:
            found += (minutes & (1 << minute) - 1).bit_count() * seconds.bit_count()
            if minutes >> minute & 1:
                found += (seconds & (1 << rest) - 1).bit_count()
        return found


def minutes_of(fields: CronFields) -> int:
    """The minutes of the day that the minute and the hour field name, as 1,440 bits."""
    return fields.minutes * _spread(fields.hours)


def lowest(bits: int) -> int:
    """The number of the lowest bit that is set (there must be one)."""
    return (bits & -bits).bit_length() - 1


@lru_cache(maxsize=4096)
def _spread(hours: int) -> int:
    """Bit 60·h for each hour h: the minutes of an hour times this are the minutes of the day."""
    return sum(1 << 60 * hour for hour in range(24) if hours >> hour & 1)


def _joined(layers: dict[int, int], minutes: int, seconds: int) -> dict[int, int]:
    """Layers (seconds → minutes) together with one more."""
    joined: dict[int, int] = {}
    for old, where in layers.items():
        _add(joined, old, where & ~minutes)
        _add(joined, old | seconds, where & minutes)
        minutes &= ~where
    _add(joined, seconds, minutes)
    return joined


def _without(layers: dict[int, int], minutes: int, seconds: int) -> dict[int, int]:
    """Layers (seconds → minutes) without these ``seconds`` of these ``minutes``."""
    left: dict[int, int] = {}
    for old, where in layers.items():
        _add(left, old, where & ~minutes)
        _add(left, old & ~seconds, where & minutes)
    return left


def _add(layers: dict[int, int], seconds: int, minutes: int) -> None:
    if seconds and minutes:
        layers[seconds] = layers.get(seconds, 0) | minutes
