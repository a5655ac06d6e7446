"""Occurrences: grids, jitter and windows over slots."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timerq.errors import InvalidSchedule
from timerq.model import Rule, Timing
from timerq.timing import MAX_INSTANT_MS
from timerq.timing.calendar import calendar_of
from timerq.timing.occurrences import Grid, Occurrences

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def cron(text: str = "0 9 * * *", *, timezone: str = "UTC", jitter_ms: int = 0, **window) -> Timing:
    return Timing("cron", rule=Rule((text,), timezone=timezone, jitter_ms=jitter_ms), **window)


def every(every_ms: int, anchor_ms: int | None = 0, *, jitter_ms: int = 0, **window) -> Timing:
    rule = Rule(anchor_ms=anchor_ms, jitter_ms=jitter_ms)
    return Timing("every", every_ms=every_ms, rule=rule, **window)


def nexts(occurrences, after_ms: int, n: int) -> list[int]:
    found: list[int] = []
    while len(found) < n and (at_ms := occurrences.next_ms(found[-1] if found else after_ms)) is not None:
        found.append(at_ms)
    return found


# ------------------------------------------------------------------------------------------------ grids


@pytest.mark.parametrize(
    ("every_ms", "anchor_ms", "after_ms", "due"),
    [
        (10, 0, 0, [10, 20, 30]),
        (10, 0, -1, [0, 10, 20]),
        (10, 3, 3, [13, 23, 33]),
        (10, 3, 2, [3, 13, 23]),
        (10, 1003, 2, [3, 13, 23]),  # an anchor is an instant of the grid, not where it begins
        (10, 0, -(10**15), [0, 10, 20]),
        (1, 0, 5, [6, 7, 8]),
        (HOUR_MS, 0, ms("2026-01-01T10:17:23.456Z"), [ms("2026-01-01T11:00:00Z")]),
        (10, 0, MAX_INSTANT_MS - 9, []),
        (10**15, 5, 5, []),
    ],
)
def test_a_grid(every_ms, anchor_ms, after_ms, due):
    assert nexts(Grid(every_ms, anchor_ms), after_ms, len(due) or 1) == due


@given(
    st.integers(1, 50), st.integers(0, 200), st.integers(-20, 300), st.integers(-20, 300), st.integers(0, 1)
)
def test_a_grid_is_the_numbers_that_fit(every_ms, anchor_ms, a, b, at_the_end):
    shift = (MAX_INSTANT_MS - 150) * at_the_end
    a, b = a + shift, b + shift
    grid = Grid(every_ms, anchor_ms)
    fits = [
        at_ms
        for at_ms in range(shift - 100, shift + 400)
        if (at_ms - anchor_ms) % every_ms == 0 and 0 <= at_ms <= MAX_INSTANT_MS
    ]
    assert grid.next_ms(a) == min((at_ms for at_ms in fits if at_ms > a), default=None)
    assert grid.prev_ms(a) == max((at_ms for at_ms in fits if at_ms <= a), default=None)
    assert grid.count(a, b) == sum(a < at_ms <= b for at_ms in fits)


@pytest.mark.parametrize(
    ("anchor_ms", "start_ms", "first_ms"),
    [(None, None, 1000), (None, 730, 730), (250, 730, 1250), (250, None, 250)],
)
def test_the_grid_of_an_interval_goes_through_its_anchor_else_its_start_else_the_clock(
    anchor_ms, start_ms, first_ms
):
    assert Occurrences(every(1000, anchor_ms, start_ms=start_ms)).next_ms(0) == first_ms
    if anchor_ms is None:
        plain = Timing("every", every_ms=1000, start_ms=start_ms)
        assert Occurrences(plain).next_ms(0) == first_ms


def test_a_day_of_the_clock_is_a_utc_day():
    found = Occurrences(every(DAY_MS)).next_ms(ms("2026-06-30T15:00:00Z"))
    assert found == ms("2026-07-01T00:00:00Z")


# ------------------------------------------------------------------------------------------------ windows


def test_slots_before_the_start_and_occurrences_after_the_end_are_none():
    found = Occurrences(cron(start_ms=ms("2026-01-02T09:00:00Z"), until_ms=ms("2026-01-04T09:00:00Z")))
    due = [ms(f"2026-01-0{day}T09:00:00Z") for day in (2, 3, 4)]
    assert nexts(found, 0, 9) == due
    assert found.next_ms(0) == due[0]
    assert found.next_ms(due[0]) == due[1]
    assert found.next_ms(due[2]) is None
    assert found.prev_ms(due[0] - 1) is None
    assert found.prev_ms(due[0]) == due[0]
    assert found.prev_ms(MAX_INSTANT_MS) == due[2]
    assert found.count(0, MAX_INSTANT_MS) == 3
    assert found.count(due[0], due[1]) == 1
    assert found.count(0, due[0] - 1) == 0
    assert found.count(due[2], MAX_INSTANT_MS) == 0


def test_a_window_between_two_slots_is_empty():
    found = Occurrences(cron(start_ms=ms("2026-01-02T09:00:01Z"), until_ms=ms("2026-01-03T08:59:59Z")))
    assert (found.next_ms(0), found.prev_ms(MAX_INSTANT_MS), found.count(0, MAX_INSTANT_MS)) == (
        None,
        None,
        0,
    )


# ------------------------------------------------------------------------------------------------ jitter


TIMINGS = st.builds(
    lambda text, zone, jitter_ms: cron(text, timezone=zone, jitter_ms=jitter_ms),
    st.sampled_from(["*/5 * * * *", "0 9 * * 1-5", "30 2 * * *", "0 0 1 * *", "*/7 * * * * *"]),
    st.sampled_from(["UTC", "Europe/Paris", "Australia/Lord_Howe"]),
    st.sampled_from([0, 1, 999, 30_000, 240_000, 10 * DAY_MS]),
) | st.builds(
    lambda every_ms, anchor_ms, jitter_ms: every(every_ms, anchor_ms, jitter_ms=jitter_ms),
    st.sampled_from([1, 2, 1000, 5000, HOUR_MS]),
    st.integers(0, 10**13),
    st.sampled_from([0, 1, 4999, 10**9]),
)
INSTANTS = st.integers(ms("1990-01-01T00:00:00Z"), ms("2060-01-01T00:00:00Z"))


@given(TIMINGS, st.binary(max_size=40), INSTANTS)
def test_jitter_keeps_each_occurrence_between_its_slot_and_the_next(timing, seed, at_ms):
    found = Occurrences(timing, seed)
    due = nexts(found, at_ms, 12)
    for here_ms in due:
        slot_ms = found.slot_ms(here_ms)
        assert slot_ms == found.slots.prev_ms(here_ms)
        assert slot_ms <= here_ms <= slot_ms + timing.rule.jitter_ms
        assert here_ms < found.slots.next_ms(slot_ms)
    slots = [found.slot_ms(here_ms) for here_ms in due]
    assert slots[1:] == nexts(found.slots, slots[0], len(due) - 1)
    assert all(a < b for a, b in pairwise([at_ms, *due]))


@given(TIMINGS, st.binary(max_size=40), INSTANTS, st.integers(0, 3 * DAY_MS))
@example(every(1000, 0, jitter_ms=999), b"x", 999, 1)
def test_next_prev_and_count_agree_under_jitter(timing, seed, at_ms, later_ms):
    found = Occurrences(timing, seed)
    due = nexts(found, at_ms, 12)
    assert [found.prev_ms(here_ms) for here_ms in due] == due
    assert [found.prev_ms(here_ms - 1) for here_ms in due[1:]] == due[:-1]
    assert [found.count(at_ms, here_ms) for here_ms in due] == list(range(1, 13))
    middle_ms, end_ms = at_ms + later_ms, at_ms + 2 * later_ms
    assert found.count(at_ms, middle_ms) + found.count(middle_ms, end_ms) == found.count(at_ms, end_ms)
    before_ms = found.prev_ms(due[0] - 1)
    assert before_ms is None or before_ms <= at_ms


@given(TIMINGS, INSTANTS, st.integers(2, 9), st.integers(2, 9), st.integers(-1, 1), st.integers(-1, 1))
def test_a_window_looks_at_the_slot_where_it_begins_and_at_the_occurrence_where_it_ends(
    timing, at_ms, first, last, before_ms, after_ms
):
    whole = Occurrences(timing, b"id")
    due = nexts(whole, at_ms, 12)
    start_ms, until_ms = whole.slot_ms(due[first]) + before_ms, due[last] + after_ms
    cut = Occurrences(replace(timing, start_ms=start_ms, until_ms=until_ms), b"id")
    kept = [here_ms for here_ms in due if whole.slot_ms(here_ms) >= start_ms and here_ms <= until_ms]
    assert nexts(cut, 0, 12) == kept
    assert cut.count(0, MAX_INSTANT_MS) == len(kept)
    assert cut.prev_ms(MAX_INSTANT_MS) == (kept[-1] if kept else None)
    for at in (start_ms - 1, start_ms, until_ms, *kept):
        assert cut.next_ms(at) == next((here_ms for here_ms in kept if here_ms > at), None)
        assert cut.prev_ms(at) == next((here_ms for here_ms in reversed(kept) if here_ms <= at), None)
        assert cut.count(0, at) == sum(here_ms <= at for here_ms in kept)


def test_jitter_is_the_same_at_every_look_and_differs_between_schedules():
    timing = cron("*/5 * * * *", jitter_ms=60_000)
    base_ms = ms("2026-01-01T00:00:00Z")
    mine = nexts(Occurrences(timing, b"default\0mine\0"), base_ms, 50)
    assert mine == nexts(Occurrences(timing, b"default\0mine\0"), base_ms, 50)
    assert mine[20:] == nexts(Occurrences(timing, b"default\0mine\0"), mine[19], 30)
    assert mine != nexts(Occurrences(timing, b"default\0yours\0"), base_ms, 50)
    put_off = [at_ms % 300_000 for at_ms in mine]
    assert len(set(put_off)) > 40
    assert max(put_off) > 50_000
    assert min(put_off) < 10_000


def test_jitter_reaches_both_of_its_ends():
    put_off = {at_ms % 10 for at_ms in nexts(Occurrences(every(10, jitter_ms=3), b"id"), 0, 200)}
    assert put_off == {0, 1, 2, 3}
    put_off = {at_ms % 10 for at_ms in nexts(Occurrences(every(10, jitter_ms=1000), b"id"), 0, 500)}
    assert put_off == set(range(10))


def test_jitter_ends_with_the_year_9999():
    found = Occurrences(cron("59 23 31 12 *", jitter_ms=10 * DAY_MS), b"id")
    last_ms = found.prev_ms(MAX_INSTANT_MS)
    assert last_ms is not None
    assert all(at_ms <= MAX_INSTANT_MS for at_ms in nexts(found, MAX_INSTANT_MS - 800 * DAY_MS, 5))
    assert found.next_ms(MAX_INSTANT_MS) is None


def test_the_slot_of_a_jittered_occurrence_is_explained():
    found = Occurrences(cron("30 2 * * *", timezone="Europe/Paris", jitter_ms=60_000), b"id")
    moved_ms = found.next_ms(ms("2026-03-28T12:00:00Z"))
    assert moved_ms > ms("2026-03-29T01:00:00Z")
    assert found.explain(moved_ms) == "shifted"
    assert found.explain(found.next_ms(moved_ms)) is None
    assert Occurrences(every(1000)).explain(5000) is None


# ------------------------------------------------------------------------------------------------ gaps, refusals


@pytest.mark.parametrize(
    ("timing", "gap_ms"),
    [
        (every(5000, 3), 5000),
        (cron("*/5 * * * *"), 300_000),
        (cron("0,50 * * * *"), 600_000),
        (cron("0 9 * * 1-5"), DAY_MS),
        (cron("0 9 * * *", until_ms=ms("2026-01-02T09:00:00Z")), DAY_MS),  # the end changes no period
        (cron("0 0 29 2 *"), 1461 * DAY_MS),
    ],
    ids=lambda value: str(value)[:60],
)
def test_the_shortest_gap(timing, gap_ms):
    assert Occurrences(timing).shortest_gap_ms(ms("2026-01-01T00:00:00Z")) == gap_ms


def test_the_shortest_gap_looks_as_far_as_it_is_told():
    # a quarter of an hour between 23:45 and midnight, once a year
    timing = Timing("cron", rule=Rule(("45 23 31 12 *", "0 0 * * *")))
    assert Occurrences(timing).shortest_gap_ms(ms("2026-12-01T00:00:00Z"), n=8) == DAY_MS
    assert Occurrences(timing).shortest_gap_ms(ms("2026-12-01T00:00:00Z"), n=32) == 900_000


def test_one_slot_has_no_gap():
    assert Occurrences(cron("0 0 1 1 *")).shortest_gap_ms(ms("9998-06-01T00:00:00Z")) is None
    assert Occurrences(cron("0 0 1 1 *")).shortest_gap_ms(MAX_INSTANT_MS) is None
    assert Occurrences(every(1000)).shortest_gap_ms(0, n=1) is None


@pytest.mark.parametrize("timing", [Timing("once", at_ms=5), Timing("cron"), Timing("every")], ids=repr)
def test_what_does_not_recur_has_no_occurrences(timing):
    with pytest.raises(ValueError, match="no recurring timing"):
        Occurrences(timing)


def test_a_rule_that_cannot_be_read_is_refused():
    with pytest.raises(InvalidSchedule):
        Occurrences(cron("0 9 * *"))
    with pytest.raises(InvalidSchedule):
        Occurrences(cron(timezone="Mars/Phobos"))


def test_slots_are_the_calendars():
    timing = cron("0 9 * * 1-5", timezone="Europe/Paris")
    assert Occurrences(timing).slots is calendar_of(timing.rule)
