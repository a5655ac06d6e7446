"""How the partitions of an ordered group are shared out, and which a process gives up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timerq.consumer.leader import share_of, surplus


@given(st.integers(1, 1024), st.integers(1, 300))
def test_the_shares_of_all_are_the_partitions_and_none_is_larger_than_another_by_more_than_one(
    partitions: int, count: int
) -> None:
    shares = [share_of(partitions, count, rank) for rank in range(count)]
    assert sum(shares) == partitions
    assert max(shares) - min(shares) <= 1


def test_who_is_not_counted_has_no_share() -> None:
    assert share_of(1024, 0, 0) == 0


def test_the_least_busy_ones_go_and_no_more_than_are_too_many() -> None:
    leads = [(0, False, 5), (1, False, 0), (2, False, 3), (3, False, 0)]
    assert surplus(leads, 4) == surplus(leads, 9) == set()
    assert surplus(leads, 3) == {1}
    assert surplus(leads, 2) == {1, 3}
    assert surplus(leads, 0) == {0, 1, 2, 3}


def test_one_that_is_being_given_up_goes_before_others_that_have_become_less_busy() -> None:
    assert surplus([(0, True, 5), (1, False, 0), (2, False, 0)], 2) == {0}
    assert surplus([(0, True, 5), (1, False, 0), (2, False, 0)], 1) == {0, 1}
