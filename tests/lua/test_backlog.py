"""bound.lua and tend.lua, and what fire, publish, edit, backfill, receive and settle make of a full stream."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.group import Group, keys_of
from tests.support.partition import EVENT, NOW, Partition
from timerq import BacklogFull, Event, InvalidSchedule
from timerq.commands import backlog, edit, read, recurring
from timerq.commands.dead import dead_replay
from timerq.commands.history import history
from timerq.commands.items import gather
from timerq.explain import sentences
from timerq.model import Backlog, Schedule, Stats


class Bounded(Group):
    """Group g of stream events, and what bounds it."""

    def bound(self, limit: int | None = None, lane_limit: int | None = None, rule: Any = "hold") -> None:
        partition = self.partition
        partition.run(backlog.bound(partition.scope, self.stream, self.name, limit, lane_limit, rule))

    def unbound(self) -> bool:
        ended: bool = self.partition.run(backlog.unbound(self.partition.scope, self.stream))
        return ended

    def arm(self, *keys: str, **words: Any) -> None:
        """One-shots that are due now."""
        for key in keys:
            self.partition.upsert(key, delay=0, **words)

    def ack(self, count: int = 1) -> list[str]:
        """Reads and acknowledges so many; their keys."""
        raws = self.get(count=count)
        assert {self.settle(raw, "ack") for raw in raws} <= {"SETTLED"}
        return keys_of(raws)

    def drain(self) -> int:
        published, held = self.partition.drain()
        assert held == 0
        return published

    def tend(self, every_ms: int = 0) -> None:
        """As a dispatcher does, until there is nothing more to do."""
        partition = self.partition
        while partition.ask(backlog.tend(partition.namespace, 0, every_ms=every_ms)).more:
            pass

    def stats(self) -> Stats:
        stats: Stats = self.partition.run(read.stats(self.partition.scope))
        return stats

    def backlog(self) -> Backlog:
        (found,) = self.stats().backlogs
        return found

    def get_schedule(self, key: str) -> Schedule | None:
        found: Schedule | None = self.partition.run(read.get(self.partition.scope, key))
        return found

    def published(self) -> list[str]:
        return [event["key"] for event in self.partition.events(self.stream)]

    def told(self) -> list[str]:
        """What is on the stream of errors."""
        return [event["type"] for event in self.partition.events("errors")]

    def counts(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self.partition.client.hgetall(self.key("backlog"))
        return found


@pytest.fixture
def group(partition: Partition) -> Bounded:
    return Bounded(partition)


@pytest.fixture
def real_group(real_client: Any) -> Bounded:
    return Bounded(Partition(real_client))


# ------------------------------------------------------------------------------------------------ setting it


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("events", "g", None, None, "hold"), "limit"),
        (("events", "g", 0, None, "hold"), "limit"),
        (("events", "g", True, None, "hold"), "limit"),
        (("events", "g", 1, 0, "hold"), "lane_limit"),
        (("events", "g", 1, None, "wait"), "rule"),
        (("errors", "g", 1, None, "hold"), "rule"),
        (("a b", "g", 1, None, "hold"), "stream"),
        (("events", "", 1, None, "hold"), "group"),
    ],
)
def test_a_bound_that_is_none_is_refused_and_nothing_is_written(
    group: Bounded, words: tuple[Any, ...], field: str
) -> None:
    before = group.partition.state()
    with pytest.raises(InvalidSchedule) as refused:
        group.partition.run(backlog.bound(group.partition.scope, *words))
    assert refused.value.field == field
    assert group.partition.state() == before


def test_what_is_not_bounded_is_not_counted(group: Bounded) -> None:
    group.bound(2)
    group.unbound()
    before = set(group.partition.state())
    assert not group.unbound()
    group.arm("a", "b", "c")
    assert group.drain() == 3
    assert group.ack(3) == ["a", "b", "c"]
    assert b"bounds" not in group.partition.client.hgetall(group.partition.key("meta"))
    new = {name.split(b":")[-2] for name in set(group.partition.state()) - before if b"}:" in name}
    assert not new & {b"backlog", b"recount", b"bound", b"waiting", b"parked"}
    assert group.stats().backlogs == ()


def test_a_limit_is_shared_out_over_the_partitions_and_told_whole(client: Any) -> None:
    partition = Partition(client, partitions=4)
    made = partition.run(backlog.bound(partition.scope, "events", "g", 10, 3, "drop_newest"))
    (found,) = partition.run(read.stats(partition.scope)).backlogs
    assert found.bound == made
    assert (made.limit, made.share, made.lane_limit, made.rule) == (10, 3, 3, "drop_newest")
    assert (found.waiting, found.held_back, found.dropped) == (0, 0, 0)


def test_what_was_there_before_the_bound_counts(group: Bounded) -> None:
    """Unread, in hands, and waiting to be tried again; of lanes too. Not what is acknowledged."""
    group.publish(*"abcdef")
    group.publish("x", owner="o")
    done, failed, *_ = group.get(count=3)
    assert group.settle(done, "ack") == "SETTLED"
    assert group.settle(failed, "retry", at_ms=NOW + 5000) == "SETTLED"
    for lane_limit in (None, 5):
        group.bound(9, lane_limit)
        assert group.backlog().waiting == 6
    lanes = {b"acme\0" + lane: b"1" for lane in (b"b", b"c", b"d", b"e", b"f", b"o")}
    assert group.counts() == {b"": b"6", **lanes}
    group.bound(9, 5, "drop_oldest")  # of which what was handed out counts no more
    assert group.counts() == {b"": b"4", **{name: b"1" for name in lanes if name[-1:] not in b"bc"}}


def test_another_bound_takes_the_place_of_the_first(group: Bounded) -> None:
    group.bound(1)
    group.publish("a")
    with pytest.raises(
        BacklogFull, match=r"stream events is full \(group g: 1 of 1\); nothing was published"
    ):
        group.publish("b")
    group.bound(2)
    group.publish("b")
    group.bound(None, 1)
    group.publish("c")
    with pytest.raises(BacklogFull, match=r"lane c of stream events is full \(group g: 1 of 1\)"):
        group.publish("c")
    other = Bounded(group.partition, "other")
    other.bound(5)
    assert other.backlog().waiting == 3
    assert len(group.stats().backlogs) == 1


# ------------------------------------------------------------------------------------------------ hold


def test_held_back_schedules_fire_in_their_order_when_there_is_room(group: Bounded) -> None:
    group.bound(2)
    for i, key in enumerate("abcdef"):
        group.partition.upsert(key, at=NOW + i)
    group.partition.now = NOW + 1000
    assert group.drain() == 2
    group.partition.check()
    assert group.stats().held_back == 4
    assert (group.stats().due, group.stats().lag_ms) == (4, 998)
    assert (group.backlog().waiting, group.backlog().held_back) == (2, 4)
    assert group.partition.fire().wait_us is None  # nothing is looked at in vain
    handled = []
    while keys := group.ack():
        handled += keys
        group.drain()
        assert group.backlog().waiting in (2, 6 - len(handled))
    assert handled == [*"abcdef"]
    assert group.backlog() == Backlog(group.backlog().bound, 0, 0, 0)
    assert [event["at"] for event in group.partition.events()] == [str(NOW + i) for i in range(6)]
    assert group.partition.client.keys(group.partition.key("waiting:*")) == []
    assert group.partition.client.keys(group.partition.key("parked:*")) == []


def test_an_acknowledgement_wakes_the_dispatchers(group: Bounded) -> None:
    group.bound(1)
    group.arm("a", "b")
    group.drain()
    wake = group.partition.key("wake")
    group.partition.client.delete(wake)
    assert group.ack() == ["a"]
    ((_, fields),) = group.partition.client.xrange(wake)
    assert int(fields[b"at"]) <= group.partition.now


def test_a_full_lane_holds_up_no_other(group: Bounded) -> None:
    group.bound(None, 1)
    group.arm("a1", "a2", "a3", owner="a")
    group.arm("b")
    assert group.drain() == 2
    assert sorted(group.published()) == ["a1", "b"]
    group.partition.check()
    assert group.ack(2)
    assert group.drain() == 1
    assert group.backlog().held_back == 1
    assert group.ack()
    assert group.drain() == 1
    assert group.published()[2:] == ["a2", "a3"]


def test_a_full_stream_holds_up_no_other_stream_and_no_other_tenant(group: Bounded) -> None:
    group.bound(1)
    for i in range(30):
        group.arm(f"k{i}")
    group.arm("late", event=Event("t", stream="other"))
    group.partition.upsert("theirs", Event("t", stream="other"), delay=0, scope=group.partition.of("beta"))
    assert group.partition.fire(batch=10).wait_us == 0
    group.drain()
    assert {event["key"] for event in group.partition.events("other")} == {"late", "theirs"}
    assert len(group.published()) == 1


def test_room_of_the_stream_is_not_lost_on_a_lane_that_has_none(group: Bounded) -> None:
    group.bound(2, 1)
    group.arm("a1", "a2", owner="a")
    group.arm("b", "c")
    assert group.drain() == 2
    raws = {raw.fields[b"key"]: raw for raw in group.get()}
    assert set(raws) == {b"a1", b"b"}
    assert group.settle(raws[b"b"], "ack") == "SETTLED"
    assert group.drain() == 1  # c: lane a is still full
    assert group.published() == ["a1", "b", "c"]
    assert group.settle(raws[b"a1"], "ack") == "SETTLED"
    assert group.drain() == 1
    group.partition.check()


def test_one_that_waits_for_the_stream_outlives_another_that_waits_for_its_lane(group: Bounded) -> None:
    """Both are held back by one call, in this order."""
    group.bound(2, 1)
    group.publish("x", owner="b")
    group.publish("y")
    group.partition.upsert("a", at=NOW)
    group.partition.upsert("b", at=NOW + 1, owner="b")
    group.partition.now += 10
    assert (group.partition.fire().refused, group.partition.fire().refused) == (2, 0)
    assert group.backlog().held_back == 2
    assert sorted(group.ack(2)) == ["x", "y"]
    assert group.drain() == 2
    assert group.backlog().held_back == 0


def test_what_is_held_back_can_be_cancelled_set_anew_and_paused(group: Bounded) -> None:
    group.bound(1)
    group.arm("a-first", "cancelled", "later", "paused", "kept")
    group.drain()
    assert group.partition.cancel("cancelled").outcome == "CANCELLED"
    group.partition.upsert("later", delay=60_000)
    assert group.partition.edit("pause", "paused").outcome == "PAUSED"
    group.partition.check()
    assert group.ack() == ["a-first"]
    assert group.drain() == 1
    assert group.published() == ["a-first", "kept"]
    assert group.ack() == ["kept"]
    assert group.partition.edit("resume", "paused").outcome == "RESUMED"
    assert group.drain() == 1
    group.partition.now += 60_000
    assert group.drain() == 0
    assert group.ack() == ["paused"]
    assert group.drain() == 1
    assert group.published()[-1] == "later"
    group.partition.check()


def test_a_recurring_one_that_was_held_back_follows_its_rules(group: Bounded) -> None:
    group.bound(1)
    group.publish("x")
    group.partition.upsert("k", every=10, start=NOW)
    group.drain()
    group.partition.now = NOW + 35
    assert group.ack() == ["x"]
    assert group.drain() == 1
    (event,) = [event for event in group.partition.events() if event["key"] == "k"]
    assert (event["at"], event["n"], event["missed"]) == (str(NOW), "1", "3")
    schedule = group.get_schedule("k")
    assert schedule is not None
    assert (schedule.at_ms, schedule.held) == (NOW + 40, None)


def test_a_calendar_that_is_held_back_is_asked_when_there_is_room(group: Bounded) -> None:
    group.bound(1)
    group.publish("x")
    group.partition.calendar("k", at=NOW, following=NOW + 60_000)
    assert group.partition.fire().handovers == []
    group.partition.now = NOW + 90_000
    assert group.ack() == ["x"]
    (handover,) = group.partition.fire().handovers
    assert handover.word == "claimed"
    group.partition.check()


def test_why_says_what_holds_it_back_and_lists_have_it(group: Bounded) -> None:
    group.bound(1)
    group.arm("a", "b")
    group.partition.upsert("c", delay=10_000)
    group.drain()
    partition = group.partition
    schedule = group.get_schedule("b")
    assert schedule is not None
    assert (schedule.state, schedule.held) == ("armed", "stream events is full (group g: 1 of 1)")
    *_, last = sentences(partition.run(history(partition.scope, "b")))
    assert "is held back: stream events is full (group g: 1 of 1). It fires when" in last
    found = []
    place = None
    while True:
        page, place = partition.run(read.due_page(partition.scope, NOW - 5, None, place, 1))
        found += [schedule.key for schedule in page]
        if place is None:
            break
    assert found == ["b", "c"]
    page, _ = partition.run(read.due_page(partition.scope, NOW + 1, None, None, 5))
    assert [schedule.key for schedule in page] == ["c"]
    assert group.told() == ["stream.full"]
    assert [entry for entry in partition.log() if entry[0] == "held_back"] == [
        ("held_back", "stream events is full (group g: 1 of 1)")
    ]


def test_a_full_stream_is_told_of_once_a_minute(group: Bounded) -> None:
    group.bound(1)
    group.publish("a")
    for expected in (1, 1, 2):
        with pytest.raises(BacklogFull):
            group.publish("b")
        assert len(group.told()) == expected
        group.partition.now += 30_001
    group.partition.check()


def test_trigger_and_backfill_of_a_full_stream_say_so(group: Bounded) -> None:
    group.bound(2)
    group.publish("x")
    partition = group.partition
    partition.upsert("k", every=10, start=NOW - 100)
    steps = recurring.backfill(partition.scope, "k", None, NOW - 50, NOW - 10, None, NOW)
    with pytest.raises(BacklogFull, match="after 1 events") as full:
        partition.run(steps)
    assert full.value.published == 1
    before = partition.record("k")
    with pytest.raises(BacklogFull):
        partition.edit("trigger", "k")
    assert partition.record("k") == before
    group.ack()
    assert partition.edit("trigger", "k").outcome == "TRIGGERED"


def test_one_refused_event_of_many_sinks_no_other(group: Bounded) -> None:
    group.bound(None, 1)
    partition = group.partition
    items = [edit.publish_item(partition.scope, EVENT, key) for key in ("a", "a", "b")]
    one, two, three = partition.all(items)
    assert (one.outcome, three.outcome) == ("PUBLISHED", "PUBLISHED")
    assert isinstance(two, BacklogFull)


def test_what_was_cancelled_keeps_nothing_waiting_behind_it(group: Bounded) -> None:
    group.bound(limit=1)
    group.publish("first")
    keys = [f"k{n}" for n in range(100)]
    group.arm(*keys)
    assert group.drain() == 0
    for key in keys:
        group.partition.cancel(key)
    group.partition.now += 1
    group.arm("last")
    assert group.drain() == 0
    assert group.ack() == ["first"]
    group.partition.now += backlog.RETEND_MS
    group.tend(backlog.RETEND_MS)
    assert group.drain() == 1
    assert group.backlog().held_back == 0


def test_who_looks_after_bounds_is_told_where_there_are_none(group: Bounded) -> None:
    partition = group.partition

    def tended() -> backlog.Tended:
        found: backlog.Tended = partition.ask(backlog.tend(partition.namespace, 0))
        return found

    assert tended() == backlog.Tended(None, is_bounded=False)
    group.bound(1)
    partition.now += backlog.RETEND_MS
    assert tended().stream == "events"
    assert tended() == backlog.Tended(None, is_bounded=True)  # not yet again
    group.unbound()
    assert tended() == backlog.Tended(None, is_bounded=False)


def test_the_end_of_a_bound_lets_all_go(group: Bounded) -> None:
    group.bound(1, 1)
    group.arm("a1", "a2", owner="a")
    group.arm(*"bcd")
    group.drain()
    assert group.unbound()
    assert not group.unbound()
    assert group.drain() == 4
    group.partition.check()
    assert group.stats().backlogs == ()
    assert group.stats().held_back == 0


def test_a_higher_limit_lets_as_many_go(group: Bounded) -> None:
    group.bound(1)
    group.arm(*"abcd")
    group.drain()
    group.bound(3)
    assert group.drain() == 2
    assert group.backlog().held_back == 1


def test_a_higher_limit_of_the_lanes_is_there_for_all_of_them_at_once(group: Bounded) -> None:
    group.bound(lane_limit=1)
    for lane in range(50):
        group.arm("a", "b", "c", owner=f"o{lane}")
    assert group.drain() == 50
    group.partition.now += 5_000
    group.bound(lane_limit=2)
    assert group.drain() == 50
    assert group.backlog().held_back == 50


def test_a_rule_that_does_not_hold_lets_all_go(group: Bounded) -> None:
    group.bound(1)
    group.arm(*"abc")
    group.drain()
    group.bound(2, rule="drop_newest")
    assert group.drain() == 1
    assert (group.backlog().held_back, group.backlog().dropped) == (0, 1)


# ------------------------------------------------------------------------------------------------ drop the newest


def test_the_newest_are_dropped_counted_and_told(group: Bounded) -> None:
    group.bound(1, rule="drop_newest")
    group.arm("a", "b")
    group.partition.upsert("r", every=10, start=NOW)
    group.partition.now += 25
    assert group.drain() == 1
    group.partition.check()
    assert group.published() == ["a"]
    assert group.get_schedule("b") is None
    schedule = group.get_schedule("r")
    assert schedule is not None
    assert (schedule.n, schedule.skipped_total, schedule.at_ms) == (0, 3, NOW + 30)
    partition = group.partition
    assert partition.do(edit.publish_item(partition.scope, EVENT, "p")).outcome == "DROPPED"
    full = "stream events is full (group g: 1 of 1)"
    assert [entry for entry in partition.log() if full in entry[1]][:2] == [
        ("dropped", full),
        ("skipped", f"3 {full}"),
    ]
    assert partition.log()[-1][0] == "overflowed"
    assert group.backlog().dropped == 3
    assert group.told() == ["stream.full"]
    assert "dropped: stream events is full" in sentences(partition.run(history(partition.scope, "b")))[1]
    (_, told, *_) = sentences(partition.run(history(partition.scope, "p")))
    assert "an event was dropped unhandled: 0-" in told
    assert group.ack() == ["a"]
    assert group.ack() == []


def test_a_fixed_delay_whose_event_was_dropped_waits_for_nobody(group: Bounded) -> None:
    group.bound(1, rule="drop_newest")
    group.publish("x")
    group.partition.upsert("k", every=10, start=NOW, fixed_delay=True, ack_group="g", limit=1)
    group.drain()
    schedule = group.get_schedule("k")
    assert schedule is not None
    assert (schedule.at_ms, schedule.running, schedule.skipped_total) == (NOW + 10, None, 1)
    group.ack()
    group.partition.now += 10
    assert group.drain() == 1  # what was dropped does not count towards the limit
    assert group.get_schedule("k") is None


def test_what_a_trigger_or_a_backfill_drops_is_told(group: Bounded) -> None:
    group.bound(2, rule="drop_newest")
    partition = group.partition
    partition.upsert("k", every=10, start=NOW - 100)
    done = partition.run(recurring.backfill(partition.scope, "k", None, NOW - 50, NOW - 10, None, NOW))
    assert (done.published, done.dropped) == (2, 3)
    change = partition.edit("trigger", "k")
    assert (change.outcome, bool(change)) == ("DROPPED", False)
    assert ("backfilled", f"2 from {NOW - 50}") in partition.log()


# ------------------------------------------------------------------------------------------------ drop the oldest


def test_the_oldest_are_dropped_where_they_are_read(group: Bounded) -> None:
    group.bound(3, rule="drop_oldest")
    group.publish(*"abcdef")
    assert group.backlog().waiting == 6
    assert keys_of(group.get()) == ["d", "e", "f"]
    assert (group.backlog().waiting, group.backlog().dropped) == (0, 3)
    group.check()
    assert set(group.pending().values()) == {b"c1"}
    notes = [note for what, note in group.partition.log() if what == "overflowed"]
    assert [note.partition(" ")[2] for note in notes] == [
        f"{count} events of its stream waited, the limit is 3" for count in (6, 5, 4)
    ]
    group.publish("g")  # those in hands are not touched
    assert keys_of(group.get()) == ["g"]
    assert len(group.pending()) == 4


def test_the_oldest_of_a_lane_are_dropped_where_they_are_read(group: Bounded) -> None:
    group.bound(None, 2, "drop_oldest")
    for key in "abcd":
        group.publish(key, owner="o")
        group.publish(key)
    epoch = group.lead()
    read = group.read(epoch=epoch)
    lanes = [(raw.fields[b"key"], raw.fields[b"owner"]) for raw in read.deliveries]
    assert [key for key, owner in lanes if owner] == [b"c", b"d"]
    assert [key for key, owner in lanes if not owner] == [*map(str.encode, "abcd")]
    assert len(read.cleared) == 2
    assert group.counts() == {b"": b"0"}


def test_the_oldest_are_dropped_where_nobody_reads(group: Bounded) -> None:
    group.bound(2, rule="drop_oldest")
    keys = [f"k{i}" for i in range(40)]
    group.publish(*keys)
    group.tend()
    assert (group.backlog().waiting, group.backlog().dropped) == (2, 38)
    assert keys_of(group.get()) == keys[-2:]


def test_a_dropped_event_is_waited_for_no_more(group: Bounded) -> None:
    group.bound(1, rule="drop_oldest")
    group.partition.upsert("k", every=10, start=NOW, overlap="skip", ack_group="g")
    group.drain()
    group.publish("x")
    assert keys_of(group.get()) == ["x"]
    schedule = group.get_schedule("k")
    assert schedule is not None
    assert schedule.running is None


def test_the_stream_of_errors_may_be_bounded(group: Bounded) -> None:
    errors = Bounded(group.partition, stream="errors")
    errors.bound(1, rule="drop_newest")
    group.bound(1)
    group.publish("a")
    for _ in range(3):
        with pytest.raises(BacklogFull):
            group.publish("b")
        group.partition.now += 61_000
    assert len(group.told()) >= 1
    group.partition.check()


# ------------------------------------------------------------------------------------------------ counting


@pytest.mark.parametrize("lane_limit", [None, 1])
def test_each_way_out_makes_room(group: Bounded, lane_limit: int | None) -> None:
    """Acknowledged, given up, cancelled while it waited, trimmed, replayed for this group alone."""
    group.bound(5, lane_limit)
    group.arm("cancelled")
    group.publish("acked", "rejected", "trimmed", "x")
    group.drain()
    assert group.partition.cancel("cancelled").outcome == "NOT_PENDING"
    raws = {raw.fields[b"key"].decode(): raw for raw in group.get()}
    assert sorted(raws) == ["acked", "rejected", "trimmed", "x"]
    assert group.backlog().waiting == 4
    assert group.settle(raws["acked"], "ack") == "SETTLED"
    assert group.settle(raws["rejected"], "reject", error="no") == "SETTLED"
    assert group.backlog().waiting == 2
    group.partition.client.xdel(group.stream_key, raws["trimmed"].entry)
    group.partition.now += 60_000
    assert keys_of(group.get("c2")) == ["x"]
    assert group.backlog().waiting == 1
    assert group.partition.run(dead_replay(group.partition.scope, "events", "g")) == 1
    assert group.backlog().waiting == 2
    assert group.ack() == ["rejected"]
    expected = {b"": b"1", **({b"acme\0x": b"1"} if lane_limit else {})}
    assert group.counts() == expected


def test_what_is_sent_again_counts_once(group: Bounded) -> None:
    group.bound(2)
    partition = group.partition
    command = gather(partition.scope, [edit.publish_item(partition.scope, EVENT, "k")])
    assert partition.raw(command) == partition.evaluate(command)
    assert group.backlog().waiting == 1
    group.publish("l")
    command = gather(partition.scope, [edit.publish_item(partition.scope, EVENT, "m")])
    assert partition.raw(command) == partition.evaluate(command)
    assert group.backlog().waiting == 2


@pytest.mark.parametrize("lane_limit", [None, 4])
def test_what_others_acknowledge_by_hand_is_found_out(group: Bounded, lane_limit: int | None) -> None:
    """A consumer in another language knows nothing of the counts."""
    client, stream = group.partition.client, group.stream_key
    group.bound(4, lane_limit)
    group.publish(*"abcd")
    group.arm("e", "f")
    assert group.drain() == 0
    client.xgroup_create(stream, "g", "0")
    entries = client.xreadgroup("g", "by-hand", {stream: ">"}, count=2)[0][1]
    client.xack(stream, "g", *[entry for entry, _ in entries])
    group.partition.now += 30_000
    group.tend()
    assert group.backlog().waiting == 2
    assert group.drain() == 2
    group.partition.check()
    entries = client.xreadgroup("g", "by-hand", {stream: ">"})[0][1]
    client.xack(stream, "g", *[entry for entry, _ in entries])
    group.tend()  # nothing at all is left, which is seen at once
    assert group.backlog().waiting == 0


def test_a_count_that_takes_several_calls_misses_nothing_meanwhile(group: Bounded) -> None:
    partition = group.partition
    keys = [f"k{i}" for i in range(60)]
    group.publish(*keys)
    raws = group.get(count=25, lease_ms=100_000)
    group.bound(100, 50)
    partition.now += 30_000
    command = backlog.tend(partition.namespace, 0, every_ms=0)
    position = command.words[0]
    assert isinstance(position, int)
    limit = position + command.script.args.index("limit") + 1

    def piece() -> bool:
        command = backlog.tend(partition.namespace, 0, every_ms=0)
        command.words[limit] = 10
        more: bool = partition.ask(command).more
        return more

    assert piece()  # ten of those in hands are counted
    for raw in (raws[0], raws[20]):  # one that is counted anew already, and one that is not
        assert group.settle(raw, "ack", "c1") == "SETTLED"
    assert piece()
    assert piece()
    group.publish("new")
    assert keys_of(group.get(count=3)) == keys[25:28]
    assert group.settle(raws[1], "ack") == "SETTLED"
    while piece():
        pass
    assert group.backlog().waiting == 60 + 1 - 3
    assert len(group.counts()) == 1 + 58
    assert set(group.counts().values()) == {b"1", b"58"}


def test_a_backlog_that_cannot_be_read_holds_the_schedule_and_nothing_else(group: Bounded) -> None:
    group.bound(1)
    group.partition.client.delete(group.key("backlog"))
    group.partition.client.set(group.key("backlog"), "not a hash")
    group.arm("a")
    group.arm("b", event=Event("t", stream="other"))
    assert group.partition.drain() == (1, 1)
    schedule = group.get_schedule("a")
    assert schedule is not None
    assert schedule.state == "held"


def test_a_group_that_was_made_anew_is_counted_anew(real_group: Bounded) -> None:
    group = real_group
    group.bound(None, 5)
    group.publish(*"abc")
    assert group.ack(3) == ["a", "b", "c"]
    group.partition.client.xgroup_destroy(group.stream_key, "g")
    assert keys_of(group.get()) == ["a", "b", "c"]
    group.partition.now += 30_000
    group.tend()
    assert group.backlog().waiting == 3


# ------------------------------------------------------------------------------------------------ whatever happens


def truth(group: Bounded) -> dict[bytes, int]:
    """What the group has before it, by lane, as the stream itself and its pending list say."""
    client = group.partition.client
    entries = {
        entry: fields[b"tenant"] + b"\0" + (fields[b"owner"] or fields[b"key"])
        for entry, fields in client.xrange(group.stream_key)
        if fields.get(b"only", b"g") == b"g"
    }
    waits = set(entries)
    if client.exists(group.stream_key) and (infos := client.xinfo_groups(group.stream_key)):
        last = tuple(map(int, infos[0]["last-delivered-id"].split(b"-")))
        waits = {entry for entry in entries if tuple(map(int, entry.split(b"-"))) > last}
        waits |= set(group.pending())
    counts: dict[bytes, int] = {b"": len(waits)}
    for entry in waits:
        counts[entries[entry]] = counts.get(entries[entry], 0) + 1
    return counts


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_the_bound_holds_and_all_fire_in_the_end(group: Bounded, seed: int) -> None:
    chance = random.Random(seed)
    partition = group.partition
    limit, lane_limit = chance.choice([(3, None), (None, 1), (4, 2), (2, 1)])
    group.bound(limit, lane_limit)
    hands: list[Any] = []
    for _ in range(100):
        key, owner = chance.choice("abcdefgh"), chance.choice([None, None, "o", "p"])
        act = chance.randrange(12)
        if act < 4:
            partition.upsert(key, at=partition.now + chance.randrange(-20, 20), owner=owner)
        elif act == 4:
            partition.cancel(key, owner)
        elif act == 5:
            partition.edit(chance.choice(["pause", "resume"]), key, owner)
        elif act == 6:
            try:
                group.publish(key, owner=owner)
            except BacklogFull:
                assert truth(group)[b""] > 0
        elif act == 7:
            hands += group.get(count=chance.randrange(1, 4), lease_ms=10**9)
        elif act < 10 and hands:
            raw = hands.pop(chance.randrange(len(hands)))
            verb = chance.choice(["ack", "ack", "retry", "reject"])
            assert group.settle(raw, verb, at_ms=partition.now + 5) == "SETTLED"
        elif act == 10:
            group.tend()
        else:
            partition.now += chance.choice([1, 5, 40_000])
        group.drain()
        partition.check()
        found = truth(group)
        counted = found if lane_limit else {b"": found[b""]}
        assert {name: int(count) for name, count in group.counts().items()} == counted
        assert limit is None or found[b""] <= limit
        assert lane_limit is None or max([0, *[n for lane, n in found.items() if lane]]) <= lane_limit
    for raw in hands:
        assert group.settle(raw, "ack") == "SETTLED"
    partition.now += 1000
    while group.drain() or group.ack(50):
        pass
    left = [record[b"s"][:1] for name, record in partition.state().items() if b":sch:" in name]
    assert set(left) <= {b"p"}
    group.tend()  # what was cancelled is looked at, too
    assert group.backlog().held_back == 0
