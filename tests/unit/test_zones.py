"""Zones: what is a name and what is none, and that no clock change of any zone is missed."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta
from importlib import resources
from itertools import pairwise
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timerq.errors import InvalidSchedule
from timerq.timing import MAX_INSTANT_MS
from timerq.timing.zones import CORRECTION_S, CYCLE_S, Piece, Zone, zone

CASES = Path(__file__).parents[1] / "cases" / "cron-vectors.json"
INVALID = [vector for vector in json.loads(CASES.read_text())["invalid"] if vector["class"] == "time-zone"]
NAMES = sorted(available_timezones() - {"Factory", "localtime", "posixrules"})
LAST_S = MAX_INSTANT_MS // 1000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def seconds(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


def pieces(zone: Zone, start: int, end: int) -> list[Piece]:
    found: list[Piece] = []
    while start < end:
        found.append(zone.piece(start))
        start = found[-1].end
    return found


def changes(zone: Zone, start: int, end: int) -> list[tuple[int, int, int]]:
    """Each change behind ``start`` and before ``end``: the instant, the offset before and after."""
    found = pieces(zone, start, end)
    assert all(a.end == b.start for a, b in pairwise(found))
    return [(b.start, a.offset, b.offset) for a, b in pairwise(found) if a.offset != b.offset]


def refusal(name, **kwargs) -> str:
    with pytest.raises(InvalidSchedule) as caught:
        zone(name, **kwargs)
    assert "IANA name" in caught.value.want
    return caught.value.want


# ------------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["id"]) for vector in INVALID])
def test_refused_zone_vector(vector):
    refusal(vector["tz"])


def test_all_zone_vectors_are_there():
    assert len(INVALID) == 5


@pytest.mark.parametrize(
    "name",
    ["America/New_Yrok", "Mars/Phobos", "", "America", "../UTC", "/etc/localtime", "A" * 300],
    ids=lambda name: f"B13-{name[:20]}",
)
def test_b13_no_zone(name):
    refusal(name)


def test_b15_an_offset_is_no_zone():
    assert "an offset is no zone" in refusal("+05:30")
    assert "an offset is no zone" in refusal("UTC+3")


@pytest.mark.parametrize(
    "name",
    [
        "Factory",
        "localtime",
        "posixrules",
        "posix/Europe/Paris",
        "right/Europe/Paris",
        "zone.tab",
        "tzdata.zi",
        "leapseconds",
        "europe/paris",
        "utc",
        " UTC",
        "UTC\n",
        "Europe/",
        "/Europe/Paris",
        "Europe//Paris",
        "Europe/./Paris",
        "Europe/../Europe/Paris",
        "Europe\\Paris",
        "Europe/Paris\x00",
        "Еurope/Paris",  # the first letter is Cyrillic
        "CEST",
        "\ud800",
        None,
        0,
        True,
        b"UTC",
        ["UTC"],
        ZoneInfo("UTC"),
    ],
    ids=ascii,
)
def test_refused_name(name):
    refusal(name)


def test_a_refusal_names_the_field():
    with pytest.raises(InvalidSchedule) as caught:
        zone("Mars/Phobos", field="tz")
    assert caught.value.field == "tz"


@pytest.mark.parametrize(
    ("near", "meant"),
    [
        ("America/New_Yrok", "America/New_York"),
        ("europe/paris", "Europe/Paris"),
        ("Europe/Pariss", "Europe/Paris"),
        ("new york", "America/New_York"),
        ("Paris", "Europe/Paris"),
        ("US/pacific", "US/Pacific"),
        ("utc", "UTC"),
        (" Asia/Tokyo ", "Asia/Tokyo"),
        ("Asia/Calcuta", "Asia/Calcutta"),
    ],
)
def test_a_refusal_suggests_what_was_meant(near, meant):
    assert f"did you mean {meant}?" in refusal(near)


@pytest.mark.parametrize("far", ["Mars/Phobos", "qqqqqqqq", "A" * 300, "+05:30", ""])
def test_nothing_is_suggested_for_what_is_near_to_nothing(far):
    assert "did you mean" not in refusal(far)


def test_every_zone_of_the_machine_is_a_zone():
    assert len(NAMES) > 400
    for name in NAMES:
        assert zone(name).name == name
        assert zone(name) is zone(name)


# ------------------------------------------------------------------------------------------------ no change is missed


def tzif(name: str) -> bytes:
    """The file that `zoneinfo` reads for a zone."""
    for folder in TZPATH:
        if (path := Path(folder, name)).is_file():
            return path.read_bytes()
    folder, _, leaf = f"tzdata/zoneinfo/{name}".rpartition("/")
    return resources.files(folder.replace("/", ".")).joinpath(leaf).read_bytes()


def listed(name: str) -> list[tuple[int, int, int]]:
    """The changes of the offset that a zone's file lists: RFC 9636, the block of 64-bit times."""
    data = tzif(name)

    def counts(at: int) -> tuple[int, ...]:
        assert data[at : at + 4] == b"TZif"
        return struct.unpack(">6l", data[at + 20 : at + 44])

    utcs, stds, leaps, times, types, chars = counts(0)
    at = 44 + times * 5 + types * 6 + chars + leaps * 8 + stds + utcs
    utcs, stds, leaps, times, types, chars = counts(at)
    at += 44
    instants = struct.unpack(f">{times}q", data[at : at + 8 * times])
    kinds = data[at + 8 * times : at + 9 * times]
    at += 9 * times
    offsets = [struct.unpack(">l", data[at + 6 * n : at + 6 * n + 4])[0] for n in range(types)]
    found, before = [], offsets[0]
    for instant, kind in zip(instants, kinds, strict=True):
        if offsets[kind] != before:
            found.append((instant, before, offsets[kind]))
        before = offsets[kind]
    return found


