"""receive.lua: who is handed what, how often, and what nobody is handed."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from tests.support.group import LEASE_MS, Group, keys_of
from tests.support.partition import NOW, Partition
from timerq import InvalidSchedule, QueueUnavailable
from timerq.commands import cancel, owner
from timerq.commands.consume import RawDelivery, Received, receive, settle
from timerq.commands.dispatch import trim
from timerq.commands.lead import lead_partition


@pytest.fixture
def group(partition: Partition) -> Group:
    return Group(partition)


def test_new_events_come_whole_in_order_and_once(group: Group) -> None:
    group.publish("a", "b", "c", correlation={"x": "y"})
    first = group.read(count=2)
    assert keys_of(first.deliveries) == ["a", "b"]
    assert [(raw.delivery, raw.attempt, raw.waits_until_ms) for raw in first.deliveries] == [(1, 1, 0)] * 2
    entries = group.partition.client.xrange(group.stream_key)
    assert [(raw.entry, raw.fields) for raw in first.deliveries] == entries[:2]
    assert (first.leads, first.again, first.stale, first.gone) == (True, False, 0, 0)
    assert first.end is None  # there may be more
    second = group.read("c2")
    assert keys_of(second.deliveries) == ["c"]
    assert second.end == entries[2][0]
    assert group.get() == group.get("c2") == []
    assert group.pending() == {
        raw.entry: name
        for raws, name in ((first.deliveries, b"c1"), (second.deliveries, b"c2"))
        for raw in raws
    }
    group.check()


def test_a_group_made_late_sees_what_is_retained_and_no_other_group_matters(group: Group) -> None:
    group.publish("a", "b")
    assert keys_of(group.get()) == ["a", "b"]
    assert keys_of(Group(group.partition, "late").get()) == ["a", "b"]
    group.check()


def test_a_group_may_be_there_before_its_stream(group: Group) -> None:
    received = group.read()
    assert (received.deliveries, received.end, received.wait_us) == ([], b"0-0", None)
    group.publish("a")
    assert keys_of(group.get()) == ["a"]
    assert dict(group.partition.client.zrange(group.partition.key("groups"), 0, -1, withscores=True)) == {
        b"events\0g": NOW
    }


def test_a_lease_that_runs_out_is_taken_over_with_a_new_delivery(group: Group) -> None:
    group.publish("a", "b")
    old = group.get()
    group.partition.now += LEASE_MS - 1
    waiting = group.read("c2")
    assert waiting.deliveries == []
    assert waiting.wait_us == 1000
    group.partition.now += 1
    new = group.get("c2")
    assert [(raw.entry, raw.delivery, raw.attempt) for raw in new] == [(raw.entry, 2, 2) for raw in old]
    assert set(group.pending().values()) == {b"c2"}
    assert [group.settle(raw, "ack") for raw in old] == ["NOT_HELD"] * 2
    assert [group.settle(raw, "ack", "c2") for raw in new] == ["SETTLED"] * 2
    assert group.pending() == {}
    group.check()


def test_take_over_never_goes_by_how_long_an_entry_is_idle(group: Group) -> None:
    group.publish("a")
    (raw,) = group.get(lease_ms=1_000_000)
    # Redis itself has it idle for a day
    group.partition.client.xclaim(group.stream_key, "g", "c1", 0, [raw.entry], idle=86_400_000)
    assert group.get("c2") == []
    assert group.settle(raw, "ack") == "SETTLED"


def test_an_event_that_waits_for_its_retry_is_never_grabbed_and_no_other_group_sees_it_again(
    group: Group,
) -> None:
    other = Group(group.partition, "other")
    group.publish("a")
    (raw,) = group.get()
    assert keys_of(other.get()) == ["a"]
    assert group.settle(raw, "retry", at_ms=NOW + 60_000, error="no") == "SETTLED"
    for later_ms in (0, LEASE_MS, 59_999):
        group.partition.now = NOW + later_ms
        received = group.read("c2")
        assert received.deliveries == []
        assert received.wait_us == (60_000 - later_ms) * 1000
    group.partition.now = NOW + 60_000
    (again,) = group.get("c2")
    assert (again.entry, again.delivery, again.attempt, again.fields) == (raw.entry, 2, 2, raw.fields)
    assert group.settle(raw, "ack") == "NOT_HELD"
    assert group.settle(again, "ack", "c2") == "SETTLED"
    group.partition.now = NOW + 59_999
    assert other.get("c9", mine=True) == []
    group.check()
    assert group.partition.client.xlen(group.stream_key) == 1


def test_retries_come_before_what_was_left_behind_and_that_before_new_ones(group: Group) -> None:
    group.publish("left", "tried")
    left, tried = group.get()
    group.settle(tried, "retry", at_ms=NOW + LEASE_MS)
    group.publish("new")
    group.partition.now += LEASE_MS
    assert keys_of(group.get("c2")) == ["tried", "left", "new"]
    assert group.leases().keys() == {left.entry, tried.entry, *group.leases()}
    group.check()


def test_what_is_taken_over_again_and_again_is_an_attempt_only_where_it_began(group: Group) -> None:
    """Its consumers die: the first one's counts, another one's where it has said to begin."""
    group.publish("a", "b")
    assert [(raw.attempt, raw.counts) for raw in group.get("c0")] == [(1, True)] * 2
    for turn in range(1, 4):
        group.partition.now += LEASE_MS
        a, b = group.get(f"c{turn}")
        assert (a.delivery, a.attempt, a.counts) == (turn + 1, turn + 1, False)
        assert (b.delivery, b.attempt, b.counts) == (turn + 1, 2, False)
        assert group.settle(a, "begin", f"c{turn}") == "SETTLED"
    assert group.settle(a, "retry", "c3", at_ms=NOW, error="no") == "SETTLED"
    assert group.settle(b, "back", "c3") == "SETTLED"
    a, b = group.get("c4")
    assert [(raw.attempt, raw.counts) for raw in (a, b)] == [(5, True), (2, False)]  # handed back as it was
    for raw in (a, b):
        assert group.settle(raw, "begin", "c4") == "SETTLED"
        assert group.settle(raw, "back", "c4") == "SETTLED"  # cut short by a stop, which is no attempt
    assert [(raw.attempt, raw.counts) for raw in group.get("c5")] == [(5, True), (2, True)]
    group.check()


# ------------------------------------------------------------------------------------------------ lost replies


def test_what_the_reader_of_an_ordered_group_never_began_is_no_attempt(group: Group) -> None:
    """Its readers die, and it waits for its turn: it counts as begun once, and again when it is said to begin."""
    group.publish("a")
    for turn in range(4):
        group.partition.client.delete(group.key("reader"))
        (raw,) = (
            group.get(f"c{turn}", epoch=group.lead(f"c{turn}"), mine=True)
            if turn
            else group.get("c0", epoch=group.lead("c0"))
        )
        assert (raw.delivery, raw.attempt, raw.counts) == (turn + 1, 2 if turn else 1, not turn)
    (again,) = group.get("c3", epoch=group.lead("c3"), mine=True)
    assert again == raw
    for _ in range(2):
        assert group.settle(raw, "begin", "c3") == "SETTLED"
    (again,) = group.get("c3", epoch=group.lead("c3"), mine=True)
    assert (again.delivery, again.attempt, again.counts) == (4, 2, True)
    group.partition.client.delete(group.key("reader"))
    (raw,) = group.get("c4", epoch=group.lead("c4"), mine=True)
    assert (raw.delivery, raw.attempt, raw.counts) == (5, 3, False)
    assert group.settle(again, "begin", "c3") == "NOT_HELD"
    assert group.settle(raw, "back", "c4") == "SETTLED"  # handed back as it was
    (raw,) = group.get("c4", epoch=group.lead("c4"))
    assert (raw.delivery, raw.attempt, raw.counts) == (6, 3, False)
    group.check()


def test_a_reply_that_was_lost_is_told_as_such_and_what_it_handed_out_is_found(group: Group) -> None:
    group.publish("a", "b")
    p = group.partition
    command = receive(p.namespace, 0, "events", "g", "c1", count=100, lease_ms=LEASE_MS)
    lost = command.read(p.raw(command))
    before = p.state()
    assert command.read(p.evaluate(command)) == Received(p.now * 1000, [], wait_us=0, again=True)
    assert p.state() == before
    found = group.get(mine=True)
    assert [(raw.entry, raw.delivery, raw.attempt) for raw in found[:2]] == [
        (raw.entry, raw.delivery, raw.attempt) for raw in lost.deliveries
    ]
    assert keys_of(found) == ["a", "b"]
    assert [group.settle(raw, "ack") for raw in found] == ["SETTLED"] * 2
    assert group.get(mine=True) == []


def test_what_is_held_is_told_page_by_page_as_it_is_and_held_for_longer(group: Group) -> None:
    group.publish(*[f"k{i}" for i in range(5)])
    held = group.get()
    group.settle(held[1], "retry", at_ms=NOW + 1_000_000)
    Group(group.partition).get("c2")
    group.partition.now += LEASE_MS - 1
    told, after, pages = [], b"0-0", 0
    while True:
        page = group.read(mine=True, after=after, count=2)
        told += page.deliveries
        pages += 1
        if page.more is None:
            break
        assert page.wait_us == 0
        after = page.more
    assert pages >= 2
    assert [(raw.entry, raw.delivery, raw.attempt) for raw in told] == [
        (raw.entry, 1, 1) for raw in held if raw is not held[1]
    ]
    group.partition.now += LEASE_MS - 1
    assert group.get("c2") == []
    group.partition.now += 1
    assert len(group.get("c2")) == 4
    assert group.get(mine=True) == []
    group.check()


# ------------------------------------------------------------------------------------------------ faults


def test_a_group_that_was_destroyed_begins_anew(group: Group) -> None:
    group.publish("a", "b", "c")
    first, second, _ = group.get()
    group.settle(second, "retry", at_ms=NOW)
    group.partition.client.xgroup_destroy(group.stream_key, "g")
    assert group.settle(first, "ack") == "NOT_HELD"
    again = group.get("c2")
    assert keys_of(again) == ["a", "b", "c"]
    assert {raw.delivery for raw in again} == {1}
    group.check()


def test_a_stream_that_was_deleted_begins_anew(group: Group) -> None:
    group.publish("a", "b")
    raw, other = group.get()
    group.settle(other, "retry", at_ms=NOW)
    group.partition.client.delete(group.stream_key)
    assert group.settle(raw, "retry", at_ms=NOW) == "NOT_HELD"
    assert group.get("c2", mine=True) == []
    assert group.get("c2") == []
    group.publish("c")
    assert keys_of(group.get("c2")) == ["c"]
    group.check()


def test_where_the_stream_is_gone_nothing_is_asked_for_at_once(group: Group) -> None:
    group.publish("a")
    group.get()
    group.partition.client.delete(group.stream_key)
    group.partition.now += LEASE_MS  # so that one is looked for which is not there any more
    received = group.read("c2", count=1)
    assert (received.deliveries, received.end, received.wait_us) == ([], b"0-0", None)
    group.publish("b")
    assert keys_of(group.get("c2")) == ["b"]
    group.check()


@pytest.mark.parametrize("how", ["lease", "retry", "mine"])
def test_a_pending_entry_that_was_trimmed_is_cleared_and_counted(group: Group, how: str) -> None:
    group.publish("a", "b", "c")
    a, b, c = group.get()
    if how == "retry":
        for raw in (a, b, c):
            group.settle(raw, "retry", at_ms=NOW + LEASE_MS)
    group.partition.client.xdel(group.stream_key, b.entry)
    if how != "mine":
        group.partition.now += LEASE_MS
    received = group.read("c1" if how == "mine" else "c2", mine=how == "mine")
    assert keys_of(received.deliveries) == ["a", "c"]
    assert received.gone == 1
    assert group.partition.client.hget(group.partition.key("meta"), "gone") == b"1"
    assert set(group.pending()) == {a.entry, c.entry}
    group.check()


def test_what_cannot_be_taken_over_keeps_its_lease(group: Group) -> None:
    group.publish("a")
    (raw,) = group.get("c1")
    held = group.leases()
    group.partition.client.rename(group.stream_key, b"away")
    group.partition.client.set(group.stream_key, "not a stream")
    group.partition.now += LEASE_MS
    with pytest.raises(QueueUnavailable, match="WRONGTYPE"):
        group.get("c2")
    group.partition.client.rename(b"away", group.stream_key)
    assert group.leases() == held
    assert [each.entry for each in group.get("c2")] == [raw.entry]
    group.check()


@pytest.mark.parametrize("event", ["an id", "an\tid", "an\nid"])
def test_a_foreign_entry_is_handed_out_as_it_is(group: Group, event: str) -> None:
    client = group.partition.client
    client.xadd(group.stream_key, {"hello": "world"})
    client.xadd(group.stream_key, {"id": event, "tenant": "t", "key": "k", "owner": "", "version": "1"})
    group.publish("a")
    one, two, three = group.get()
    assert (one.fields, two.fields[b"id"], three.fields[b"key"]) == (
        {b"hello": b"world"},
        event.encode(),
        b"a",
    )
    assert group.settle(one, "ack", outcome="fine") == "SETTLED"
    assert group.settle(two, "retry", at_ms=NOW, error="no") == "SETTLED"
    (again,) = group.get()
    assert group.settle(again, "reject", error="no") == "SETTLED"
    assert group.settle(three, "ack") == "SETTLED"
    group.check()


def test_what_others_were_handed_in_the_group_is_taken_over_in_time(group: Group) -> None:
    group.publish("a", "b", "c", "d")
    client = group.partition.client
    client.xgroup_create(group.stream_key, "g", "0")
    client.xreadgroup("g", "bare", {group.stream_key: ">"}, count=2)  # by a program that knows no leases
    given = group.get()
    assert keys_of(given) == ["c", "d"]
    group.settle(given[0], "retry", at_ms=NOW + 1_000_000)
    assert group.get() == []
    group.partition.now += LEASE_MS - 1
    assert group.get("c2") == []
    group.partition.now += 1
    taken = group.get("c2")
    assert sorted(keys_of(taken)) == ["a", "b", "d"]
    group.check()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_each_event_is_handled_and_nothing_is_left(group: Group, seed: int) -> None:
    """Three consumers that take, crash, try again, give up and hand back at random."""
    choose = random.Random(seed)
    names = ["c1", "c2", "c3"]
    hands: dict[str, list[RawDelivery]] = {name: [] for name in names}
    settled: dict[str, list[str]] = {}
    group.publish("k0")
    published = 1
    hands["c1"] = group.get()
    for _ in range(150):
        name = choose.choice(names)
        what = choose.choice(
            ["publish", "read", "read", "ack", "ack", "retry", "reject", "back", "crash", "wait"]
        )
        if what == "publish" and published < 40:
            group.publish(f"k{published}")
            published += 1
        elif what == "read":
            hands[name] += group.get(name, count=choose.randint(1, 5), mine=choose.random() < 0.2)
        elif what == "crash":
            hands[name] = []
        elif what == "wait":
            group.partition.now += choose.choice([1, 700, LEASE_MS])
        elif what in ("ack", "retry", "reject", "back") and hands[name]:
            raw = hands[name].pop(choose.randrange(len(hands[name])))
            at_ms = group.partition.now + choose.choice([0, 10, 2_000])
            if what in ("ack", "reject"):
                at_ms = 0
            word = group.settle(raw, what, name, at_ms=at_ms)
            if what in ("ack", "reject") and word == "SETTLED":
                settled.setdefault(keys_of([raw])[0], []).append(what)
        group.check()
    for _ in range(50):
        group.partition.now += LEASE_MS
        for raw in group.get("last"):
            assert group.settle(raw, "ack", "last") == "SETTLED"
            settled.setdefault(keys_of([raw])[0], []).append("ack")
    assert settled.keys() == {f"k{i}" for i in range(published)}
    assert {len(each) for each in settled.values()} <= {1}
    assert not [*group.pending(), *group.leases(), *group.retries()]
    assert len(group.letters()) == sum(each == ["reject"] for each in settled.values())
    group.check()


def test_what_waits_to_be_tried_again_is_not_trimmed(real_client: Any, group: Group) -> None:
    p = group.partition
    old_ms = int(time.time() * 1000) - 2 * 86_400_000
    for i in range(300):
        real_client.xadd(group.stream_key, {"id": str(i)}, id=f"{old_ms + i}-0")
    given = [*group.get(), *group.get(), *group.get()]
    assert len(given) == 300
    group.settle(given[150], "retry", at_ms=p.now + 1_000_000)
    for raw in (*given[:150], *given[151:]):
        group.settle(raw, "ack")
    real_client.zadd(p.key("streams"), {"events": 1})
    trimmed = p.ask(trim(p.namespace, 0))
    assert 0 < trimmed.read <= 150
    p.now += 1_000_000
    assert [raw.entry for raw in group.get("c2")] == [given[150].entry]


def test_a_server_out_of_memory_hands_out_nothing(real_client: Any, group: Group) -> None:
    group.publish("a")
    group.get(count=1)
    group.publish("b")
    before = group.partition.state()
    real_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Exception, match="maxmemory"):
            group.get()
    finally:
        real_client.config_set("maxmemory", 0)
    assert group.partition.state() == before
    assert keys_of(group.get()) == ["b"]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("count", {"count": 0}),
        ("count", {"count": 201}),
        ("lease_ms", {"lease_ms": 0}),
        ("group", {"group": "a b"}),
        ("stream", {"stream": ""}),
        ("consumer", {"consumer": "(waiting)"}),
    ],
)
def test_what_is_no_name_or_number_is_refused(
    partition: Partition, field: str, words: dict[str, Any]
) -> None:
    given: dict[str, Any] = {
        "stream": "events",
        "group": "g",
        "consumer": "c",
        "count": 1,
        "lease_ms": 1,
        **words,
    }
    with pytest.raises(InvalidSchedule) as caught:
        receive(partition.namespace, 0, **given)
    assert caught.value.field == field
    if field in ("group", "stream", "consumer"):
        stream, group, consumer = given["stream"], given["group"], given["consumer"]
        with pytest.raises(InvalidSchedule):
            settle(partition.namespace, 0, stream, group, consumer, [])
        with pytest.raises(InvalidSchedule):
            lead_partition(partition.namespace, 0, stream, group, consumer, 5)


# ------------------------------------------------------------------------------------------------ bounds


def test_a_call_is_bounded_in_entries_and_bytes(group: Group) -> None:
    for _ in range(3):
        group.publish(*[f"k{i}" for i in range(100)])
    received = group.read(count=200)
    assert len(received.deliveries) == 200
    assert received.end is None
    group.publish(*[f"large{i}" for i in range(12)], payload="x" * 65_000)
    sizes = []
    while given := group.read(count=200):
        if not given.deliveries:
            break
        sizes.append(sum(len(value) for raw in given.deliveries for value in raw.fields.values()))
    assert max(sizes) < 262_144 + 4 * 66_000
    assert len(sizes) >= 3
    assert len(group.pending()) == 312
    group.partition.now += LEASE_MS
    taken = group.read("c2", count=200)
    assert (len(taken.deliveries), taken.wait_us) == (200, 0)
    group.check()


def test_what_is_told_of_what_is_held_is_bounded_in_bytes(group: Group) -> None:
    group.publish(*[f"large{i}" for i in range(12)], payload="x" * 65_000)
    while group.get():
        pass
    told: list[str] = []
    after, pages = b"0-0", 0
    while True:
        page = group.read(mine=True, after=after)
        told += keys_of(page.deliveries)
        assert len(page.deliveries) <= 8
        pages += 1
        if page.more is None:
            break
        after = page.more
    assert told == [f"large{i}" for i in range(12)]
    assert pages >= 2


# ------------------------------------------------------------------------------------------------ stale ones


def fire(group: Group, key: str = "k", **words: Any) -> None:
    """A one-shot, or what `words` say, that has fired and is on the stream."""
    group.partition.upsert(key, **(words or {"delay": 0}))
    group.partition.now += 1
    group.partition.drain()


def test_an_event_whose_key_was_cancelled_after_it_fired_is_dropped_and_counted(group: Group) -> None:
    fire(group, "k")
    fire(group, "other")
    assert group.partition.cancel("k").outcome == "NOT_PENDING"
    received = group.read()
    assert keys_of(received.deliveries) == ["other"]
    assert received.stale == 1
    assert group.partition.client.hget(group.partition.key("meta"), "stale") == b"1"
    fire(group, "k")
    assert keys_of(group.get()) == ["k"]  # armed after the cancel
    group.check()


@pytest.mark.parametrize("how", ["lease", "retry", "back"])
def test_an_event_that_is_tried_again_is_dropped_where_it_was_cancelled_meanwhile(
    group: Group, how: str
) -> None:
    fire(group, "k")
    (raw,) = group.get()
    if how == "retry":
        group.settle(raw, "retry", at_ms=NOW + LEASE_MS)
    elif how == "back":
        group.settle(raw, "back")
    group.partition.cancel("k")
    group.partition.now += LEASE_MS
    received = group.read("c2")
    assert (received.deliveries, received.stale) == ([], 1)
    assert group.pending() == {}
    group.check()


def test_a_recurring_one_that_was_cancelled_is_stale_but_not_its_successor(group: Group) -> None:
    fire(group, every=10, initial_delay=0)
    assert group.partition.cancel().outcome == "CANCELLED"
    assert group.read().stale == 1
    fire(group, every=10, initial_delay=0)
    assert keys_of(group.get()) == ["k"]


def test_events_of_an_earlier_version_or_of_a_trigger_are_cancelled_too(group: Group) -> None:
    fire(group, every=10, initial_delay=0)
    group.partition.upsert("k", every=20, initial_delay=1000)
    group.partition.upsert("t", delay=1000)
    group.partition.edit("trigger", "t")
    assert group.partition.cancel("k").outcome == group.partition.cancel("t").outcome == "CANCELLED"
    received = group.read()
    assert (received.deliveries, received.stale) == ([], 2)


def test_what_a_prefix_takes_away_is_stale_too(group: Group) -> None:
    fire(group, "a", every=10, initial_delay=0)
    group.partition.upsert("a", every=20, initial_delay=1000)
    assert group.partition.run(cancel.sweep(group.partition.scope, "a", None)) == 1
    assert group.read().stale == 1


def test_what_was_published_without_a_schedule_does_not_go_with_its_key(group: Group) -> None:
    group.publish("k")
    group.partition.cancel("k")
    assert keys_of(group.get()) == ["k"]


def test_the_events_of_an_owner_that_is_gone_are_dropped(group: Group) -> None:
    p = group.partition
    fire(group, "a", owner="o", delay=0)
    group.publish("b", owner="o")
    fire(group, "c", owner="alive", delay=0)
    p.client.set(p.key("floor:acme\0o"), p.client.hget(p.key("meta"), "last"))
    fire(group, "d", owner="o", delay=0)
    received = group.read()
    assert keys_of(received.deliveries) == ["c", "d"]
    assert received.stale == 2
    group.check()


def test_nothing_of_a_destroyed_owner_is_handed_out_also_to_be_tried_again(group: Group) -> None:
    p = group.partition
    fire(group, "tried", owner="o", every=1000, initial_delay=0)
    (raw,) = group.get()
    group.settle(raw, "retry", at_ms=p.now, error="no")
    fire(group, "unread", owner="o", delay=0)
    p.run(owner.destroy(p.scope, owner.Owned(b"acme", b"o", 0)))
    assert group.read().stale == 2
    assert group.pending() == {}
    fire(group, "unread", owner="o", delay=0)  # a new incarnation starts clean
    assert keys_of(group.get()) == ["unread"]


def test_another_tenants_floor_is_none(group: Group) -> None:
    p = group.partition
    fire(group, "k")
    p.do(cancel.item(p.of("other"), "k"), p.of("other"))
    assert keys_of(group.get()) == ["k"]


def test_reports_do_not_go_with_what_they_are_about(group: Group) -> None:
    p = group.partition
    errors = Group(p, "ops", "errors")
    p.upsert(every=10, overlap="skip")
    for _ in range(2):
        p.now += 10
        p.drain()
    p.cancel()
    assert [raw.fields[b"type"] for raw in errors.get()] == [b"schedule.skipped"]


@pytest.mark.parametrize("wanted", [True, False])
def test_an_event_whose_schedule_has_changed_or_is_paused_is_dropped_where_that_is_wanted(
    group: Group, wanted: bool
) -> None:
    p = group.partition
    fire(group, "changed", every=10, initial_delay=0)
    p.upsert("changed", every=20, initial_delay=1000)
    fire(group, "paused", every=1000, initial_delay=0)
    p.edit("pause", "paused")
    p.edit("trigger", "paused")
    fire(group, "same", every=1000, initial_delay=0)
    fire(group, "once")
    received = group.read(drop_superseded=wanted)
    triggered = ["paused"]
    expected = [*triggered, "same", "once"] if wanted else ["changed", "paused", *triggered, "same", "once"]
    assert keys_of(received.deliveries) == expected
    assert received.stale == (2 if wanted else 0)
    group.check()


def test_what_is_dropped_lets_go_on_what_waited_for_it(group: Group) -> None:
    p = group.partition
    fire(group, every=1000, initial_delay=0, overlap="skip")
    assert b"u" in p.record()
    p.upsert("k", every=500, overlap="skip")
    assert group.read(drop_superseded=True).stale == 1
    assert b"u" not in p.record()
    p.check()


def test_many_stale_ones_end_a_call_that_says_to_ask_again(group: Group) -> None:
    p = group.partition
    for i in range(30):
        fire(group, f"k{i}")
        p.cancel(f"k{i}")
    fire(group, "last")
    first = group.read(count=20)
    assert (first.deliveries, first.stale, first.wait_us, first.end) == ([], 20, 0, None)
    second = group.read(count=20)
    assert (keys_of(second.deliveries), second.stale) == (["last"], 10)


@pytest.mark.parametrize("ends", ["cancel", "destroy", "supersede", "nothing"])
def test_what_is_dead_holds_up_its_lane_no_longer(group: Group, ends: str) -> None:
    p = group.partition
    fire(group, owner="o", delay=0)
    epoch = group.lead()
    (raw,) = group.get(epoch=epoch)
    group.settle(raw, "retry", at_ms=p.now + 3_600_000, error="boom")
    if ends == "cancel":
        p.do(cancel.item(p.scope, "k", owner="o"))
    elif ends == "destroy":
        p.run(owner.destroy(p.scope, owner.Owned(p.scope.tenant_bytes, b"o", 0)))
    elif ends == "supersede":
        p.upsert("k", owner="o", delay=1000)
    received = group.read(epoch=epoch, drop_superseded=ends == "supersede")
    if ends == "nothing":
        assert (received.stale, received.cleared) == (0, ())
        assert list(group.retries()) == [raw.entry]
    else:
        assert (received.stale, received.cleared) == (1, (raw.entry,))
        assert group.pending() == {}
        assert group.retries() == {}
    group.check()


@pytest.mark.parametrize("what", ["event", "report"])
@pytest.mark.parametrize("left", [0, 1])
def test_what_was_trimmed_holds_up_its_lane_no_longer(partition: Partition, left: int, what: str) -> None:
    group = Group(partition, stream="events" if what == "event" else "errors")
    epoch = group.lead()
    group.publish("a", "b", owner="o")
    first, second = group.get(epoch=epoch)
    for raw in (first, second):
        group.settle(raw, "retry", at_ms=partition.now + 3_600_000, error="boom")
    partition.client.xtrim(group.stream_key, maxlen=left, approximate=False)
    received = group.read(epoch=epoch)
    kept = (second.entry,) * left
    assert (received.stale, received.gone) == (0, 2 - left)
    assert {*received.cleared, *kept} == {first.entry, second.entry}
    assert (*group.pending(), *group.retries()) == kept * 2
    group.check()


def test_of_many_that_wait_the_dead_ones_are_found_piece_by_piece(group: Group) -> None:
    p = group.partition
    epoch = group.lead()
    group.publish(*[f"k{n}" for n in range(130)], owner="alive")
    group.publish("dead", owner="o")
    for raw in group.get(epoch=epoch, count=200):
        group.settle(raw, "retry", at_ms=p.now + 3_600_000, error="boom")
    p.run(owner.destroy(p.scope, owner.Owned(p.scope.tenant_bytes, b"o", 0)))
    stale = 0
    for _ in range(130):
        p.now += 1000
        stale += group.read(epoch=epoch).stale
    assert stale == 1
    assert len(group.retries()) == 130
