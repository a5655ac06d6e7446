"""Calendars: the agreed vectors, cases from the field, and a walk through the minutes that knows no tricks."""

from __future__ import annotations

import json
from bisect import bisect_right
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from time import process_time
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support import walk
from timerq.errors import InvalidSchedule
from timerq.model import Rule
from timerq.timing import MAX_INSTANT_MS
from timerq.timing.calendar import MAX_EXCLUSIONS, MAX_EXPRESSIONS, Calendar, calendar_of

VECTORS = json.loads((Path(__file__).parents[1] / "cases" / "cron-vectors.json").read_text())["vectors"]
DAY_MS = 86_400_000


def calendar(*cron: str, zone: str = "UTC", **rule) -> Calendar:
    return calendar_of(Rule(cron, timezone=zone, **rule))


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1000


def iso(*instants_ms: int) -> list[str]:
    return [f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" for at_ms in instants_ms]


def nexts(calendar: Calendar, after_ms: int, n: int) -> list[int]:
    found: list[int] = []
    while len(found) < n and (at_ms := calendar.next_ms(found[-1] if found else after_ms)) is not None:
        found.append(at_ms)
    return found


def within(calendar: Calendar, after_ms: int, until_ms: int) -> list[int]:
    found: list[int] = []
    while (at_ms := calendar.next_ms(found[-1] if found else after_ms)) is not None and at_ms <= until_ms:
        found.append(at_ms)
    return found


def after(base: str, n: int, *cron: str, zone: str = "UTC", **rule) -> list[str]:
    return iso(*nexts(calendar(*cron, zone=zone, **rule), ms(base), n))


def local(base: str, n: int, *cron: str, zone: str, **rule) -> list[str]:
    """The next instants as the zone shows them."""
    found = nexts(calendar(*cron, zone=zone, **rule), ms(base), n)
    return [
        datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).isoformat(timespec="minutes") for at_ms in found
    ]


def refusal(field: str, **rule) -> str:
    with pytest.raises(InvalidSchedule) as caught:
        calendar_of(Rule(**{"cron": ("0 9 * * *",), **rule}))
    assert caught.value.field == field
    assert "want" in caught.value.want
    return caught.value.want


# ------------------------------------------------------------------------------------------------ the vectors


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["id"]) for vector in VECTORS])
def test_vector(vector):
    found = calendar(vector["expr"], zone=vector["tz"])
    due = [each["ms"] for each in vector["next"]]
    assert nexts(found, vector["after"]["ms"], len(due)) == due
    assert all(type(at_ms) is int for at_ms in nexts(found, vector["after"]["ms"], len(due)))
    assert found.count(vector["after"]["ms"], due[-1]) == len(due)
    assert [found.prev_ms(at_ms + 999) for at_ms in due] == due
    assert [found.prev_ms(at_ms - 1) for at_ms in due[1:]] == due[:-1]


def test_all_vectors_are_there():
    assert len(VECTORS) == 335


# ------------------------------------------------------------------------------------------------ cases from the field


def test_b02_a_fixed_time_after_the_spring_change():
    assert after("2026-03-08T05:45Z", 2, "0 8 * * 0", zone="America/Chicago") == [
        "2026-03-08T13:00:00Z",
        "2026-03-15T13:00:00Z",
    ]


@pytest.mark.parametrize(
    ("base", "cron", "zone", "moved", "usual"),
    [
        ("2027-04-29T12:00Z", "30 0 * * *", "Africa/Cairo", "2027-04-29T22:00:00Z", "2027-04-30T21:30:00Z"),
        (
            "2026-10-03T00:00Z",
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T15:30:00Z",
            "2026-10-04T15:15:00Z",
        ),
    ],
    ids=["B04a", "B04b"],
)
def test_b04_a_skipped_time_is_moved_or_left_out(base, cron, zone, moved, usual):
    assert after(base, 2, cron, zone=zone) == [moved, usual]
    assert after(base, 1, cron, zone=zone, dst_gap="skip") == [usual]


