"""The times of a day as bits: unions and exclusions against plain sets of seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timerq.timing.cron import parse_cron
from timerq.timing.times import Times, minutes_of


def text(*values: set[int]) -> str:
    fields = (",".join(map(str, sorted(some))) for some in values)
    return " ".join([*fields, "* * *"])


def seconds(*values: set[int]) -> set[int]:
    second, minute, hour = values
    return {h * 3600 + m * 60 + s for h in hour for m in minute for s in second}


def some(*likely: int) -> st.SearchStrategy[set[int]]:
    """A few values; few enough that two expressions often meet."""
    return st.sets(st.sampled_from(likely), min_size=1)


EXPRESSION = st.tuples(some(0, 1, 30, 59), some(0, 1, 2, 59), some(0, 1, 23))


@given(
    st.lists(EXPRESSION, min_size=1, max_size=4),
    st.lists(EXPRESSION, max_size=3),
    st.lists(st.tuples(some(0, 1, 59), some(0, 1, 23)), max_size=1),
)
def test_times_are_the_sets_of_their_seconds(due, excluded, whole_minutes):
    found = Times.of(
        [parse_cron(text(*each)) for each in due],
        [parse_cron(text(*each)) for each in (*excluded, *whole_minutes)],
    )
    left = set().union(*(seconds(*each) for each in due))
    left -= set().union(*(seconds(*each) for each in excluded))
    left -= set().union(*(seconds(set(range(60)), *each) for each in whole_minutes))
    assert found.total == len(left)
    assert (found.first, found.last) == (min(left, default=-1), max(left, default=-1))
    near = {at for each in left for at in (each - 1, each, each + 1)} | {0, 59, 3600, 86_399}
    for at in sorted(near & set(range(86_400))):
        assert found.next(at) == min((each for each in left if each >= at), default=-1)
        assert found.prev(at) == max((each for each in left if each <= at), default=-1)
        assert found.before(at) == sum(each < at for each in left)


def test_a_day_has_all_its_seconds():
    found = Times.of([parse_cron("* * * * * *")])
    assert (found.total, found.first, found.last) == (86_400, 0, 86_399)
    assert found.next(86_399) == 86_399
    assert minutes_of(parse_cron("* * * * *")) == (1 << 1440) - 1
