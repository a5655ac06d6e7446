"""The rules of cron and of clock changes, applied minute by minute: slow, simple, and nothing of timerq's in it.

An expression is made of fields whose text and whose meaning are written down beside each other, so that nothing parses
anything. The instants that are due are found by asking `zoneinfo` for the wall time at each step of a window.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

THREE_HOURS = 3 * 3600


@dataclass(frozen=True)
class Field:
    """A field: its text, and whether it takes a value (days are asked with their date)."""

    text: str
    takes: Callable[[int, date], bool] = field(repr=False)

    @property
    def starred(self) -> bool:
        return self.text.startswith("*")


@dataclass(frozen=True)
class Expression:
    """Fields in the order second, minute, hour, day, month, weekday."""

    fields: tuple[Field, ...]
    six: bool

    @property
    def text(self) -> str:
        return " ".join(field.text for field in self.fields[0 if self.six else 1 :])

    @property
    def follows_clock(self) -> bool:
        return any(field.starred for field in self.fields[0 if self.six else 1 : 3])

    def names(self, wall: datetime, *, whole_minutes: bool = False) -> bool:
        day = wall.date()
        second, minute, hour, of_month, month, weekday = self.fields
        if not (
            (whole_minutes or second.takes(wall.second, day))
            and minute.takes(wall.minute, day)
            and hour.takes(wall.hour, day)
            and month.takes(wall.month, day)
        ):
            return False
        by_day, by_week = of_month.takes(day.day, day), weekday.takes(day.isoweekday() % 7, day)
        if of_month.text == "*" or weekday.text == "*":
            return by_day and by_week
        return by_day or by_week


@dataclass(frozen=True)
class Exclusion:
    """Dates (both included), or an expression."""

    first: date | None = None
    last: date | None = None
    expression: Expression | None = None

    @property
    def text(self) -> str:
        if self.expression is not None:
            return self.expression.text
        return f"{self.first}" if self.first == self.last else f"{self.first}/{self.last}"

    def names(self, wall: datetime) -> bool:
        if self.expression is not None:
            return self.expression.names(wall, whole_minutes=not self.expression.six)
        return self.first <= wall.date() <= self.last


def due(
    expressions: list[Expression],
    exclusions: list[Exclusion],
    zone: str,
    dst_gap: str,
    dst_overlap: str,
    start: int,
    end: int,
    step: int = 60,
) -> list[int]:
    """The instants (epoch seconds) from ``start`` on and before ``end`` that are due, looked at one ``step`` apart."""
    walls = _walls(zone, start - 4 * 3600, end + 4 * 3600, step)
    passes: dict[datetime, list[int]] = {}
    for at, wall in walls.items():
        passes.setdefault(wall, []).append(at)

    def named(wall: datetime, fixed: bool) -> bool:
        return any(each.follows_clock != fixed and each.names(wall) for each in expressions) and not any(
            each.names(wall) for each in exclusions
        )

    found = []
    for at in range(start, end, step):
        wall = walls[at]
        takes = named(wall, fixed=False)
        if not takes and named(wall, fixed=True):
            near = [other for other in passes[wall] if abs(other - at) < THREE_HOURS]
            takes = (
                dst_overlap == "both"
                or (dst_overlap == "first" and at == min(near))
                or (dst_overlap == "second" and at == max(near))
            )
        if not takes and dst_gap == "shift":
            skipped = walls[at - step] + timedelta(seconds=step)
            if timedelta(0) < wall - skipped < timedelta(seconds=THREE_HOURS):
                while skipped < wall and not takes:
                    takes = named(skipped, fixed=True)
                    skipped += timedelta(seconds=step)
        if takes:
            found.append(at)
    return found


@lru_cache(maxsize=8)
def _walls(zone: str, start: int, end: int, step: int) -> dict[int, datetime]:
    info = ZoneInfo(zone)
    return {
        at: datetime.fromtimestamp(at, info).replace(tzinfo=None, fold=0) for at in range(start, end, step)
    }


@lru_cache(maxsize=64)
def changes(zone: str) -> list[int]:
    """The hours (epoch seconds) in which the zone's offset changes, 1990 to 2060, looked for on days that differ."""
    info = ZoneInfo(zone)
    found = []
    start, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1990, 2061))
    for day in range(start, end, 86_400):
        if _offset(day, info) != _offset(day + 86_400, info):
            found += [
                hour
                for hour in range(day, day + 86_400, 3600)
                if _offset(hour, info) != _offset(hour + 3600, info)
            ]
    return found


