"""When the cron expressions of a schedule are due: wall times of a zone, mapped to instants.

The rules at a clock change are those of Debian's cron(8). A job at fixed times is due once for each of them: what a gap
skips runs at the first instant after it (``dst_gap="shift"``) or not at all ("skip"), what comes twice runs on the
first pass, the second or both (``dst_overlap``). A job that follows the clock (its minute or hour starts with ``*``)
runs whenever the clock shows its time. Changes of three hours or more are corrections: nothing is made up for.

An exclusion leaves out wall times, on every pass, and a time that a gap would have moved before it is moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from timerq.errors import InvalidSchedule
from timerq.model import DstGap, DstOverlap, Rule
from timerq.timing.cron import CronFields, parse_cron
from timerq.timing.exclusions import parse_exclusions
from timerq.timing.instants import MAX_INSTANT_MS
from timerq.timing.walls import DAY_S, NEVER, DayRange, Walls
from timerq.timing.zones import CYCLE_S, STEADY_S, Zone, zone

MAX_EXPRESSIONS = 100
"""How many expressions a calendar may have."""

MAX_EXCLUSIONS = 1000
"""How many dates, ranges and expressions a calendar may leave out; of expressions `MAX_EXPRESSIONS`."""

_TOLD_WALLS = 4
_LAST = MAX_INSTANT_MS // 1000
_SLACK = 26 * 3600  # no wall is further from UTC, and no clock has been put back further


class Calendar:
    """The instants a `Rule` with cron expressions names, from 1970 to 9999, in epoch milliseconds.

    They are whole seconds, each once, and in order. Made by `calendar_of`; immutable.
    """

    __slots__ = ("_all", "_clock", "_first", "_fixed", "_second", "_shift", "_steady", "zone")

    def __init__(
        self,
        expressions: tuple[CronFields, ...],
        zone: Zone,
        dst_gap: DstGap,
        dst_overlap: DstOverlap,
        excluded: tuple[CronFields, ...],
        off: tuple[DayRange, ...],
    ) -> None:
        fixed = tuple(fields for fields in expressions if not fields.follows_clock)
        clock = tuple(fields for fields in expressions if fields.follows_clock)
        self.zone = zone
        self._all = Walls(expressions, excluded, off)
        self._fixed = None if not fixed else Walls(fixed, excluded, off) if clock else self._all
        self._clock = None if not clock else Walls(clock, excluded, off) if fixed else self._all
        self._steady = max(STEADY_S, (off[-1][1] + 2) * DAY_S if off else 0)
        self._shift = bool(fixed) and dst_gap == "shift"
        self._first = bool(fixed) and dst_overlap == "first"
        self._second = bool(fixed) and dst_overlap == "second"

    def next_ms(self, after_ms: int) -> int | None:
        """The first instant later than ``after_ms``; None: there is none up to the end of 9999."""
        at = max(after_ms // 1000 + 1, 0)
        stop = min(max(at, self._steady) + CYCLE_S, _LAST)  # a whole cycle without one: there is none
        known, wall = NEVER, -1  # no wall time from `known` on and before `wall` is named
        while at <= stop:
            start, end, offset, head, tail, gap = self.zone.piece(at)
            if gap is not None and at == start and self._moved(gap, start + offset):
                return at * 1000
            here, last = at + offset, end + offset
            if not known <= here <= wall:
                known, wall = here, self._all.next(here)
            if wall >= last:
                # Go on where the wall time may be, but step over no repeated hour that may show an earlier one.
                at = max(end, wall - _SLACK) if last - _SLACK >= known else end
            elif self._first and wall < head:
                wall = self._clock_next(here)
                if wall < head:
                    return (wall - offset) * 1000
                known, at = NEVER, head - offset
            elif self._second and wall >= tail:
                wall = self._clock_next(max(here, tail))
                if wall < last:
                    return (wall - offset) * 1000
                known, at = NEVER, end
            else:
                return (wall - offset) * 1000 if wall - offset <= _LAST else None
        return None

    def prev_ms(self, at_or_before_ms: int) -> int | None:
        """The last instant not later than ``at_or_before_ms``; None: there is none from 1970 on."""
        at = min(at_or_before_ms // 1000, _LAST)
        known, wall = -1, NEVER  # no wall time after `wall` and up to `known` is named
        while at >= 0:
            start, _, offset, head, tail, gap = self.zone.piece(at)
            here, first = at + offset, start + offset
            if not wall <= here <= known:
                known, wall = here, self._all.prev(here)
            if wall >= first:
                if self._second and wall >= tail:
                    wall = self._clock_prev(here)
                    if wall < tail and tail > first:
                        known, at = -1, tail - 1 - offset
                        continue
                elif self._first and wall < head:
                    wall = self._clock_prev(here)
                if wall >= first:
                    return (wall - offset) * 1000
                known = -1
            if gap is not None and self._moved(gap, first):
                return start * 1000
            at = min(start - 1, wall + _SLACK) if first + _SLACK <= known else start - 1
        return None

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many instants are later than ``after_ms`` and not later than ``until_ms``; they are not gone through."""
        at = max(after_ms // 1000 + 1, 0)
        stop = min(until_ms // 1000, _LAST) + 1
        total = 0
        first, known = 0, 0  # wall times from `first` on and before `known` are still to be counted
        while at < stop:
            start, end, offset, head, tail, gap = self.zone.piece(at)
            end = min(end, stop)
            here, last = at + offset, end + offset
            if gap is not None and at == start and self._moved(gap, here):
                total += 1
                here += 1  # what is named there anyway is the same instant
            if self._first and here < head:
                total -= self._fixed_alone(here, min(head, last))
            elif self._second and tail < last:
                total -= self._fixed_alone(max(here, tail), last)
            if here != known:
                total += self._all.count(first, known)
                first = here
            at, known = end, last
        return total + self._all.count(first, known)

    def explain(self, at_ms: int) -> Literal["shifted", "repeated"] | None:
        """What a clock change has to do with an instant of this calendar.

        "shifted": no expression names it, it stands for times that a gap skipped. "repeated": the clock shows its time
        twice. None: nothing.
        """
        at = at_ms // 1000
        start, _, offset, head, tail, gap = self.zone.piece(at)
        wall = at + offset
        if gap is not None and at == start and self._moved(gap, wall) and self._all.next(wall) != wall:
            return "shifted"
        return "repeated" if wall < head or wall >= tail else None

    def gaps(self, after_ms: int, until_ms: int) -> Iterator[tuple[int, list[int]]]:
        """The clock changes later than ``after_ms`` and not later than ``until_ms`` that skip fixed times.

        Each is its instant (epoch ms) and the first few of the wall times skipped, in whole seconds since 1970 on that
        clock, whether they are made up for or not.
        """
        at, stop = max(after_ms // 1000 + 1, 0), min(until_ms // 1000, _LAST)
        while self._fixed is not None and at <= stop:
            start, end, offset, _, _, gap = self.zone.piece(at)
            if gap is not None and at == start:
                walls: list[int] = []
                wall = self._fixed.next(gap)
                while wall < start + offset and len(walls) < _TOLD_WALLS:
                    walls.append(wall)
                    wall = self._fixed.next(wall + 1)
                if walls:
                    yield start * 1000, walls
            at = end

    def _moved(self, gap: int, end: int) -> bool:
        """Whether a fixed time among the skipped ones, from ``gap`` on and before ``end``, is made up for."""
        return self._shift and self._fixed is not None and self._fixed.next(gap) < end

    def _clock_next(self, wall: int) -> int:
        return NEVER if self._clock is None else self._clock.next(wall)

    def _clock_prev(self, wall: int) -> int:
        return -NEVER if self._clock is None else self._clock.prev(wall)

    def _fixed_alone(self, start: int, end: int) -> int:
        """How many wall times from ``start`` on and before ``end`` are named by fixed times alone."""
        return self._all.count(start, end) - (0 if self._clock is None else self._clock.count(start, end))


def calendar_of(rule: Rule) -> Calendar:
    """The calendar of a rule with cron expressions; equal rules give one object while it is kept.

    Raises `InvalidSchedule` naming ``cron``, ``timezone`` or ``exclude`` for what cannot be read, and for exclusions
    that leave nothing.
    """
    for field, texts in (("cron", rule.cron), ("timezone", (rule.timezone,)), ("exclude", rule.exclude)):
        for text in texts:
            if not isinstance(text, str):
                raise InvalidSchedule(field, text, "want a text")
    compiled = _compiled if len(rule.cron) + len(rule.exclude) <= _LARGE else _compiled_large
    return compiled(rule.cron, rule.timezone, rule.dst_gap, rule.dst_overlap, rule.exclude)


_LARGE = 20
"""Calendars of more parts may take megabytes each: few of them are kept."""


def _compile(
    cron: tuple[str, ...], timezone: str, dst_gap: DstGap, dst_overlap: DstOverlap, exclude: tuple[str, ...]
) -> Calendar:
    if not 1 <= len(cron) <= MAX_EXPRESSIONS:
        raise InvalidSchedule("cron", cron, f"want 1 to {MAX_EXPRESSIONS} cron expressions")
    expressions = tuple(parse_cron(text) for text in dict.fromkeys(cron))
    place = zone(timezone)
    if not exclude:
        return Calendar(expressions, place, dst_gap, dst_overlap, (), ())
    if len(exclude) > MAX_EXCLUSIONS:
        raise InvalidSchedule("exclude", exclude, f"want at most {MAX_EXCLUSIONS} exclusions")
    excluded, off = parse_exclusions(tuple(dict.fromkeys(exclude)))
    if len(excluded) > MAX_EXPRESSIONS:
        raise InvalidSchedule(
            "exclude", exclude, f"want at most {MAX_EXPRESSIONS} cron expressions to leave out"
        )
    calendar = Calendar(expressions, place, dst_gap, dst_overlap, excluded, off)
    if calendar.next_ms(-1) is None:
        raise InvalidSchedule(
            "exclude", exclude, "want exclusions that leave something of cron=; nothing would ever fire"
        )
    return calendar


_compiled = lru_cache(maxsize=2048)(_compile)
_compiled_large = lru_cache(maxsize=16)(_compile)
