"""IANA time zones, as pieces of time of one UTC offset.

The rules of a zone are `zoneinfo`'s, asked through its public interface alone: the offset is probed every other day,
and a change is bisected to the second. (Since 1970 no zone has changed back in less than six days.) Pieces are made
when they are first needed, for seven weeks at once, and a bounded number of them is kept.

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

CYCLE_S = 146_097 * 86_400
"""400 years, after which the calendar repeats, and with it the rules of a zone."""

STEADY_S = int(datetime(2400, 1, 1, tzinfo=UTC).timestamp())
"""From here on the zones have rules alone; the dates their files list end in 2087."""

_DAY_S = 86_400
_STRETCH_BITS = 22  # pieces are made for 2^22 seconds at once, 48 days and a half
_PROBE_S = 2 * _DAY_S
_NOTHING, _SECOND = timedelta(0), timedelta(seconds=1)
_FOREVER = 1 << 60

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

    __slots__ = ("_always", "_info", "name")

    def __init__(self, name: str, info: tzinfo) -> None:
        self.name = name
        self._info = info
        always = info.utcoffset(None)  # None where it depends
        self._always = None if always is None else _plain(0, _FOREVER, always // _SECOND)

    def piece(self, at: int) -> Piece:
        """The piece that the instant ``at`` (0 or later) is in."""
        if self._always is not None:
            return self._always
        if at >= STEADY_S + CYCLE_S:
            shift = (at - STEADY_S) // CYCLE_S * CYCLE_S
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
        offset = datetime.fromtimestamp(at, self._info).utcoffset() or _NOTHING
        return offset // _SECOND


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


@lru_cache(maxsize=8192)
def _stretch(zone: Zone, number: int) -> tuple[Piece, ...]:
    """The pieces of a stretch of 2^22 seconds; they end where it ends."""
    start, end = number << _STRETCH_BITS, (number + 1) << _STRETCH_BITS
    # A clock change a day before or after still matters: what it repeats may reach into the stretch.
    changes = list(_changes(zone, max(start - _DAY_S, 0), end + _DAY_S))
    if not changes:
        return (_plain(start, end, zone.probe(start)),)
    cuts = sorted({start, end, *(at for at, _, _ in changes if start < at < end)})
    return tuple(_piece(first, last, changes, zone) for first, last in pairwise(cuts))


def _plain(start: int, end: int, offset: int) -> Piece:
    return Piece(start, end, offset, start + offset, end + offset, None)


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
    for since in range(start, end, _PROBE_S):
        until = min(since + _PROBE_S, end)
        reached = zone.probe(until)
        while known != reached:  # of two changes, the first is found first
            low, high = since, until
            while high - low > 1:
                middle = (low + high) // 2
                if zone.probe(middle) == known:
                    low = middle
                else:
                    high = middle
            after = zone.probe(high)
            yield high, known, after
            since, known = high, after


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
