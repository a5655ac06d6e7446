"""Which events of an ordered group may run: the ledger of lanes, alone and against a plain model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timerq.consumer.lanes import Lanes


def filled(*pairs: tuple[str, bytes]) -> Lanes[bytes]:
    lanes: Lanes[bytes] = Lanes()
    for lane, entry in pairs:
        lanes.add(lane, entry, entry)
    return lanes


def test_a_lane_runs_one_at_a_time_and_in_order() -> None:
    lanes = filled(("a", b"1"), ("a", b"2"), ("b", b"3"))
    assert [lanes.next(), lanes.next(), lanes.next()] == [b"1", b"3", None]
    lanes.done(b"1")
    assert lanes.next() == b"2"
    lanes.done(b"2")
    lanes.done(b"3")
    assert len(lanes) == 0
    assert lanes.next() is None


def test_one_that_waits_for_a_retry_holds_its_own_lane_only() -> None:
    lanes = filled(("a", b"1"), ("a", b"2"), ("b", b"3"))
    assert lanes.next() == b"1"
    lanes.stand(b"1")
    assert [lanes.next(), lanes.next()] == [b"3", None]
    assert lanes.add("a", b"1", b"1 again")
    assert lanes.next() == b"1 again"
    lanes.done(b"1")
    assert lanes.next() == b"2"


def test_what_stands_is_not_counted_among_the_living() -> None:
    lanes = filled(("a", b"1"), ("a", b"2"), ("b", b"3"))
    assert lanes.next() == b"1"
    assert lanes.live == 3
    lanes.stand(b"1")
    lanes.add("a", b"4", b"4")
    assert (len(lanes), lanes.live) == (4, 1)
    lanes.add("c", b"5", None)
    assert lanes.live == 1
    lanes.done(b"2")
    lanes.add("a", b"1", b"1")
    assert (len(lanes), lanes.live) == (4, 3)
    lanes.gone(b"5")
    lanes.stand(b"3")  # it does not run: all the same
    assert lanes.next() == b"1"
    assert (len(lanes), lanes.live) == (3, 2)
    lanes.drop_waiting()
    assert (len(lanes), lanes.live) == (1, 1)


def test_one_that_is_told_of_before_it_may_run_keeps_its_place() -> None:
    lanes: Lanes[bytes] = Lanes()
    lanes.add("a", b"1", None)
    lanes.add("a", b"2", b"2")
    assert lanes.next() is None
    lanes.add("a", b"1", b"1")
    assert lanes.next() == b"1"
    lanes.done(b"1")
    assert lanes.next() == b"2"


def test_a_running_one_is_not_taken_twice() -> None:
    lanes = filled(("a", b"1"))
    assert lanes.next() == b"1"
    assert not lanes.add("a", b"1", b"1 again")
    assert lanes.next() is None
    assert b"1" in lanes


def test_a_lane_goes_on_without_what_has_gone() -> None:
    lanes = filled(("a", b"1"), ("a", b"2"), ("a", b"3"), ("a", b"4"))
    assert lanes.next() == b"1"
    lanes.gone(b"1")  # it runs: nobody overtakes it
    lanes.gone(b"3")
    lanes.gone(b"unknown")
    assert lanes.next() is None
    lanes.stand(b"1")  # it would be tried again, and never comes
    assert lanes.next() == b"2"
    lanes.stand(b"2")
    assert lanes.next() is None
    lanes.gone(b"2")
    assert lanes.next() == b"4"
    lanes.done(b"4")
    assert len(lanes) == 0


def test_what_waits_can_be_dropped_and_what_runs_stays() -> None:
    lanes = filled(("a", b"1"), ("a", b"2"), ("b", b"3"))
    lanes.add("b", b"4", None)
    assert lanes.next() == b"1"
    assert [*lanes.waiting()] == [b"2", b"3"]
    assert sorted(lanes.drop_waiting()) == [b"2", b"3"]
    assert len(lanes) == 1
    assert lanes.next() is None
    lanes.done(b"1")
    lanes.done(b"unknown")
    assert len(lanes) == 0


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["done", "stand"])), max_size=40), st.data()
)
def test_whatever_happens_each_lane_keeps_its_order(
    events: list[tuple[str, str]], data: st.DataObject
) -> None:
    lanes: Lanes[bytes] = Lanes()
    lane_of = {b"%d" % n: lane for n, (lane, _) in enumerate(events)}
    will = {b"%d" % n: [what] if what == "done" else [what, "done"] for n, (_, what) in enumerate(events)}
    for entry, lane in lane_of.items():
        lanes.add(lane, entry, entry)
    running: list[bytes] = []
    standing: list[bytes] = []
    ended: list[bytes] = []
    while len(lanes):
        up = {lane_of[entry] for entry in standing}
        assert lanes.live == sum(entry not in ended and lane not in up for entry, lane in lane_of.items())
        while (entry := lanes.next()) is not None:
            assert lane_of[entry] not in {lane_of[one] for one in (*running, *standing)}
            running.append(entry)
        if running and (not standing or data.draw(st.booleans())):
            entry = data.draw(st.sampled_from(running))
            running.remove(entry)
            if will[entry].pop(0) == "done":
                lanes.done(entry)
                ended.append(entry)
            else:
                lanes.stand(entry)
                standing.append(entry)
        else:
            assert standing, "nothing runs and nothing stands: a lane is lost"
            entry = standing.pop(0)
            lanes.add(lane_of[entry], entry, entry)
    for lane in "abc":
        mine = [entry for entry in lane_of if lane_of[entry] == lane]
        assert [entry for entry in ended if lane_of[entry] == lane] == mine


def test_what_is_next_behind_a_running_entry() -> None:
    lanes: Lanes[str] = Lanes()
    lanes.add("a", b"1", "one")
    assert lanes.next() == "one"
    assert lanes.behind(b"1") is None
    lanes.add("b", b"2", "of another lane")
    lanes.add("a", b"3", "two")
    lanes.add("a", b"4", "three")
    assert lanes.behind(b"1") == "two"
    lanes.add("a", b"3", None)
    assert lanes.behind(b"1") is None
    assert lanes.behind(b"?") is None


def test_the_line_behind_a_running_entry_ends_where_its_lane_will_stand() -> None:
    lanes: Lanes[str] = Lanes()
    for entry in (b"1", b"2", b"3", b"4", b"5"):
        lanes.add("a", entry, None if entry == b"4" else entry.decode())
    lanes.add("b", b"6", "6")
    assert lanes.next() == "1"
    assert lanes.line(b"1", 1) == ["2"]
    assert lanes.line(b"1", 50) == ["2", "3"]
    assert lanes.line(b"1", 0) == lanes.line(b"6", 50) == lanes.line(b"?", 50) == []