def test_b06_nothing_in_the_second_pass_when_asked_from_inside_it():
    base, cron, zone = "2026-11-01T06:00Z", "30 1 * * *", "America/New_York"
    assert after(base, 1, cron, zone=zone) == ["2026-11-02T06:30:00Z"]
    assert after(base, 1, cron, zone=zone, dst_overlap="both") == ["2026-11-01T06:30:00Z"]
    assert after(base, 1, cron, zone=zone, dst_overlap="second") == ["2026-11-01T06:30:00Z"]


def test_b08_every_minute_through_a_repeated_hour():
    found = nexts(calendar("* * * * *", zone="Europe/Vienna"), ms("2025-10-25T23:59:30Z"), 121)
    assert iso(found[0], found[-1]) == ["2025-10-26T00:00:00Z", "2025-10-26T02:00:00Z"]
    assert {b - a for a, b in pairwise(found)} == {60_000}


def test_b09_a_repeated_half_hour():
    base, cron, zone = "2026-04-04T00:00Z", "45 1 * * *", "Australia/Lord_Howe"
    assert after(base, 2, cron, zone=zone) == ["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"]
    assert after(base, 1, cron, zone=zone, dst_overlap="second") == ["2026-04-04T15:15:00Z"]
    assert after(base, 2, cron, zone=zone, dst_overlap="both") == [
        "2026-04-04T14:45:00Z",
        "2026-04-04T15:15:00Z",
    ]


def test_b17_another_zone_is_another_instant():
    base = "2026-05-19T10:30Z"
    assert after(base, 1, "0 21 * * *", zone="Australia/Sydney") == ["2026-05-19T11:00:00Z"]
    assert after(base, 1, "0 21 * * *", zone="Europe/Berlin") == ["2026-05-19T19:00:00Z"]


def test_b20_a_range_of_one():
    assert after("2026-03-01T00:30Z", 2, "5-5 * * * *") == ["2026-03-01T01:05:00Z", "2026-03-01T02:05:00Z"]


def test_b21_days_or_the_second_sunday():
    found = after("2021-01-01T00:00Z", 6, "0 0 8-9 * 0#2")
    assert [at[5:10] for at in found] == ["01-08", "01-09", "01-10", "02-08", "02-09", "02-14"]
    assert {at[10:] for at in found} == {"T00:00:00Z"}


@pytest.mark.parametrize(
    ("cron", "due"),
    [
        ("0 0 * * 1-7/2", ["03T00:00", "05T00:00", "07T00:00", "09T00:00", "10T00:00"]),
        ("0 9 * * 2/2", ["04T09:00", "06T09:00", "08T09:00", "11T09:00"]),
        ("5 10 * * 6-7", ["02T10:05", "08T10:05"]),
    ],
    ids=["B23a", "B23b", "B23c"],
)
def test_b23_steps_over_the_end_of_the_week(cron, due):
    assert [at[8:16] for at in after("2026-08-02T00:00Z", len(due), cron)] == due


def test_b26_seconds_come_first():
    assert after("2026-01-01T00:00Z", 1, "0 0 12 * * 1") == ["2026-01-05T12:00:00Z"]


