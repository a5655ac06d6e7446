"""When to look, how much to take, who comes first: pure, so without a clock and without Redis."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timerq.dispatcher.decide import (
    ASK_LATER_US,
    BACKOFF_MAX_S,
    FAR_LOOK_US,
    FAST_CALL_US,
    LATE_WAKE_US,
    MIN_BATCH,
    NEAR_LOOK_US,
    RANK_STEP_MS,
    SLOW_CALL_US,
    Clocks,
    Watch,
    adapt_batch,
    backoff_s,
    rank,
)

NOW = 1_750_000_000_000_000
names = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=12, unique=True)


# ---------------------------------------------------------------------------------------------------------- rank


@given(names, st.integers(0, 1023))
def test_everybody_sees_one_order(alive: list[str], partition: int) -> None:
    places = {name: rank(alive, name, partition) for name in alive}
    assert sorted(places.values()) == list(range(len(alive)))
    assert places == {name: rank(list(reversed(alive)), name, partition) for name in alive}


@given(names, st.integers(0, 1023), st.data())
def test_one_that_goes_moves_only_those_behind_it(
    alive: list[str], partition: int, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(alive))
    rest = [name for name in alive if name != gone]
    place = rank(alive, gone, partition)
    for name in rest:
        before = rank(alive, name, partition)
        assert rank(rest, name, partition) == before - (before > place)


def test_one_that_is_not_known_comes_last() -> None:
    assert rank([], "a", 0) == 0
    assert rank(["b", "c"], "a", 0) == 2


def test_the_partitions_are_shared() -> None:
    alive = ["a", "b", "c"]
    led = [min(alive, key=lambda name: rank(alive, name, partition)) for partition in range(300)]
    assert all(60 < led.count(name) < 140 for name in alive)


# ---------------------------------------------------------------------------------------------------------- clocks


def test_it_asks_so_early_that_the_script_runs_when_it_is_due() -> None:
    clocks = Clocks()
    clocks.learn(NOW, 1000, 1500)
    # the way there took no time that could be told from the clocks' difference; a margin keeps it from being early
    assert clocks.ask_at(NOW) == 1000 + ASK_LATER_US
    assert clocks.ask_at(NOW + 5_000_000) == 5_001_000 + ASK_LATER_US


def test_a_late_wake_up_is_made_up_for() -> None:
    clocks = Clocks()
    clocks.learn(NOW, 0, 300)
    for n in range(1, 500):  # each sleep ends 60 µs late
        planned = n * 20_000
        clocks.learn(NOW + planned + 60, planned + 60, planned + 360, planned)
    assert clocks.ask_at(NOW + 20_000_000) == 20_000_000 - 60 + ASK_LATER_US


def test_one_that_came_too_early_makes_the_next_one_later_at_once() -> None:
    clocks = Clocks()
    clocks.learn(NOW, 0, 300)
    for _ in range(50):
        clocks.learn(NOW + 20_150, 20_000, 20_500, 20_000)
    planned = clocks.ask_at(NOW + 40_000)
    clocks.learn(NOW + planned + 1, planned, planned + 300, planned)
    assert clocks.ask_at(NOW + 60_000) == 60_000 - 1 + ASK_LATER_US


def test_a_slow_answer_does_not_spoil_what_a_quick_one_said() -> None:
    clocks = Clocks()
    clocks.learn(NOW, 1000, 1200)
    # this process stood still for three seconds before it read the answer, or the server before it ran the script
    clocks.learn(NOW + 1000, 2000, 3_002_000)
    clocks.learn(NOW + 6_000_000, 4_001_000, 6_001_100)
    assert abs(clocks.ask_at(NOW) - 1000 - ASK_LATER_US) <= 3


def test_a_distant_server_is_no_slow_one() -> None:
    clocks = Clocks()
    for n in range(50):
        clocks.learn(NOW + n * 1_000_000 + 15_000, n * 1_000_000, n * 1_000_000 + 30_000)
        assert clocks.quickest_us == 30_000
        assert abs(clocks.ask_at(NOW) + 15_000) <= 50 + ASK_LATER_US


def test_the_quickest_way_is_forgotten_when_it_is_there_no_more() -> None:
    clocks = Clocks()
    clocks.learn(NOW, 0, 200)
    for n in range(1, 200):
        clocks.learn(NOW + n * 1_000_000, n * 1_000_000, n * 1_000_000 + 30_000)
    assert clocks.quickest_us == 30_000


def test_a_clock_that_stepped_is_believed_at_once_however_slow_the_answer() -> None:
    clocks = Clocks()
    clocks.learn(NOW, 1000, 1200)
    for step in (60_000_000, -60_000_000):
        clocks.learn(NOW + step, 2000, 2000 + SLOW_CALL_US * 2)
        assert abs(clocks.ask_at(NOW + step) - 2000) <= SLOW_CALL_US * 2 + ASK_LATER_US


@given(
    offset=st.integers(-(10**15), 10**15),
    calls=st.lists(
        st.tuples(st.integers(0, 10**7), st.none() | st.integers(0, 10**6), *[st.integers(0, 10**7)] * 2),
        min_size=1,
    ),
)
def test_it_is_never_wrong_by_more_than_the_last_answer_allows(
    offset: int, calls: list[tuple[int, int | None, int, int]]
) -> None:
    clocks, now = Clocks(), 0
    for pause, overslept, there, back in calls:
        planned = now + pause
        sent = planned + (overslept or 0)
        server = sent + there + offset
        now = sent + there + back
        clocks.learn(server, sent, now, None if overslept is None else planned)
        late = LATE_WAKE_US if overslept is None else overslept
        assert -back <= clocks.ahead_us - offset <= there + late


# ---------------------------------------------------------------------------------------------------------- watch


def at(watch: Watch, last_look_us: int = 0) -> int:
    """When it looks next, on a monotonic clock that shows the server's time less NOW."""
    return watch.next_look_us(Clocks(NOW + ASK_LATER_US), last_look_us)


