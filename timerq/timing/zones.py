"""IANA time zones, as pieces of time of one UTC offset.

The rules of a zone are `zoneinfo`'s, asked through its public interface alone: the offset is probed once a day, and a
change is bisected to the second. No zone has ever changed back within a day. Pieces are made when they are first
needed, for a bit more than a year at once, and a bounded number of them is kept.

Instants here are whole seconds since 1970-01-01T00:00:00Z; a wall time is an instant plus the zone's offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from timerq.errors import InvalidSchedule

CORRECTION_S = 3 * 3600
"""A change of this size or more is a correction of the clock, for which nobody makes up; see cron(8) of Debian."""

_DAY_S = 86_400
_STRETCH_BITS = 25  # pieces are made for 2^25 seconds at once, 388 days
_CYCLE_S = 146_097 * _DAY_S  # 400 years: with the calendar, the rules of a zone repeat
_CYCLE_START_S = (datetime(2400, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_NAME = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,3}")
_NO_ZONES = {"Factory", "localtime", "posixrules"}  # files that stand among the zones, and are none
_WANT = 'want the IANA name of a time zone, like "Europe/Paris" or "UTC"'


class Piece(NamedTuple):
    """A time of one offset: from the instant ``start`` on and before ``end``, wall = instant + ``offset``.

    Wall times before ``head`` were on the wall before, in the hour that was just repeated; those from ``tail`` on will
    be there again, when the clock goes back at the end. (Where nothing is repeated these are the first wall time, and
    the one after the last.) ``gap`` is the first of the wall times that were skipped right before ``start``, or None.
    Corrections of the clock repeat and skip nothing here.
    """

    start: int
    end: int
    offset: int
    head: int
    tail: int
    gap: int | None


class Zone:
    """A time zone by its IANA name; made by `zone`."""

    __slots__ = ("_info", "name")

    def __init__(self, name: str, info: tzinfo) -> None:
        self.name = name
        self._info = info

    def piece(self, at: int) -> Piece:
        """The piece that the instant ``at`` (0 or later) is in."""
        if at >= _CYCLE_START_S + _CYCLE_S:
            shift = (at - _CYCLE_START_S) // _CYCLE_S * _CYCLE_S
            start, end, offset, head, tail, gap = self.piece(at - shift)
            after_gap = None if gap is None else gap + shift
            return Piece(start + shift, end + shift, offset, head + shift, tail + shift, after_gap)
        for piece in _stretch(self, at >> _STRETCH_BITS):
            if at < piece.end:
                return piece
        raise AssertionError(at)

    def offset_at(self, at: int) -> int:
        """The UTC offset at an instant, in seconds; east is positive."""
        return self.piece(at).offset

    def probe(self, at: int) -> int:
        """The offset as `zoneinfo` tells it, in seconds; for instants up to the year 2800."""
        offset = (_EPOCH + timedelta(seconds=at)).astimezone(self._info).utcoffset() or timedelta()
        return offset // timedelta(seconds=1)


def zone(name: str, field: str = "timezone") -> Zone:
    """The zone of an IANA name, exactly as it is spelled there; one object for each.

    Raises `InvalidSchedule` naming ``field``, with a suggestion where a name is near, for everything else: offsets,
    paths, directories, and what only looks like a zone (``posixrules``, ``Factory``, ``localtime``).
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        try:
            return _zone(name)
        except (ValueError, OSError, LookupError):
            pass  # no such name, or its file is broken or has just gone
    raise InvalidSchedule(field, name, _want(name))


@lru_cache(maxsize=1024)
def _zone(name: str) -> Zone:
    if name == "UTC":
        return Zone(name, UTC)
    if name not in _names():  # ZoneInfo alone would take what is no zone, and on some file systems any case
        raise LookupError(name)
    return Zone(name, ZoneInfo(name))


# ------------------------------------------------------------------------------------------- pieces


@lru_cache(maxsize=4096)
def _stretch(zone: Zone, number: int) -> tuple[Piece, ...]:
    """The pieces of a stretch of 2^25 seconds; they end where it ends."""
    start, end = number << _STRETCH_BITS, (number + 1) << _STRETCH_BITS
    # A clock change a day before or after still matters: what it repeats may reach into the stretch.
    changes = list(_changes(zone, start - _DAY_S, end + _DAY_S))
    cuts = sorted({start, end, *(at for at, _, _ in changes if start < at < end)})
    return tuple(_piece(first, last, changes, zone) for first, last in pairwise(cuts))


def _piece(start: int, end: int, changes: list[tuple[int, int, int]], zone: Zone) -> Piece:
    offset = zone.probe(start)
    head, tail, gap = start + offset, end + offset, None
    for at, before, after in changes:
        if abs(after - before) >= CORRECTION_S:
            continue
        if after < before and at <= start:
            head = max(head, at + before)
        elif after < before and at >= end:
            tail = min(tail, at + after)
        elif after > before and at == start:
            gap = start + before
    return Piece(start, end, offset, min(head, end + offset), max(tail, start + offset), gap)


def _changes(zone: Zone, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Each change of the offset from ``start`` on and before ``end``: its instant, the offset before and after."""
    known = zone.probe(start)
    for day in range(start, end, _DAY_S):
        until = min(day + _DAY_S, end)
        reached = zone.probe(until)
        while known != reached:  # two changes in one day are found one after the other
            low, high = day, until
            while high - low > 1:
                middle = (low + high) // 2
                if zone.probe(middle) == known:
                    low = middle
                else:
                    high = middle
            after = zone.probe(high)
            yield high, known, after
            day, known = high, after


# ------------------------------------------------------------------------------------------- names


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(available_timezones() - _NO_ZONES)


def _want(name: object) -> str:
    if not isinstance(name, str) or len(name) > 64:
        return _WANT
    if re.fullmatch(r"(UTC|GMT)?[+-][0-9:]+", name):
        return f"{_WANT}; an offset is no zone"
    given = name.strip().replace(" ", "_").lower()
    by_lower = {known.lower(): known for known in sorted(_names())}
    cities = {lower.rpartition("/")[2]: known for lower, known in reversed(by_lower.items())}
    for choice in (by_lower, cities):
        near = get_close_matches(given, choice, n=1, cutoff=0.75)
        if near:
            return f"{_WANT}; did you mean {choice[near[0]]}?"
    return _WANT
