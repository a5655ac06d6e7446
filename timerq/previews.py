"""When a recurring schedule would be due, before anything is saved: pure, and without Redis.

`preview` answers with instants; `moments` adds what a clock on the wall shows at them, and what a clock change did.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from zoneinfo import ZoneInfo

from timerq import keys
from timerq.errors import InvalidSchedule
from timerq.model import DstGap, DstOverlap, Rule, Timing, check_plain_name, check_text, to_datetime
from timerq.timing import (
    Duration,
    Exclusion,
    Instant,
    Words,
    occurrences_from,
    occurrences_of,
    resolve_instant,
    resolve_timing,
)
from timerq.timing.calendar import calendar_of

MAX_PREVIEW = 1_000_000
"""The largest ``n`` of `preview`."""

Mark = Literal["shifted", "first pass", "second pass"]
"""What a clock change did: the instant stands for times that were skipped, or lies in an hour that comes twice."""


def preview(
    cron: str | Iterable[str] | None = None,
    *,
    every: Duration | None = None,
    timezone: str | None = None,
    dst_gap: DstGap | None = None,
    dst_overlap: DstOverlap | None = None,
    exclude: Exclusion | Iterable[Exclusion] | None = None,
    anchor: Instant | None = None,
    jitter: Duration | None = None,
    start: Instant | None = None,
    until: Instant | None = None,
    limit: int | None = None,
    after: Instant | None = None,
    n: int = 10,
    key: str | None = None,
    tenant: str = "default",
    owner: str | None = None,
) -> list[datetime]:
    """The next ``n`` (1 to 1,000,000) instants of a recurring schedule made at ``after``, as aware UTC datetimes.

    The words are those of `TimerQueue.upsert`: exactly one of ``cron`` and ``every``, and what belongs to it. All
    instants are later than ``after``; there are fewer where the schedule ends before, and none where it has ended.
    Without ``after`` it is this machine's time, the only thing here that is not a function of the arguments: the queue
    itself goes by Redis's.

    ``jitter`` is drawn for each schedule: with its ``key`` (and ``tenant`` and ``owner``) these are the very instants
    at which that schedule fires; without a key they are an example.

        >>> preview(cron="0 9 * * MON-FRI", timezone="Europe/Paris", after="2026-03-27T12:00:00Z", n=2)
        [datetime.datetime(2026, 3, 30, 7, 0, tzinfo=datetime.timezone.utc),
         datetime.datetime(2026, 3, 31, 7, 0, tzinfo=datetime.timezone.utc)]

    Raises `InvalidSchedule` naming the argument, as `upsert` does.
    """
    words = Words(
        cron=cron,
        timezone=timezone,
        dst_gap=dst_gap,
        dst_overlap=dst_overlap,
        exclude=exclude,
        anchor=anchor,
        jitter=jitter,
    )
    timing = resolve_timing(every=every, start=start, until=until, limit=limit, words=words)
    return instants(timing, after=after, n=n, key=key, tenant=tenant, owner=owner)


def instants(
    timing: Timing,
    *,
    after: Instant | None = None,
    n: int = 10,
    key: str | None = None,
    tenant: str = "default",
    owner: str | None = None,
) -> list[datetime]:
    """`preview` of a ``timing`` that is resolved already."""
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_PREVIEW:
        raise InvalidSchedule("n", n, f"want a number from 1 to {MAX_PREVIEW:,}")
    after_ms = resolve_instant(datetime.now(UTC) if after is None else after, field="after")
    occurrences = occurrences_from(timing, _seed(key, tenant, owner), after_ms)
    if timing.limit is not None:
        n = min(n, timing.limit)
    found: list[datetime] = []
    at_ms = occurrences.next_ms(after_ms)
    while at_ms is not None:
        found.append(to_datetime(at_ms))
        if len(found) == n:
            break
        at_ms = occurrences.next_ms(at_ms)
    return found


def _seed(key: str | None, tenant: str, owner: str | None) -> bytes:
    """The id of the schedule, which its jitter is made of."""
    check_plain_name("tenant", tenant)
    owner_bytes = b"" if owner is None else check_text("owner", owner)
    return keys.identity(tenant.encode(), b"" if key is None else check_text("key", key), owner_bytes)


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant: ``at`` as an aware UTC datetime, ``local`` as a clock of the schedule's zone shows it.

    ``mark`` says what a clock change did: "shifted" (no expression names it: it stands for times that were skipped),
    "first pass" and "second pass" (the clock shows this time twice); None: nothing.
    """

    at: datetime
    local: datetime
    mark: Mark | None = None

    @property
    def at_ms(self) -> int:
        """The instant in epoch milliseconds."""
        return resolve_instant(self.at)


def moments(timing: Timing, instants: Iterable[datetime]) -> list[Moment]:
    """Occurrences of a ``timing``, with what the clock of its zone shows at them; pure.

    A zone belongs to cron expressions; for every other timing it is UTC. Raises `InvalidSchedule` for a zone or an
    expression that is not known here.
    """
    rule = timing.rule or Rule()
    if not rule.cron:
        return [Moment(at.astimezone(UTC), at.astimezone(UTC)) for at in instants]
    calendar, occurrences, info = calendar_of(rule), occurrences_of(timing, b"", 0), ZoneInfo(rule.timezone)
    found = []
    for at in instants:
        at = at.astimezone(UTC)
        at_ms = resolve_instant(at)
        local, mark = _local(at, info), None
        if occurrences.explain(at_ms) == "shifted":  # asked of its slot: the jitter has nothing to do with it
            mark = "shifted"
        elif calendar.explain(at_ms) == "repeated":
            mark = "second pass" if local.fold else "first pass"
        found.append(Moment(at, local, mark))  # type: ignore[arg-type]
    return found


@dataclass(frozen=True, slots=True)
class Gap:
    """A clock change that skips fixed times of a schedule.

    ``at`` is when the clock jumps (aware, UTC), ``walls`` the first few of the times that it skips (naive, as the clock
    would have shown them). ``made_up`` is whether the schedule is due at ``at`` instead (``dst_gap="shift"``).
    """

    at: datetime
    walls: tuple[datetime, ...]
    made_up: bool


def gaps(timing: Timing, after: datetime, until: datetime) -> list[Gap]:
    """The clock changes later than ``after`` and not later than ``until`` that skip fixed times of a ``timing``; pure.

    Times that it leaves out anyway, and those outside its window, are not among them. Raises `InvalidSchedule` as
    `moments` does.
    """
    rule = timing.rule or Rule()
    if not rule.cron:
        return []
    first_ms = max(resolve_instant(after), (timing.start_ms or 0) - 1)
    last_ms = resolve_instant(until)
    if timing.until_ms is not None:
        last_ms = min(last_ms, timing.until_ms)
    return [
        Gap(
            to_datetime(at_ms),
            tuple(to_datetime(wall * 1000).replace(tzinfo=None) for wall in walls),
            rule.dst_gap == "shift",
        )
        for at_ms, walls in calendar_of(rule).gaps(first_ms, last_ms)
    ]


def _local(at: datetime, info: ZoneInfo) -> datetime:
    try:
        return at.astimezone(info)
    except (OverflowError, ValueError):
        return at  # the last hours of 9999, east of Greenwich