def _offset(at: int, info: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(at, info).utcoffset()


# ------------------------------------------------------------------------------------------- random expressions


def _among(text: str, values: set[int]) -> Field:
    return Field(text, lambda value, day: value in values)


def daily(minutes: str, hours: str) -> Expression:
    """Numbers with commas, or ``*``, in the minute and the hour field, on every day."""
    return Expression(
        (
            _among("0", {0}),
            _listed(minutes, 60),
            _listed(hours, 24),
            _among("*", set(range(1, 32))),
            _among("*", set(range(1, 13))),
            _among("*", set(range(7))),
        ),
        six=False,
    )


def _listed(text: str, end: int) -> Field:
    return _among(text, set(range(end)) if text == "*" else {int(number) for number in text.split(",")})


def _number_fields(low: int, high: int, likely: st.SearchStrategy[int]) -> st.SearchStrategy[Field]:
    value = likely | st.integers(low, high)
    every = st.integers(1, high - low + 1)
    return st.one_of(
        st.just(_among("*", set(range(low, high + 1)))),
        every.map(lambda n: _among(f"*/{n}", set(range(low, high + 1, n)))),
        value.map(lambda a: _among(f"{a}", {a})),
        value.map(lambda a: _among(f"{a}-{a}", {a})),
        st.lists(value, min_size=1, max_size=4).map(lambda some: _among(",".join(map(str, some)), set(some))),
        st.tuples(value, value)
        .map(sorted)
        .map(lambda r: _among(f"{r[0]}-{r[1]}", set(range(r[0], r[1] + 1)))),
        st.tuples(value, every).map(lambda r: _among(f"{r[0]}/{r[1]}", set(range(r[0], high + 1, r[1])))),
    )


def _last_day(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def _is_nearest_workday(wanted: int, day: date) -> bool:
    if wanted > _last_day(day):
        return False
    workdays = [
        n for n in range(1, _last_day(day) + 1) if date(day.year, day.month, n).isoweekday() not in (6, 7)
    ]
    return day.day == min(workdays, key=lambda n: abs(n - wanted))


def _weekday_fields() -> st.SearchStrategy[Field]:
    day_of_week = st.integers(0, 6)
    return st.one_of(
        st.just(_among("*", set(range(7)))),
        st.just(_among("*", set(range(7)))),
        st.just(_among("1-5", {1, 2, 3, 4, 5})),
        st.just(_among("6-7", {6, 0})),
        day_of_week.map(lambda a: _among(f"{a}", {a})),
        day_of_week.map(
            lambda a: Field(f"{a}L", lambda value, day: value == a and day.day + 7 > _last_day(day))
        ),
        st.tuples(day_of_week, st.integers(1, 5)).map(
            lambda r: Field(
                f"{r[0]}#{r[1]}", lambda value, day: value == r[0] and (day.day - 1) // 7 + 1 == r[1]
            )
        ),
    )


def _always_comes(field: Field) -> bool:
    """Whether it takes a day that every month has; and */1 is left out, since it restricts nothing."""
    return any(field.takes(day, date.min) for day in range(1, 29)) and field.text != "*/1"


def _day_fields(likely: st.SearchStrategy[int]) -> st.SearchStrategy[Field]:
    return st.one_of(
        st.just(_among("*", set(range(1, 32)))),
        st.just(_among("*", set(range(1, 32)))),
        _number_fields(1, 31, likely).filter(_always_comes),
        st.just(Field("L", lambda value, day: value == _last_day(day))),
        st.just(Field("LW", lambda value, day: _is_nearest_workday(_last_day(day), day))),
        st.integers(1, 29).map(lambda n: Field(f"{n}W", lambda value, day: _is_nearest_workday(n, day))),
    )


@st.composite
def expressions(draw: st.DrawFn, near: datetime, *, six: bool = False) -> Expression:
    """An expression that is likely to be due around a wall time."""
    hour = st.sampled_from([(near.hour + n) % 24 for n in range(-2, 4)])
    second = draw(_number_fields(0, 59, st.sampled_from([0, 30, 59])))
    minute = draw(_number_fields(0, 59, st.sampled_from([0, 15, 29, 30, 45, 59])))
    month = st.just(_among("*", set(range(1, 13)))) | st.just(_among(f"{near.month}", {near.month}))
    fields = (
        second if six else _among("0", {0}),
        minute,
        draw(_number_fields(0, 23, hour)),
        draw(_day_fields(st.just(near.day))),
        draw(month),
        draw(_weekday_fields()),
    )
    return Expression(fields, six)


@st.composite
def exclusions(draw: st.DrawFn, near: datetime) -> Exclusion:
    """What is likely to leave out something around a wall time."""
    if draw(st.booleans()):
        return Exclusion(expression=draw(expressions(near)))
    first = near.date() + timedelta(days=draw(st.integers(-3, 3)))
    return Exclusion(first, first + timedelta(days=draw(st.integers(0, 2))))