def test_it_looks_when_the_earliest_is_due() -> None:
    watch = Watch()
    watch.looked(NOW, 400_000, 0)
    assert at(watch) == 400_000
    watch.looked(NOW, 5_000_000, 0)
    assert at(watch, 7) == 7 + NEAR_LOOK_US
    watch.looked(NOW, None, 0)
    assert at(watch, 7) == 7 + NEAR_LOOK_US


@pytest.mark.parametrize("place", range(5))
def test_each_rank_leaves_its_time_to_those_before_it(place: int) -> None:
    watch = Watch(place)
    lag_us = place * RANK_STEP_MS * 1000
    watch.looked(NOW, 300_000 + lag_us, watch.lag_ms)  # the script's wait has the lag in it
    assert watch.head_us == NOW + 300_000
    assert at(watch) == 300_000 + lag_us
    assert watch.woken(NOW + 20_000, NOW)
    assert at(watch) == 20_000 + lag_us
    watch.looked(NOW + 1, None, watch.lag_ms)
    assert at(watch, 7) == 7 + (NEAR_LOOK_US if place < 2 else FAR_LOOK_US)


def test_a_rank_that_changes_while_a_call_is_out() -> None:
    watch = Watch(3)
    lag_ms = watch.lag_ms
    watch.rank = 0
    watch.looked(NOW, 500_000, lag_ms)
    assert at(watch) == 200_000


def test_only_an_earlier_head_wakes() -> None:
    watch = Watch()
    assert watch.woken(NOW + 500_000, NOW)
    assert not watch.woken(NOW + 600_000, NOW + 1)
    assert watch.woken(NOW + 400_000, NOW + 2)
    assert at(watch) == 400_000


def test_a_signal_that_overtakes_a_reply_is_not_forgotten() -> None:
    watch = Watch()
    watch.looked(NOW - 5, 900_000, 0)
    # fire ran at NOW, an upsert right behind it; the signal came first, the reply after it
    assert watch.woken(NOW + 20_000, NOW + 50)
    watch.looked(NOW, 900_000, 0)
    assert at(watch) == 20_000
    # the reply that knows about it settles it
    watch.looked(NOW + 100, 800_000, 0)
    assert at(watch) == 800_100
    watch.looked(NOW + 200, None, 0)
    assert watch.head_us is None


def test_a_signal_in_the_same_microsecond_counts_as_the_later_one() -> None:
    watch = Watch()
    watch.woken(NOW + 20_000, NOW)
    watch.looked(NOW, None, 0)
    assert at(watch) == 20_000


# ---------------------------------------------------------------------------------------------------------- batch


def test_a_slow_call_halves_and_a_fast_full_one_doubles() -> None:
    assert adapt_batch(200, 200, SLOW_CALL_US + 1, 200) == 100
    assert adapt_batch(100, 100, FAST_CALL_US - 1, 200) == 200
    assert adapt_batch(100, 99, FAST_CALL_US - 1, 200) == 100
    assert adapt_batch(100, 100, FAST_CALL_US, 200) == 100


@given(st.integers(1, 200), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 10**6))))
def test_it_stays_within_its_bounds(largest: int, calls: list[tuple[int, int]]) -> None:
    batch = largest
    for taken, took_us in calls:
        batch = adapt_batch(batch, min(taken, batch), took_us, largest)
        assert min(MIN_BATCH, largest) <= batch <= largest


# ---------------------------------------------------------------------------------------------------------- back-off


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_the_back_off_grows_is_capped_and_jittered(failures: int, luck: float) -> None:
    waits = backoff_s(failures, luck)
    assert 0.05 <= waits <= BACKOFF_MAX_S
    assert backoff_s(failures, 0) <= backoff_s(failures + 1, 0)
    assert backoff_s(failures, 0) / 2 <= waits <= backoff_s(failures, 0)