def test_every_change_in_the_zones_files_is_found():
    kinds = {tzif(name): name for name in NAMES}  # many names stand for one zone
    assert len(kinds) > 300
    for name in kinds.values():
        wanted = [change for change in listed(name) if change[0] > 0]
        end = wanted[-1][0] + 86_400 if wanted else seconds(2060)
        assert changes(zone(name), 0, end) == wanted, name


def rules() -> dict[str, str]:
    """One zone for each rule that stands in the last line of a file, for the years that the file does not list."""
    lines = {tzif(name).rstrip(b"\n").rpartition(b"\n")[2].decode(): name for name in NAMES}
    return {name: line for line, name in lines.items() if "," in line}


def hourly_changes(name: str, start: int, end: int) -> list[tuple[int, int, int]]:
    """As `changes`, found by asking `zoneinfo` for every quarter of an hour of the days whose ends differ."""
    info = ZoneInfo(name)

    def offset(at: int) -> int:
        moment = (EPOCH + timedelta(seconds=at)).astimezone(info)
        return int(moment.utcoffset().total_seconds())

    found = []
    for day in range(start, end, 86_400):
        if offset(day) != offset(day + 86_400):
            for at in range(day, day + 86_400, 900):
                if offset(at) != offset(at + 900):
                    found.append((at + 900, offset(at), offset(at + 900)))
    return found


@pytest.mark.parametrize("year", [2038, 2044, 2059, 2100, 2399, 2400, 2799, 2800, 5000, 9998])
def test_the_years_after_the_files_follow_the_rules(year):
    names = rules()
    assert len(names) > 20
    start, end = seconds(year), seconds(year + 1)
    found = {name: changes(zone(name), start, end) for name in names}
    assert found == {name: hourly_changes(name, start, end) for name in names}
    assert min(len(each) for each in found.values()) == 2


@given(st.sampled_from(NAMES), st.integers(0, LAST_S - 86_400))
def test_an_offset_is_what_zoneinfo_tells(name, at):
    moment = (EPOCH + timedelta(seconds=at)).astimezone(ZoneInfo(name))
    assert zone(name).offset_at(at) == moment.utcoffset().total_seconds()


@given(st.sampled_from(NAMES), st.integers(0, LAST_S))
def test_pieces_hang_together(name, at):
    here = zone(name).piece(at)
    assert here.start <= at < here.end
    assert here.start + here.offset <= here.head <= here.end + here.offset
    assert here.start + here.offset <= here.tail <= here.end + here.offset
    # Where a cycle of 400 years ends, what lies across is in two pieces that say the same.
    if here.end < LAST_S:
        following = zone(name).piece(here.end)
        assert following.start == here.end or (at > seconds(2799) and following.start < here.end)
    if here.gap is not None:
        assert 0 < here.start + here.offset - here.gap < CORRECTION_S


def test_a_piece_ends_with_its_change():
    # Paris, 2026: the clock skips from 02:00 to 03:00 on 29 March, and repeats 02:00 to 03:00 on 25 October.
    spring = int(datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp())
    autumn = int(datetime(2026, 10, 25, 1, tzinfo=UTC).timestamp())
    paris = zone("Europe/Paris")
    assert paris.piece(spring - 1).end == spring
    assert paris.piece(spring).gap == spring + 3600
    assert paris.piece(spring).offset == 7200
    assert paris.piece(autumn - 1).tail == autumn + 3600
    assert paris.piece(autumn).head == autumn + 7200
    assert paris.piece(autumn).gap is None


def test_what_a_change_repeats_reaches_over_the_ends_of_pieces():
    # Pieces are cut every 2^22 seconds. A repeated hour that is cut so is one all the same.
    cut = 0
    for name in NAMES:
        for at, before, after in listed(name):
            if 0 < at < seconds(2038) and -CORRECTION_S < after - before < 0:
                size = before - after
                first, second = zone(name).piece(at - size), zone(name).piece(at + size - 1)
                if first.end != at or second.start != at:
                    cut += 1
                    assert first.tail <= at - size + before
                    assert second.head > at + size - 1 + after
    assert cut > 0


@pytest.mark.parametrize(
    ("name", "day"), [("Pacific/Apia", "2011-12-30"), ("Pacific/Kwajalein", "1993-08-21")]
)
def test_a_skipped_day_is_a_correction(name, day):
    at = int(datetime.fromisoformat(f"{day}T12:00Z").timestamp())
    change = next(at for at, _, _ in changes(zone(name), at - 3 * 86_400, at + 3 * 86_400))
    assert zone(name).piece(change).offset - zone(name).piece(change - 1).offset == 86_400
    assert zone(name).piece(change).gap is None


@pytest.mark.parametrize(
    ("name", "offset"), [("UTC", 0), ("Etc/UTC", 0), ("Etc/GMT-14", 50_400), ("Etc/GMT+12", -43_200)]
)
def test_a_zone_without_changes_is_one_piece(name, offset):
    assert zone(name).piece(0) is zone(name).piece(LAST_S)
    assert zone(name).piece(0).offset == offset


def test_four_hundred_years_later_everything_is_the_same():
    for name in rules():
        start = seconds(2500)
        shift = 10 * CYCLE_S
        moved = [
            (at + shift, before, after) for at, before, after in changes(zone(name), start, start + 10**9)
        ]
        assert changes(zone(name), start + shift, start + shift + 10**9) == moved