@pytest.mark.parametrize("cron", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 1 1 * 0 2020"])
def test_b29_what_never_comes_is_refused_at_once(cron):
    begun = process_time()
    refusal("cron", cron=(cron,))
    assert process_time() - begun < 1


def test_b29_the_weekday_side_may_come():
    assert after("2026-01-01T00:00Z", 1, "0 0 31 9 1") == ["2026-09-07T00:00:00Z"]


def test_b34_the_year_9999_ends_without_an_error():
    daily = calendar("0 0 * * *")
    assert daily.next_ms(ms("9999-12-31T12:00:00Z")) is None
    assert daily.next_ms(MAX_INSTANT_MS) is None
    assert iso(daily.next_ms(ms("9999-12-30T12:00:00Z"))) == ["9999-12-31T00:00:00Z"]
    assert iso(daily.prev_ms(10**18)) == ["9999-12-31T00:00:00Z"]


# ------------------------------------------------------------------------------------------------ clock changes


PARIS_GAP = "2026-03-28T12:00Z"
PARIS_OVERLAP = "2026-10-24T12:00Z"
FIRST, SECOND = "2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00"


@pytest.mark.parametrize(
    ("dst_overlap", "due"),
    [
        ("first", [FIRST, "2026-10-26T02:30+01:00"]),
        ("second", [SECOND, "2026-10-26T02:30+01:00"]),
        ("both", [FIRST, SECOND]),
    ],
)
@pytest.mark.parametrize("dst_gap", ["shift", "skip"])
def test_a_repeated_fixed_time(dst_overlap, dst_gap, due):
    rule = {"zone": "Europe/Paris", "dst_overlap": dst_overlap, "dst_gap": dst_gap}
    assert local(PARIS_OVERLAP, 2, "30 2 * * *", **rule) == due


@pytest.mark.parametrize("dst_overlap", ["first", "second", "both"])
def test_the_rules_are_for_fixed_times_alone(dst_overlap):
    rule = {"zone": "Europe/Paris", "dst_overlap": dst_overlap}
    assert local(PARIS_OVERLAP, 4, "*/30 2 * * *", **rule) == [
        "2026-10-25T02:00+02:00",
        FIRST,
        "2026-10-25T02:00+01:00",
        SECOND,
    ]
    assert local(PARIS_GAP, 1, "*/30 2 * * *", **rule) == ["2026-03-30T02:00+02:00"]


def test_fixed_and_following_expressions_in_one_schedule_keep_their_own_rules():
    mixed = calendar("30 2 * * *", "*/20 2 * * *", zone="Europe/Paris", dst_overlap="first")
    autumn = within(mixed, ms("2026-10-24T23:00Z"), ms("2026-10-25T12:00Z"))
    assert iso(*autumn) == [
        "2026-10-25T00:00:00Z",
        "2026-10-25T00:20:00Z",
        "2026-10-25T00:30:00Z",
        "2026-10-25T00:40:00Z",
        "2026-10-25T01:00:00Z",
        "2026-10-25T01:20:00Z",
        "2026-10-25T01:40:00Z",
    ]
    assert mixed.count(ms("2026-10-24T23:00Z"), ms("2026-10-25T12:00Z")) == 7
    assert iso(*within(mixed, ms("2026-03-29T00:00Z"), ms("2026-03-29T12:00Z"))) == ["2026-03-29T01:00:00Z"]


def test_slots_that_shift_onto_one_instant_are_one():
    many = calendar("0,15,30 2,3 * * *", "45 2 * * *", zone="Europe/Paris")
    spring = within(many, ms("2026-03-29T00:00Z"), ms("2026-03-29T01:59Z"))
    assert iso(*spring) == ["2026-03-29T01:00:00Z", "2026-03-29T01:15:00Z", "2026-03-29T01:30:00Z"]
    assert many.count(ms("2026-03-29T00:00Z"), ms("2026-03-29T01:59Z")) == 3
    assert many.count(ms("2026-03-29T00:00Z"), ms("2026-03-29T01:00Z")) == 1
    assert many.count(ms("2026-03-29T01:00Z"), ms("2026-03-29T01:59Z")) == 2


def test_what_a_clock_change_did_is_explained():
    daily = calendar("30 2 * * *", "0 3 * * 1", zone="Europe/Paris")
    assert daily.explain(ms("2026-03-29T01:00:00Z")) == "shifted"
    assert daily.explain(ms("2026-03-30T00:30:00Z")) is None
    assert daily.explain(ms("2026-10-25T00:30:00Z")) == "repeated"
    assert daily.explain(ms("2026-10-25T01:30:00Z")) == "repeated"
    assert daily.explain(ms("2026-10-25T02:00:00Z")) is None
    assert calendar("0 2,3 * * *", zone="Europe/Paris").explain(ms("2026-03-29T01:00:00Z")) is None
    assert (
        calendar("30 2 * * *", zone="Europe/Paris", dst_gap="skip").explain(ms("2026-03-29T01:00Z")) is None
    )


def test_a_change_of_three_hours_is_a_correction():
    # Casey went back from +11 to +8 at 2010-03-05T02:00, and forward again at 2011-10-28T02:00.
    casey = calendar("30 1 * * *", zone="Antarctica/Casey")
    back = within(casey, ms("2010-03-04T10:00:00Z"), ms("2010-03-05T10:00:00Z"))
    assert iso(*back) == ["2010-03-04T14:30:00Z", "2010-03-04T17:30:00Z"]
    skipped = calendar("30 2 * * *", zone="Antarctica/Casey")
    assert within(skipped, ms("2011-10-27T17:00:00Z"), ms("2011-10-28T12:00:00Z")) == []


@pytest.mark.parametrize("cron", ["* * * * *", "* * * * * *", "0 12 30 12 *", "59 59 23 * * *"])
def test_a_skipped_day_costs_nothing(cron):
    apia = calendar(cron, zone="Pacific/Apia")
    begun = process_time()
    nexts(apia, ms("2011-12-30T09:59:58Z"), 20)  # two seconds before the day that Samoa left out
    apia.prev_ms(ms("2011-12-30T10:00:00Z"))
    assert process_time() - begun < 0.2


def test_a_time_that_only_ever_falls_into_the_gap_is_none_when_skipped():
    always = {"zone": "Europe/Berlin", "dst_gap": "skip"}
    begun = process_time()
    assert calendar("30 2 * 3 0L", **always).next_ms(ms("2026-01-01T00:00Z")) is None
    assert process_time() - begun < 2
    assert local("2026-01-01T00:00Z", 2, "30 2 * 3 0L", zone="Europe/Berlin") == [
        "2026-03-29T03:00+02:00",
        "2027-03-28T03:00+02:00",
    ]


# ------------------------------------------------------------------------------------------------ unions, exclusions


def test_several_expressions_are_one_set():
    assert after("2026-01-01T00:00Z", 5, "0 9 * * *", "0 9,10 * * *", "30 9 * * *") == [
        "2026-01-01T09:00:00Z",
        "2026-01-01T09:30:00Z",
        "2026-01-01T10:00:00Z",
        "2026-01-02T09:00:00Z",
        "2026-01-02T09:30:00Z",
    ]


def test_dates_and_ranges_are_left_out_as_local_dates():
    off = ("2026-12-25", "2026-12-27/2026-12-28", "2026-12-28/2026-12-29")
    found = calendar("30 0 * * *", zone="Asia/Tokyo", exclude=off)
    assert iso(*nexts(found, ms("2026-12-23T12:00Z"), 3)) == [
        "2026-12-23T15:30:00Z",  # the 24th in Tokyo
        "2026-12-25T15:30:00Z",  # the 26th
        "2026-12-29T15:30:00Z",  # the 30th
    ]
    assert iso(found.prev_ms(ms("2026-12-29T15:00Z"))) == ["2026-12-25T15:30:00Z"]
    assert found.count(ms("2026-12-01T00:00Z"), ms("2026-12-31T23:59Z")) == 31 - 4


def test_an_expression_of_five_fields_leaves_out_whole_minutes_and_one_of_six_its_seconds():
    each = "*/20 * * * * *"
    base = ms("2026-01-01T09:00:00Z") - 1
    assert [at[14:19] for at in iso(*nexts(calendar(each, exclude=("1 * * * *",)), base, 5))] == [
        "00:00",
        "00:20",
        "00:40",
        "02:00",
        "02:20",
    ]
    assert [at[14:19] for at in iso(*nexts(calendar(each, exclude=("20 1 * * * *",)), base, 6))] == [
        "00:00",
        "00:20",
        "00:40",
        "01:00",
        "01:40",
        "02:00",
    ]


def test_a_skipped_time_that_is_excluded_is_not_moved():
    rule = {"zone": "Europe/Paris"}
    assert local(PARIS_GAP, 1, "30 2 * * *", exclude=("2026-03-29",), **rule) == ["2026-03-30T02:30+02:00"]
    assert local(PARIS_GAP, 1, "30 2 * * *", exclude=("0 3 * * *",), **rule) == ["2026-03-29T03:00+02:00"]


@pytest.mark.parametrize(
    "exclude",
    [
        ("* 9 * * *",),
        ("0 * * * *",),
        ("2000-01-01/9999-12-31", "1970-01-01/1999-12-31"),
        ("0 0-9 * * *", "0 5 * * *"),
    ],
    ids=repr,
)
def test_exclusions_that_leave_nothing_are_refused(exclude):
    begun = process_time()
    assert "leave something" in refusal("exclude", exclude=exclude)
    assert process_time() - begun < 1


def test_exclusions_may_leave_very_little():
    rare = calendar("0 9 29 2 *", exclude=("* * * * 1-6", "1970-01-01/2050-12-31"))
    assert iso(*nexts(rare, 0, 2)) == ["2060-02-29T09:00:00Z", "2088-02-29T09:00:00Z"]


def test_what_ends_with_its_exclusions_ends():
    ends = calendar("0 9 * * *", exclude=("2026-01-03/9999-12-31",))
    assert iso(*nexts(ends, ms("2026-01-01T00:00Z"), 9)) == ["2026-01-01T09:00:00Z", "2026-01-02T09:00:00Z"]
    assert ends.count(ms("2026-01-01T00:00Z"), MAX_INSTANT_MS) == 2
    assert iso(ends.prev_ms(MAX_INSTANT_MS)) == ["2026-01-02T09:00:00Z"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "2026-13-01",
        "2026-02-30",
        "1969-12-31",
        "2026-1-1",
        "2026/12/25",
        "2026-12-25 ",
        "25-12-2026",
        "2026-12-26/2026-12-24",
        "2026-12-24/",
        "2026-12-24/26",
        "2026-12-24/2026-12-25/2026-12-26",
        "2026-12-24T00:00",
        "२०२६-१२-२५",
        "12-25",
        "holidays",
        "60 * * * *",
        "0 0 30 2 *",
        20261225,
        None,
    ],
    ids=repr,
)
def test_refused_exclusion(text):
    refusal("exclude", exclude=(text,))


