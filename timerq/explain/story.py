"""What happened to a key, in one order: the log's entries, and what the log does not hold."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace

from timerq.commands.history import History, LogEntry
from timerq.model import Fire, Schedule

_FROM = re.compile(r"from (\d{1,15})")
_REPLACED = re.compile(r"([0-9]{1,16})(?: (.*))?", re.DOTALL)
_COUNTED = re.compile(r"(\d{1,15})(?: (.*))?", re.DOTALL)
_ENDS = frozenset({"cancelled", "destroyed", "ended", "dropped", "orphan"})


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened at ``at_ms`` (epoch ms), or ``times`` the same up to ``until_ms``.

    ``what`` is a word of the log, ``set`` or ``fired``; ``count`` is how many occurrences it concerns, ``left`` a
    version that was no longer there, ``fire`` what is known of one that was fired.
    """

    at_ms: int
    what: str
    version: int
    detail: str = ""
    by: str | None = None
    count: int = 0
    left: int = 0
    times: int = 1
    until_ms: int = 0
    fire: Fire | None = None


def story(history: History) -> tuple[list[Line], int]:
    """Everything that is known to have happened, oldest first; and the version that left without an entry (0: none).

    To the log's entries come what it does not hold: the setting of each version that did not replace another, and the
    schedule's last fires. The log's own order is kept, also where its clock went back.
    """
    entries, schedule = history.entries, history.schedule
    fires = () if schedule is None else schedule.fires
    told = {(fire.fired_ms, fire.missed) for fire in fires if fire.missed}
    seen = {entry.version for entry in entries if entry.what == "replaced"}
    setters = {old_version(entry): setter for entry in entries if (setter := _setter(entry))}
    if schedule is not None and schedule.by is not None:
        setters[schedule.version] = schedule.by
    lines: list[Line] = []
    places: list[int] = []  # of each line, in epoch ms; they never go back

    def insert(line: Line) -> None:
        place = bisect_right(places, line.at_ms)
        if line.what == "fired":  # what failed in the same millisecond is what was fired
            beside = range(bisect_left(places, line.at_ms), place)
            place = next((i for i in beside if lines[i].what == "failed"), place)
        lines.insert(place, line)
        places.insert(place, line.at_ms)

    now = 0
    for entry in entries:
        now = max(now, entry.at_ms)
        for version in sorted({old_version(entry), entry.version} - seen - {0}):
            seen.add(version)
            insert(_set(version, now, setters))
        line = _line_of(entry)
        if line.what != "missed" or (line.at_ms, line.count) not in told:
            lines.append(line)
            places.append(now)
    if schedule is not None and schedule.version not in seen:
        insert(_set(schedule.version, schedule.version // 1000, setters))
    for fire in fires:
        insert(Line(fire.fired_ms, "fired", 0, str(fire.lag_ms), count=fire.missed, fire=fire))
    return _with_gaps(lines, schedule)


def folded(lines: list[Line]) -> list[Line]:
    """The story with runs of one thing as one: a schedule that is held is held again every half minute."""
    found: list[Line] = []
    last: Line | None = None
    for line in lines:
        if last is None or line.what in ("set", "fired") or _sort(last) != _sort(line) or _anew(last, line):
            found.append(line)
        else:
            first = found[-1]
            found[-1] = replace(
                line,
                at_ms=first.at_ms,
                detail=first.detail,
                until_ms=line.at_ms,
                times=first.times + 1,
                count=first.count + line.count,
            )
        last = line
    return found


def last_life(lines: list[Line]) -> int:
    """Where the last life of the key begins: with the setting behind the last end, or behind one that left no entry."""
    start, ended = 0, False
    for i, line in enumerate(lines):
        if line.what == "set" and (ended or line.left):
            start, ended = i, False
        elif line.what in _ENDS:
            ended = True
    return start


def old_version(entry: LogEntry) -> int:
    """The version that a replacement replaced, 0 for none."""
    found = _REPLACED.fullmatch(entry.note) if entry.what == "replaced" else None
    return int(found[1]) if found else 0


def _setter(entry: LogEntry) -> str | None:
    """Who had set the version that a replacement replaced, where that was said."""
    found = _REPLACED.fullmatch(entry.note) if entry.what == "replaced" else None
    return found[2] if found else None


def _set(version: int, latest_ms: int, setters: Mapping[int, str]) -> Line:
    """A version is the time when it was set, in µs (a little more where the clock had gone back)."""
    return Line(min(version // 1000, latest_ms), "set", version, by=setters.get(version))


def _line_of(entry: LogEntry) -> Line:
    line = Line(entry.at_ms, entry.what, entry.version, entry.note, entry.by)
    if entry.what in ("missed", "skipped", "backfilled") and (counted := _COUNTED.fullmatch(entry.note)):
        return replace(line, detail=counted[2] or "", count=int(counted[1]))
    return line


def _with_gaps(lines: list[Line], schedule: Schedule | None) -> tuple[list[Line], int]:
    """Marks where a version left without an entry: firing and being consumed are the only ways out that leave none."""
    told = []
    there = 0
    for line in lines:
        if line.what == "set" and there:
            line = replace(line, left=there)
        there = 0 if line.what in _ENDS else line.version or there
        told.append(line)
    return told, there if schedule is None else 0


def _anew(before: Line, line: Line) -> bool:
    """Whether a backfill is another one: a long one is published in pieces, and each begins behind the one before."""
    old, new = _FROM.fullmatch(before.detail), _FROM.fullmatch(line.detail)
    return line.what == "backfilled" and old is not None and new is not None and int(new[1]) <= int(old[1])


def _sort(line: Line) -> tuple[object, ...]:
    """What lines must share to be told as one."""
    if line.what == "replaced":
        return line.what, line.by
    if line.what == "backfilled":
        return line.what, line.version, line.by
    return line.what, line.version, line.detail, line.by
