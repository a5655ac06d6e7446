"""Durations, instants and intervals: the agreed vectors, the refusals, and properties over random values."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.ticks import interval_after
from timerq.errors import InvalidSchedule
from timerq.model import Timing
from timerq.timing import (
    MAX_DURATION_MS,
    MAX_INSTANT_MS,
    MAX_LIMIT,
    resolve_due,
    resolve_duration,
    resolve_instant,
    resolve_timing,
)

VECTORS = json.loads((Path(__file__).parents[1] / "cases" / "durations.json").read_text())
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAN, INF = float("nan"), float("inf")


def revive(value):
    """The Python object a vector stands for."""
    if isinstance(value, dict):
        if set(value) == {"$timedelta"}:
            days, seconds, microseconds = value["$timedelta"]
            return timedelta(days=days, seconds=seconds, microseconds=microseconds)
        if set(value) == {"$float"}:
            return float(value["$float"])
        return {key: revive(inner) for key, inner in value.items()}
    return value


def vectors(kind, *, optional=False):
    chosen = [vector for vector in VECTORS[kind] if vector.get("may_refuse", False) is optional]
    assert chosen
    return [pytest.param(vector, id=vector["id"]) for vector in chosen]


def refusal(call, *args, **kwargs) -> InvalidSchedule:
    with pytest.raises(InvalidSchedule) as caught:
        call(*args, **kwargs)
    assert "want" in caught.value.want
    return caught.value


# ------------------------------------------------------------------------------------------------ durations


@pytest.mark.parametrize("vector", vectors("valid"))
def test_duration_vector(vector):
    got = resolve_duration(revive(vector["value"]))
    assert got == vector["ms"]
    assert type(got) is int


@pytest.mark.parametrize("vector", vectors("refused"))
def test_refused_duration_vector(vector):
    assert refusal(resolve_duration, revive(vector["value"]), field="every").field == "every"


# The fraction in the last part is ISO's own rule. The rest would give a duration more than one spelling.
ACCEPTED = {"dur-lenient-12"}


@pytest.mark.parametrize("vector", vectors("valid", optional=True))
def test_duration_vector_that_may_be_refused(vector):
    if vector["id"] in ACCEPTED:
        assert resolve_duration(vector["value"]) == vector["ms"]
    else:
        refusal(resolve_duration, vector["value"])


@pytest.mark.parametrize(
    "text",
    [
        " 5m",
        "5m ",
        "1h\t30m",
        "5 m",
        "PT1,5S",
        "P1W2D",
        "P1WT1H",
        ".5s",
        "PT.5S",
        "1.s",
        "--5m",
        "1S",
        "5M",
        "1y",
        "1h30",
        "0x10s",
        "1s1ms1s",
        "ms5",
        "PT",
        "P1D T1H",
        "P1.5D1H",
        "١s",
        "５m",
        "1²s",
        "1s\n",
        "\ufeff1s",
        "1" * 65 + "s",
        "9" * 5000 + "s",
        "0." + "0" * 5000 + "1s",
        "1h" * 100_000,
        "9" * 60 + "w",
        "now",
        "null",
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_refused_text(text):
    refusal(resolve_duration, text)


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("1w1d1h1m1s1ms", 694_861_001),
        ("1.5h30m", 7_200_000),
        ("1m1ms", 60_001),
        ("PT1.005S", 1005),
        ("P1.5W", 907_200_000),
        ("P1.5D", 129_600_000),
        ("P0.5DT", None),
        ("P1DT1.5H", 91_800_000),
        ("PT1.5H1M", None),
        ("0." + "0" * 40 + "1s", 0),
        ({"ms": 5}, 5),
        ({"seconds": 1.005}, 1005),
        ({"seconds": 0.1 + 0.2}, 300),
        ({"seconds": Decimal("1.0005")}, 1001),
        ({"days": 0.018}, 1_555_200),
        ({"seconds": 5e-324}, 0),
        ({"hours": 0, "ms": 0}, 0),
        ({"seconds": -0.0}, 0),
    ],
)
def test_more_durations(value, ms):
    if ms is None:
        refusal(resolve_duration, value)
    else:
        assert resolve_duration(value) == ms


@pytest.mark.parametrize(
    "value",
    [
        {"ms": 1, "milliseconds": 1},
        {1: 5},
        {"minutes": "5"},
        {"seconds": INF},
        {"seconds": -0.5},
        {"seconds": Decimal("NaN")},
        {"seconds": Decimal("sNaN")},
        {"seconds": Decimal("-Infinity")},
        {"seconds": Decimal("1e999999999")},
        {"seconds": Decimal("1e-999999999")},
        {"seconds": Fraction(1, 2)},
        {"seconds": 1.7e308},
        {"seconds": 1 << 10_000_000},
        {"Minutes": 5},
        {"seconds": [1]},
        {"seconds": 1j},
        None,
        1.5,
        0.0,
        False,
        b"5m",
        (5, "m"),
        {5},
        object(),
        Decimal(5),
        date(2030, 1, 1),
        EPOCH,
    ],
    ids=lambda value: ascii(type(value).__name__),
)
def test_refused_durations(value):
    error = refusal(resolve_duration, value, field="delay")
    assert error.field == "delay"
    assert len(str(error)) < 500


def test_a_refusal_says_what_would_be_right():
    assert 'want a unit, as in "90s"' in str(refusal(resolve_duration, "90"))
    assert "0 or more" in str(refusal(resolve_duration, -5))
    assert "0 or more" in str(refusal(resolve_duration, "-5m"))
    assert "0 or more" in str(refusal(resolve_duration, timedelta(microseconds=-1)))
    assert "999,999,999 days" in str(refusal(resolve_duration, 10**30))
    assert "at most 64 characters" in str(refusal(resolve_duration, "9" * 10_000 + "s"))
    assert "last part" in str(refusal(resolve_duration, "P1.5DT1H"))
    assert "not both" in str(refusal(resolve_duration, {"ms": 1, "milliseconds": 1}))


def test_the_longest_duration():
    assert resolve_duration(MAX_DURATION_MS) == MAX_DURATION_MS == 86_399_999_999_999_999
    assert resolve_duration(timedelta.max) == MAX_DURATION_MS
    assert resolve_duration("999999999d23h59m59s999ms") == MAX_DURATION_MS
    assert resolve_duration({"days": 999_999_999, "seconds": 86_399.999}) == MAX_DURATION_MS
    for longer in (MAX_DURATION_MS + 1, "1000000000d", {"days": 1_000_000_000}, "999999999d24h"):
        refusal(resolve_duration, longer)


def test_halves_of_a_millisecond_are_rounded_up():
    for value in ("0.5ms", "0.0005s", timedelta(microseconds=500), {"ms": 0.5}, {"ms": Decimal("0.5")}):
        assert resolve_duration(value) == 1
    for value in ("0.4999ms", timedelta(microseconds=499), {"ms": 0.4999}):
        assert resolve_duration(value) == 0
    assert resolve_duration("1.5ms") == resolve_duration("2.4ms") == 2


def test_subclasses_are_read_as_their_base():
    class Wait(IntEnum):
        SHORT = 5

    class Words(StrEnum):
        SHORT = "5ms"

    class Delta(timedelta):
        pass

    for value in (Wait.SHORT, Words.SHORT, Delta(milliseconds=5)):
        got = resolve_duration(value)
        assert got == 5
        assert type(got) is int
    assert type(resolve_instant(Wait.SHORT)) is int


UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


@given(st.dictionaries(st.sampled_from(sorted(UNITS)), st.integers(0, 10_000), min_size=1))
def test_every_spelling_of_a_duration_is_the_same(parts):
    ms = sum(UNITS[unit] * number for unit, number in parts.items())
    text = "".join(f"{parts[unit]}{unit}" for unit in UNITS if unit in parts)
    names = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
    mapping = {names[unit]: number for unit, number in parts.items()}
    assert resolve_duration(text) == ms
    assert resolve_duration(mapping) == ms
    assert resolve_duration(timedelta(**mapping)) == ms
    assert resolve_duration(ms) == ms
    if not {"w", "ms"} & parts.keys():
        date_part, time_part = (
            "".join(f"{parts[u]}{u.upper()}" for u in units if u in parts) for units in ("d", "hms")
        )
        assert resolve_duration("P" + date_part + (f"T{time_part}" if time_part else "")) == ms


@given(st.integers(0, 10**6), st.text("0123456789", min_size=1, max_size=12), st.sampled_from(sorted(UNITS)))
def test_fractions_are_exact_and_rounded_to_the_nearest(whole, digits, unit):
    exact = Fraction(f"{whole}.{digits}") * UNITS[unit]
    got = resolve_duration(f"{whole}.{digits}{unit}")
    assert abs(got - exact) <= Fraction(1, 2)
    assert got >= exact or got + Fraction(1, 2) > exact


@given(st.timedeltas(min_value=timedelta(0)), st.timedeltas(min_value=timedelta(0)))
def test_durations_keep_their_order(one, other):
    shorter, longer = sorted((one, other))
    assert resolve_duration(shorter) <= resolve_duration(longer)


@given(
    st.one_of(
        st.text(max_size=80), st.text("0123456789.wdhmsPTDHMS-+e", max_size=20), st.floats(), st.binary()
    )
    | st.dictionaries(
        st.sampled_from(["hours", "ms", "x"]), st.floats() | st.integers() | st.decimals() | st.none()
    )
)
def test_anything_is_a_duration_or_refused(value):
    for resolve in (resolve_duration, resolve_instant):
        try:
            got = resolve(value)
        except InvalidSchedule:
            continue
        assert 0 <= got <= MAX_DURATION_MS


# ------------------------------------------------------------------------------------------------- instants


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (MAX_INSTANT_MS, MAX_INSTANT_MS),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00+01:00", 0),
        ("2030-01-31T09:00:00+01:00", 1_896_076_800_000),
        ("2030-01-31 08:00:00Z", 1_896_076_800_000),
        ("2030-01-31T08:00Z", 1_896_076_800_000),
        ("2030-01-31T08:00:00-00:00", 1_896_076_800_000),
        ("2030-01-31T08:00:00.5Z", 1_896_076_800_500),
        ("2030-01-31T08:00:00.000500Z", 1_896_076_800_001),
        ("2030-01-31T08:00:00.0000000000001Z", 1_896_076_800_001),
        ("2030-01-31T08:00:00.0010000000000Z", 1_896_076_800_001),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000),
        ("9999-12-31T23:59:59.999Z", MAX_INSTANT_MS),
        (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), MAX_INSTANT_MS),
        (datetime(2030, 1, 31, 9, tzinfo=ZoneInfo("Europe/Paris")), 1_896_076_800_000),
        (datetime(2030, 1, 31, 8, 0, 0, 500, tzinfo=UTC), 1_896_076_800_001),
        (datetime(2025, 10, 26, 2, 30, tzinfo=ZoneInfo("Europe/Paris")), 1_761_438_600_000),
        (datetime(2025, 10, 26, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris")), 1_761_442_200_000),
    ],
    ids=str,
)
def test_instants(value, ms):
    assert resolve_instant(value) == ms


class Broken(tzinfo):
    """A zone that cannot tell."""

    def utcoffset(self, when):
        raise OSError("no zone file")

    tzname = dst = utcoffset


@pytest.mark.parametrize(
    "value",
    [
        -1,
        MAX_INSTANT_MS + 1,
        10**400,
        True,
        0.0,
        1e12,
        NAN,
        None,
        date(2030, 1, 1),
        timedelta(1),
        b"2030",
        {},
        [],
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2030, 1, 1),
        datetime.min,
        datetime.max,
        datetime(9999, 12, 31, 23, 59, 59, 999_001, tzinfo=UTC),
        datetime(2030, 1, 1, tzinfo=Broken()),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=23, minutes=59))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=23, minutes=59))),
        "",
        "now",
        "1893456000000",
        "2030",
        "2030-01-01",
        "2030-01-01T00:00:00",
        "2030-01-01T00Z",
        "20300101T000000Z",
        "2030-W01-1T00:00:00Z",
        "2030-001T00:00:00Z",
        "2030-01-01T00:00:00+0100",
        "2030-01-01T00:00:00+01",
        "2030-01-01T00:00:00+01:00:30",
        "2030-01-01T00:00:00,5Z",
        "2030-01-01T00:00:00.Z",
        "2030-01-01t00:00:00z",
        " 2030-01-01T00:00:00Z",
        "2030-01-01T00:00:00Z\n",
        "2030-01-01T00:00:00 Z",
        "2030-1-1T00:00:00Z",
        "2030-02-30T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "2030-13-01T00:00:00Z",
        "2030-00-01T00:00:00Z",
        "2030-01-01T24:00:00Z",
        "2030-01-01T23:60:00Z",
        "2016-12-31T23:59:60Z",
        "2030-01-01T00:00:00+24:00",
        "2030-01-01T00:00:00+00:60",
        "0000-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "-2030-01-01T00:00:00Z",
        "1969-12-31T23:59:59.9999Z",
        "1970-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59.9991Z",
        "9999-12-31T23:59:59-00:01",
        "２０３０-01-01T00:00:00Z",
        "2030-01-01T00:00:00−01:00",
        "2030-01-01T00:00:00." + "0" * 100 + "Z",
        "2030-01-01T00:00:00Z[Europe/Paris]",
        "2030-01-01T00:00:00\x00Z",
    ],
    ids=lambda value: ascii(value)[:50],
)
def test_refused_instants(value):
    error = refusal(resolve_instant, value, field="until")
    assert error.field == "until"
    assert len(str(error)) < 500


def test_a_refused_instant_says_what_would_be_right():
    assert "aware datetime" in str(refusal(resolve_instant, datetime(2030, 1, 1)))
    assert '"2030-01-01T00:00:00Z" for UTC' in str(refusal(resolve_instant, "2030-01-01T00:00:00"))
    assert "1970" in str(refusal(resolve_instant, -1))
    assert "9999" in str(refusal(resolve_instant, MAX_INSTANT_MS + 1))
    assert "OSError" in str(refusal(resolve_instant, datetime(2030, 1, 1, tzinfo=Broken())))
    assert "a date that exists" in str(refusal(resolve_instant, "2030-02-30T00:00:00Z"))


OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(1970, 1, 3), datetime(9999, 12, 29), timezones=OFFSETS)


@given(MOMENTS)
def test_an_instant_is_never_before_the_true_one_and_less_than_a_millisecond_after(moment):
    ms = resolve_instant(moment)
    assert timedelta(0) <= EPOCH + timedelta(milliseconds=ms) - moment < timedelta(milliseconds=1)
    assert resolve_instant(moment.isoformat()) == ms
    assert resolve_instant(str(moment)) == ms


@given(MOMENTS, st.text("0123456789", min_size=1, max_size=30))
def test_every_digit_of_a_fraction_counts(moment, digits):
    whole = resolve_instant(moment.replace(microsecond=0))
    text = moment.replace(tzinfo=None, microsecond=0).isoformat() + f".{digits}" + moment.isoformat()[-6:]
    late = resolve_instant(text) - (whole + Fraction(f"0.{digits}") * 1000)
    assert 0 <= late < 1


@given(MOMENTS, MOMENTS)
def test_instants_keep_their_order(one, other):
    earlier, later = sorted((one, other))
    assert resolve_instant(earlier) <= resolve_instant(later)


@given(st.datetimes(datetime(1970, 1, 3), datetime(2100, 1, 1)), st.booleans())
def test_a_zone_with_summer_time_is_read_as_datetime_reads_it(naive, fold):
    moment = naive.replace(tzinfo=ZoneInfo("America/New_York"), fold=int(fold), microsecond=0)
    assert resolve_instant(moment) == int(moment.timestamp()) * 1000


@pytest.mark.parametrize("field", ["at", "start", "until"])
def test_B18_naive_datetimes_are_rejected_whatever_the_zone_of_the_process(field):
    extra = {} if field == "at" else {"every": 1000}
    for naive in (datetime(2030, 1, 1), "2030-01-01T00:00:00"):
        error = refusal(resolve_timing, **extra, **{field: naive})
        assert error.field == field


def test_B75_negative_delays_and_instants_before_1970_are_rejected_and_zero_is_fine():
    for negative in (-5, "-5ms", timedelta(milliseconds=-5), {"ms": -5}):
        assert refusal(resolve_timing, delay=negative).field == "delay"
        assert refusal(resolve_due, delay=negative, now_ms=0).field == "delay"
    for early in ("1969-12-31T23:59:59Z", -1000, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)):
        assert refusal(resolve_timing, at=early).field == "at"
    assert resolve_timing(delay=0) == Timing("once", delay_ms=0)
    assert resolve_due(delay=0, now_ms=7) == 7


@pytest.mark.parametrize("value", [NAN, INF, -INF, 1e999, True, "nan", "inf", "1e999", "true", "Infinity"])
@pytest.mark.parametrize("field", ["delay", "every", "initial_delay", "at", "start", "until", "limit"])
def test_B76_what_is_no_number_is_rejected_everywhere(field, value):
    extra = {} if field in ("delay", "every", "at") else {"every": 1000}
    assert refusal(resolve_timing, **extra, **{field: value}).field == field
    if field == "delay":
        refusal(resolve_timing, delay={"seconds": value})


# ------------------------------------------------------------------------------------------- due and timing


def test_due():
    assert resolve_due(at="1970-01-01T00:00:01Z") == 1000
    assert resolve_due(delay="1h30m", now_ms=1000) == 5_401_000
    assert resolve_due(delay=0, now_ms=MAX_INSTANT_MS) == MAX_INSTANT_MS
    assert refusal(resolve_due).field == "timing"
    assert refusal(resolve_due, at=1, delay=1, now_ms=0).field == "timing"
    assert refusal(resolve_due, delay=1, now_ms=MAX_INSTANT_MS).field == "delay"
    assert refusal(resolve_due, delay=MAX_DURATION_MS, now_ms=0).field == "delay"
    for now in (None, True, 1.5, -1, MAX_INSTANT_MS + 1, "0"):
        assert refusal(resolve_due, delay=1, now_ms=now).field == "now_ms"


def test_timing_once():
    assert resolve_timing(at=5) == Timing("once", at_ms=5)
    assert resolve_timing(at="1970-01-01T00:00:01Z") == Timing("once", at_ms=1000)
    assert resolve_timing(delay="5s") == Timing("once", delay_ms=5000)
    assert refusal(resolve_timing, delay=MAX_INSTANT_MS + 1).field == "delay"


def test_timing_every():
    assert resolve_timing(every="5s") == Timing("every", every_ms=5000)
    assert resolve_timing(every=1, initial_delay=0) == Timing("every", every_ms=1, initial_delay_ms=0)
    whole = resolve_timing(every=1, start=5, until=5, limit=1)
    assert whole == Timing("every", every_ms=1, start_ms=5, until_ms=5, limit=1)
    assert resolve_timing(every=1, limit=MAX_LIMIT).limit == MAX_LIMIT


@pytest.mark.parametrize(
    ("field", "given_"),
    [
        ("timing", {}),
        ("timing", {"at": 1, "delay": 1}),
        ("timing", {"at": 1, "every": 1}),
        ("timing", {"delay": 0, "every": 1, "at": 0}),
        ("timing", {"until": 5}),
        ("every", {"every": 0}),
        ("every", {"every": "0s"}),
        ("every", {"every": "0.4ms"}),
        ("every", {"every": "0.9999ms"}),
        ("every", {"every": timedelta(microseconds=999)}),
        ("every", {"every": {"ms": 0.5}}),
        ("every", {"every": -1}),
        ("every", {"every": MAX_INSTANT_MS + 1}),
        ("initial_delay", {"every": 1, "initial_delay": -1}),
        ("initial_delay", {"every": 1, "initial_delay": 0, "start": 0}),
        ("initial_delay", {"at": 1, "initial_delay": 0}),
        ("start", {"delay": 1, "start": 0}),
        ("until", {"at": 1, "until": 0}),
        ("limit", {"delay": 1, "limit": 1}),
        ("until", {"every": 1, "start": 5, "until": 4}),
        ("limit", {"every": 1, "limit": 0}),
        ("limit", {"every": 1, "limit": -1}),
        ("limit", {"every": 1, "limit": 1.0}),
        ("limit", {"every": 1, "limit": "3"}),
        ("limit", {"every": 1, "limit": MAX_LIMIT + 1}),
    ],
    ids=str,
)
def test_refused_timings(field, given_):
    assert refusal(resolve_timing, **given_).field == field


def test_a_refused_timing_says_what_came_and_what_would_be_right():
    error = refusal(resolve_timing, at=1, delay=2)
    assert str(error) == "timing: got 'at and delay'; want exactly one of at=, delay=, every=, cron="
    assert "only with recurring schedules (here: at=)" in str(refusal(resolve_timing, at=1, limit=2))


def test_a_timing_is_an_immutable_value():
    timing = resolve_timing(at=5)
    with pytest.raises(FrozenInstanceError):
        timing.at_ms = 6  # type: ignore[misc]
    assert timing == pickle.loads(pickle.dumps(timing))
    assert hash(timing) == hash(Timing("once", at_ms=5))
    assert repr(timing) == repr(Timing("once", at_ms=5))


# ------------------------------------------------------------------------------------------------ intervals


@pytest.mark.parametrize(
    ("at", "every", "now", "then", "missed"),
    [
        (100, 10, 100, 110, 0),
        (100, 10, 109, 110, 0),
        (100, 10, 110, 120, 1),
        (100, 10, 135, 140, 3),
        (100, 10, 50, 110, 0),
        (0, 1, MAX_INSTANT_MS, MAX_INSTANT_MS + 1, MAX_INSTANT_MS),
    ],
)
def test_interval_after(at, every, now, then, missed):
    assert interval_after(at, every, now) == (then, missed)


@given(st.integers(0, MAX_INSTANT_MS), st.integers(1, 10**12), st.integers(0, MAX_INSTANT_MS))
def test_the_next_slot_is_the_first_on_the_grid_after_both(at, every, now):
    then, missed = interval_after(at, every, now)
    assert (then - at) % every == 0
    assert then > max(at, now)
    assert then - every <= max(at, now)
    assert missed == len(range(at + every, now + 1, every))