@pytest.mark.parametrize(
    "cron", [(), (["0", "9", "*", "*", "*"],), (None,), (b"0 9 * * *",), ("0 9 * *",)], ids=repr
)
def test_refused_expressions(cron):
    refusal("cron", cron=cron)


def test_there_is_an_end_to_what_a_calendar_takes():
    minutes = [f"{n % 60} {n // 60} * * *" for n in range(MAX_EXPRESSIONS + 1)]
    dates = [f"{2000 + n}-01-01" for n in range(MAX_EXCLUSIONS + 1)]
    calendar(*minutes[:-1], exclude=(*minutes[: MAX_EXPRESSIONS // 2], *dates[: MAX_EXCLUSIONS // 2]))
    refusal("cron", cron=tuple(minutes))
    refusal("exclude", exclude=tuple(dates))
    refusal("exclude", cron=("* * * * *",), exclude=tuple(minutes))


def test_equal_rules_share_a_calendar():
    assert calendar("0 9 * * *", zone="Europe/Paris") is calendar("0 9 * * *", zone="Europe/Paris")
    assert calendar("0 9 * * *", zone="Europe/Paris") is not calendar("0 9 * * *", zone="Europe/Rome")


# ------------------------------------------------------------------------------------------------ against the walk

ZONES = [
    "Europe/Paris",
    "America/New_York",
    "America/Havana",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Caracas",
    "America/St_Johns",
    "America/Nuuk",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Europe/Moscow",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kwajalein",
]
YEARS = tuple(int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1990, 2060))


@st.composite
def moments(draw) -> tuple[str, int]:
    """A zone and an instant (epoch seconds, a whole minute), three times out of four at one of its clock changes."""
    zone = draw(st.sampled_from(ZONES))
    if walk.changes(zone) and draw(st.integers(0, 3)):
        return zone, draw(st.sampled_from(walk.changes(zone))) + 60 * draw(st.integers(-90, 90))
    return zone, draw(st.integers(*YEARS)) // 60 * 60


@st.composite
def rules(draw, *, six=False, most=3):
    zone, at = draw(moments())
    near = datetime.fromtimestamp(at, ZoneInfo(zone)).replace(tzinfo=None)
    cron = draw(st.lists(walk.expressions(near, six=six), min_size=1, max_size=most))
    exclude = draw(st.lists(walk.exclusions(near), max_size=2))
    rule = Rule(
        tuple(each.text for each in cron),
        timezone=zone,
        dst_gap=draw(st.sampled_from(["shift", "skip"])),
        dst_overlap=draw(st.sampled_from(["first", "second", "both"])),
        exclude=tuple(each.text for each in exclude),
    )
    return rule, cron, exclude, at


def left_of(rule: Rule) -> Calendar | None:
    """Its calendar; None where its exclusions leave nothing."""
    try:
        return calendar_of(rule)
    except InvalidSchedule as refused:
        if refused.field != "exclude":
            raise
        return None


def compared(case, start: int, end: int, step: int) -> list[int]:
    """Compares a calendar with the walk, from many instants on; returns these (epoch ms)."""
    rule, cron, exclude, _ = case
    due = walk.due(cron, exclude, rule.timezone, rule.dst_gap, rule.dst_overlap, start, end, step)
    due_ms = [at * 1000 for at in due]
    near = [at * 1000 - late for at in range(start, end, (end - start) // 400) for late in (1, 0)]
    found = left_of(rule)
    if found is None:
        assert due == []
        return near
    assert within(found, start * 1000 - 1, end * 1000 - 1) == due_ms
    before_ms = found.prev_ms(start * 1000 - 1)
    for at_ms in near:
        index = bisect_right(due_ms, at_ms)
        if index < len(due_ms):
            assert found.next_ms(at_ms) == due_ms[index]
        assert found.prev_ms(at_ms) == (due_ms[index - 1] if index else before_ms)
        assert found.count(near[0], at_ms) == index - bisect_right(due_ms, near[0])
    return near


def compared_with_counts(case, start: int, end: int, step: int, data) -> None:
    near = compared(case, start, end, step)
    found = left_of(case[0])
    for _ in range(10 if found else 0):
        low, high = sorted(data.draw(st.sampled_from(near)) for _ in range(2))
        assert found.count(low, high) == found.count(near[0], high) - found.count(near[0], low)


CHANGES = [
    ("Europe/Paris", "2026-03-29T01:00Z"),
    ("Europe/Paris", "2026-10-25T01:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ("America/Havana", "2026-11-01T05:00Z"),
    ("Antarctica/Troll", "2026-10-25T01:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),
]


@pytest.mark.parametrize(("zone", "change"), CHANGES, ids=lambda value: value)
@pytest.mark.parametrize("dst_gap", ["shift", "skip"])
@pytest.mark.parametrize("dst_overlap", ["first", "second", "both"])
def test_the_days_around_a_change_are_what_a_walk_finds(zone, change, dst_gap, dst_overlap):
    at = ms(change) // 1000
    hour = datetime.fromtimestamp(at - 1, ZoneInfo(zone)).hour
    hours = f"{hour}", f"{(hour - 1) % 24},{hour},{(hour + 1) % 24},{(hour + 2) % 24}"
    fixed = [walk.daily(minutes, each) for minutes in ("0", "45", "0,20,40") for each in hours]
    clock = [walk.daily("*", hours[0]), walk.daily("30", "*")]
    for cron in (*([each] for each in (*fixed, *clock)), [fixed[2], clock[1]], [fixed[-1], clock[0]]):
        rule = Rule(tuple(each.text for each in cron), zone, dst_gap, dst_overlap)
        compared((rule, cron, [], at), at - 30 * 3600, at + 27 * 3600, 60)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(rules(), st.data())
def test_calendars_are_what_a_walk_through_the_minutes_finds(case, data):
    at = case[3]
    start = at - 60 * data.draw(st.sampled_from([0, 30, 90, 6 * 60, 2 * 24 * 60]))
    end = at + 60 * data.draw(st.sampled_from([6 * 60, 2 * 24 * 60]))
    compared_with_counts(case, start, end, 60, data)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(rules(six=True, most=2), st.data())
def test_calendars_with_seconds_are_what_a_walk_through_the_seconds_finds(case, data):
    start = case[3] - data.draw(st.integers(0, 3600))
    compared_with_counts(case, start, start + 2 * 3600, 1, data)


# ------------------------------------------------------------------------------------------------ laws


@settings(max_examples=120)
@given(rules(), st.integers(0, MAX_INSTANT_MS), st.booleans(), st.integers(1, 12))
@example((Rule(("0 0 29 2 *",), "Asia/Tokyo"), None, None, 0), MAX_INSTANT_MS - 40 * 366 * DAY_MS, True, 12)
@example((Rule(("* * * * *",), "Pacific/Kiritimati"), None, None, 0), MAX_INSTANT_MS - 100_000, True, 12)
@example((Rule(("59 23 31 12 *",), "Pacific/Kiritimati"), None, None, 0), MAX_INSTANT_MS - 100_000, True, 2)
def test_next_prev_and_count_agree(case, anywhere_ms, anywhere, n):
    found = left_of(case[0])
    if found is None:
        return
    base_ms = anywhere_ms if anywhere else case[3] * 1000
    due = nexts(found, base_ms, n)
    assert all(a < b for a, b in zip([base_ms, *due], due, strict=False))
    assert all(0 <= at_ms <= MAX_INSTANT_MS and at_ms % 1000 == 0 for at_ms in due)
    assert [found.prev_ms(at_ms) for at_ms in due] == due
    assert [found.prev_ms(at_ms - 1) for at_ms in due[1:]] == due[:-1]
    assert [found.count(base_ms, at_ms) for at_ms in due] == list(range(1, len(due) + 1))
    if due:
        before = found.prev_ms(due[0] - 1)
        assert before is None or before <= base_ms


@settings(max_examples=40)
@given(
    rules(),
    st.integers(0, MAX_INSTANT_MS),
    st.lists(st.integers(0, 50 * 366 * DAY_MS), min_size=2, max_size=2),
)
def test_counts_add_up(case, a, later):
    found = left_of(case[0])
    if found is None:
        return
    b, c = sorted(a + after_ms for after_ms in later)
    assert found.count(a, b) + found.count(b, c) == found.count(a, c)
    assert found.count(b, a) == 0


def test_a_leap_cycle_is_counted_exactly():
    # 97 leap days and 20,871 weeks in 400 years, wherever they begin.
    for year in (1970, 2001, 3333, 9000):
        start, end = (ms(f"{y}-01-01T00:00:00Z") - 1 for y in (year, year + 400))
        assert calendar("0 0 29 2 *").count(start, end) == 97
        assert calendar("0 0 * * 1").count(start, end) == 20_871
        assert calendar("0 0 * * *", zone="Europe/Paris").count(start, end) == 146_097


def test_nothing_is_before_1970():
    new_year = calendar("0 0 1 1 *", zone="America/New_York")
    assert new_year.next_ms(-(10**15)) == ms("1970-01-01T05:00:00Z")
    assert new_year.prev_ms(ms("1970-01-01T04:59:59Z")) is None
    assert new_year.prev_ms(-1) is None
    assert new_year.count(-(10**15), ms("1971-01-01T05:00:00Z")) == 2


# ------------------------------------------------------------------------------------------------ croniter

_WEEKDAYS = ["*", "1-5", "0", "6", "1,3,5", "0-3"]


@settings(max_examples=200)
@given(
    minute=st.sampled_from(["*", "0", "59", "*/7", "3,5,58", "10-20", "10-50/13"]),
    hour=st.sampled_from(["*", "0", "23", "*/5", "1,13", "9-17"]),
    day=st.sampled_from(["*", "1", "29", "31", "1-7", "*/10", "13,14"]),
    month=st.sampled_from(["*", "1", "2,3", "*/4", "6-8"]),
    weekday=st.sampled_from(_WEEKDAYS),
    base=st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)),
)
def test_utc_calendars_are_what_croniter_finds(minute, hour, day, month, weekday, base):
    base = base.replace(microsecond=0, tzinfo=UTC)
    text = f"{minute} {hour} {day} {month} {weekday}"
    other = croniter(text, base)
    base_ms = int(base.timestamp()) * 1000
    assert nexts(calendar(text), base_ms, 20) == [int(other.get_next(float)) * 1000 for _ in range(20)]


# ------------------------------------------------------------------------------------------------ cost


@pytest.mark.parametrize(
    ("cron", "rule"),
    [
        (("* * * * *",), {}),
        (("* * * * * *",), {}),
        (
            ("* * * * *", "*/7 3 * * 1-5", "0 9 L * *"),
            {"exclude": ("* 12 * * *", "2026-12-24/2026-12-26", "0 9 * * 0")},
        ),
    ],
    ids=["minutes", "seconds", "mixed"],
)
def test_a_year_is_counted_without_a_loop_over_its_occurrences(cron, rule):
    found = calendar(*cron, zone="Europe/Paris", **rule)
    begun = process_time()
    assert found.count(ms("2026-01-01T00:00Z"), ms("2027-01-01T00:00Z")) > 400_000
    assert process_time() - begun < 0.1  # about 1 ms; going through them takes a second
