"""Instants to come: as JSON, and as a table with what clock changes did."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from timerq.cli import show
from timerq.model import Timing, to_datetime
from timerq.previews import Gap, Moment, gaps

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def moment_words(moment: Moment) -> dict[str, Any]:
    """An instant to come as JSON."""
    return {
        **show.instant_words("at", moment.at_ms),
        "local": moment.local.isoformat(timespec="milliseconds"),
        "mark": moment.mark,
    }


def say_moments(
    found: Sequence[Moment],
    title: str = "local",
    *,
    timing: Timing | None = None,
    after_ms: int | None = None,
) -> None:
    """A table of instants: on the clock of their zone, in UTC where that differs, and what a clock change did.

    With their ``timing``, fixed times that are left out because a clock change skips them have a line of their own,
    from ``after_ms`` on (epoch ms; by default the first instant).
    """
    skips: list[Gap] = []
    if timing is not None and found:
        since = found[0].at if after_ms is None else to_datetime(after_ms)
        skips = gaps(timing, since, found[-1].at)
    moved = {gap.at: gap for gap in skips if gap.made_up}
    is_utc = all(moment.local == moment.local.replace(tzinfo=UTC) for moment in found)
    lines = [(moment.at, _row(moment, moved, is_utc)) for moment in found]
    lines += [(gap.at, [*_skipped(gap)]) for gap in skips if not gap.made_up]
    rows = show.Rows(title, "utc", "clock change", whole=(title, "utc"), optional=("utc", "clock change"))
    rows.add(row for _, row in sorted(lines, key=lambda line: line[0]))


def _row(moment: Moment, moved: dict[datetime, Gap], is_utc: bool) -> list[str]:
    mark: str = moment.mark or ""
    gap = moved.get(moment.at)
    if gap is not None:  # with jitter it is put off: then the mark alone tells
        mark = f"shifted from {_clock_times(gap)}" if mark == "shifted" else f"also for {_clock_times(gap)}"
    utc = "" if is_utc else show.written(moment.at)
    return [f"{_DAYS[moment.local.weekday()]} {show.written(moment.local)}", utc, mark]


def _skipped(gap: Gap) -> tuple[str, str, str]:
    day = gap.walls[0]
    return f"{_DAYS[day.weekday()]} {day:%Y-%m-%d}", "", f"skipped: {_clock_times(gap)}"


_MOST_TIMES = 3


def _clock_times(gap: Gap) -> str:
    """``02:30``, ``02:15, 02:30 and 02:45``."""
    times = [f"{wall:%H:%M:%S}".removesuffix(":00") for wall in gap.walls]
    if len(times) > _MOST_TIMES:
        return f"{', '.join(times[:_MOST_TIMES])} and more"
    return " and ".join(filter(None, (", ".join(times[:-1]), times[-1])))
