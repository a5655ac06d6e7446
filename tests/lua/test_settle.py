"""settle.lua: what becomes of an event, said only by who holds it, and what it means for its schedule."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.group import LEASE_MS, Group, keys_of
from tests.support.partition import NOW, Partition
from timerq import InvalidSchedule
from timerq.commands import owner, read, recurring
from timerq.commands.consume import RawDelivery, Settlement, settle
from timerq.commands.lead import leave
from timerq.model import Fire, Schedule


@pytest.fixture
def group(partition: Partition) -> Group:
    return Group(partition)


def get(group: Group, key: str = "k") -> Schedule:
    found: Schedule | None = group.partition.run(read.get(group.partition.scope, key))
    assert found is not None
    return found


def one(group: Group, consumer: str = "c1") -> RawDelivery:
    """The only event there is to have."""
    (raw,) = group.get(consumer)
    return raw


def fired(group: Group, at_ms: int, **words: Any) -> RawDelivery:
    """An occurrence of k, in the hands of c1."""
    if words:
        group.partition.upsert(**words)
    group.partition.now = NOW + at_ms
    group.partition.drain()
    return one(group)


def test_what_is_handled_is_acknowledged_once(group: Group) -> None:
    group.publish("a", "b")
    a, b = group.get()
    assert group.settle(a, "ack") == "SETTLED"
    assert group.settle(a, "ack") == "NOT_HELD"
    assert group.pending() == {b.entry: b"c1"}
    assert group.say("c1", *[Settlement(raw.entry, raw.delivery, "ack") for raw in (b, b, a)]) == [
        "SETTLED",
        "NOT_HELD",
        "NOT_HELD",
    ]
    group.check()
    assert group.partition.client.xlen(group.stream_key) == 2  # other groups may want it


BEGIN_AND_ACK: tuple[Any, ...] = ("begin", "ack")
VERBS: list[tuple[Any, dict[str, Any]]] = [
    ("ack", {"outcome": "fine"}),
    ("retry", {"at_ms": NOW + 9_000, "error": "no"}),
    ("reject", {"error": "no"}),
    ("extend", {"lease_ms": 60_000}),
    ("back", {}),
    ("back", {"at_ms": NOW + 9_000}),
]


@pytest.mark.parametrize(("verb", "words"), VERBS)
def test_only_who_holds_that_very_delivery_changes_anything(
    group: Group, verb: Any, words: dict[str, Any]
) -> None:
    group.publish("a")
    old = one(group)
    group.partition.now += LEASE_MS
    new = one(group, "c2")
    before = {key: value for key, value in group.partition.state().items() if b":req:" not in key}
    assert group.settle(old, verb, **words) == "NOT_HELD"  # taken over
    assert group.settle(new, verb, "c3", **words) == "NOT_HELD"  # another's name
    assert group.settle(old, verb, "c2", **words) == "NOT_HELD"  # an old delivery of its own
    after = {key: value for key, value in group.partition.state().items() if b":req:" not in key}
    for state in (before, after):
        state[group.partition.key("meta")].pop(b"settled_ms", None)
    assert after == before
    assert group.settle(new, verb, "c2", **words) == "SETTLED"
    group.check()


@pytest.mark.parametrize(("verb", "words"), VERBS)
def test_what_somebody_acknowledged_by_hand_has_no_effects(
    group: Group, verb: Any, words: dict[str, Any]
) -> None:
    raw = fired(group, 0, every=1000, initial_delay=0, overlap="skip")
    group.partition.client.xack(group.stream_key, "g", raw.entry)
    if verb != "extend":
        assert group.settle(raw, verb, **words) == "NOT_HELD"
        assert group.leases() == group.retries() == {}
        assert group.settle(raw, "ack") == "NOT_HELD"
    else:
        assert group.settle(raw, verb, **words) == "SETTLED"  # nothing but a lease: the next look clears it
        group.partition.now += 60_000
        assert (group.read("c2").gone, group.leases()) == (1, {})
    assert group.letters() == []
    assert get(group).running is not None
    assert get(group).fires[0].outcome is None
    assert not group.partition.client.exists(group.key("hold"))


def test_a_longer_lease_keeps_it(group: Group) -> None:
    group.publish("a")
    raw = one(group)
    group.partition.now += LEASE_MS - 1
    assert group.settle(raw, "extend", lease_ms=60_000) == "SETTLED"
    group.partition.now += 59_999
    assert group.get("c2") == []
    group.partition.now += 1
    (taken,) = group.get("c2")
    assert (taken.delivery, group.settle(raw, "extend", lease_ms=60_000)) == (2, "NOT_HELD")
    assert group.leases() == {raw.entry: group.partition.now + LEASE_MS}


def test_a_lease_that_ran_out_is_still_its_holders_while_nobody_took_it(group: Group) -> None:
    group.publish("a")
    raw = one(group)
    group.partition.now += 10 * LEASE_MS
    assert group.settle(raw, "ack") == "SETTLED"


def test_what_is_handed_back_goes_to_the_next_who_asks_and_is_no_attempt(group: Group) -> None:
    group.publish("a", "b")
    a, b = group.get()
    assert group.settle(a, "back") == "SETTLED"
    assert group.settle(a, "ack") == "NOT_HELD"
    assert group.read("c1", mine=True, count=10).deliveries == [b]
    again = one(group, "c2")
    assert (again.entry, again.delivery, again.attempt) == (a.entry, 2, 1)
    assert group.settle(b, "back", at_ms=NOW + 700) == "SETTLED"
    assert group.retries() == {b.entry: NOW + 700}
    assert group.get("c2") == []
    group.partition.now += 700
    later = one(group, "c2")
    assert (later.entry, later.delivery, later.attempt) == (b.entry, 2, 1)
    group.check()


def test_what_is_given_up_before_it_began_has_the_attempts_that_began(group: Group) -> None:
    group.publish("a", "b")
    raw, _ = group.get()
    assert group.settle(raw, "reject", error="unreadable", begun=False) == "SETTLED"
    group.partition.now += LEASE_MS
    taken = one(group, "c2")
    assert (taken.attempt, taken.counts) == (2, False)
    assert group.settle(taken, "reject", "c2", error="enough", begun=False) == "SETTLED"
    assert [(letter[b"attempts"], letter[b"error"]) for letter in group.letters()] == [
        (b"0", b"unreadable"),
        (b"1", b"enough"),
    ]
    group.check()


def test_attempts_count_handlings_begun_and_the_first_failure_is_kept(group: Group) -> None:
    group.publish("a")
    seen = []
    for wait_ms in (1_000, 2_000, 4_000):
        raw = one(group)
        seen.append((raw.delivery, raw.attempt))
        assert group.settle(raw, "retry", at_ms=group.partition.now + wait_ms, error="no") == "SETTLED"
        group.check()
        group.partition.now += wait_ms
    raw = one(group)
    group.settle(raw, "back")
    raw = one(group)
    assert [*seen, (raw.delivery, raw.attempt)] == [(1, 1), (2, 2), (3, 3), (5, 4)]
    group.partition.now += 50
    assert group.settle(raw, "reject", error="never", traceback="line\n", outcome="lost") == "SETTLED"
    (letter,) = group.letters()
    assert letter == {
        **raw.fields,
        b"error": b"never",
        b"traceback": b"line\n",
        b"history": b"1 %d no\n2 %d no\n3 %d no" % (NOW, NOW + 1_000, NOW + 3_000),
        b"attempts": b"4",
        b"first_failed_ms": b"%d" % NOW,
        b"last_failed_ms": b"%d" % (NOW + 7_050),
        b"group": b"g",
        b"entry": raw.entry,
    }
    assert group.pending() == {}
    assert group.partition.client.hget(group.partition.key("meta"), "dead") == b"1"
    group.check()


def test_texts_are_bounded(group: Group) -> None:
    group.publish("a")
    raw = one(group)
    group.settle(raw, "reject", error="é" * 5_000, traceback="x" * 50_000 + "end")
    (letter,) = group.letters()
    assert len(letter[b"error"]) == 1_000
    assert len(letter[b"traceback"]) == 16_384
    assert letter[b"traceback"].endswith(b"end")


def test_a_dead_letter_of_a_trimmed_event_holds_what_is_known(group: Group) -> None:
    raw = fired(group, 0, delay=0)
    group.partition.client.xdel(group.stream_key, raw.entry)
    assert group.settle(raw, "reject", error="no") == "SETTLED"
    (letter,) = group.letters()
    assert (letter[b"id"], letter[b"at"], letter[b"entry"]) == (
        raw.fields[b"id"],
        raw.fields[b"at"],
        raw.entry,
    )
    assert group.pending() == {}


def test_what_has_too_many_fields_is_given_up_with_the_first_of_them(group: Group) -> None:
    client = group.partition.client
    client.execute_command(
        "XADD", group.stream_key, "*", *[word for n in range(5_000) for word in (f"f{n}", "v")]
    )
    assert group.settle(one(group), "reject", error="unreadable") == "SETTLED"
    (letter,) = group.letters()
    assert letter[b"f999"] == b"v"
    assert letter[b"error"] == b"unreadable (of its 5000 fields, these are the first 1000)"
    assert len(letter) == 1_008
    assert group.pending() == {}


def test_one_that_cannot_be_settled_stops_no_other_and_is_still_held(group: Group) -> None:
    group.publish("a", "b")
    a, b = group.get()
    group.partition.client.set(group.key("dead"), "not a stream")
    words = group.say(
        "c1", Settlement(a.entry, a.delivery, "reject", error="no"), Settlement(b.entry, b.delivery, "ack")
    )
    assert words[0].startswith("BROKEN WRONGTYPE")
    assert words[1] == "SETTLED"
    assert group.pending() == {a.entry: b"c1"}
    group.partition.client.delete(group.key("dead"))
    assert group.settle(a, "reject", error="no") == "SETTLED"
    group.check()


def test_what_is_lengthened_and_handed_back_in_one_call_is_free_at_once(group: Group) -> None:
    group.publish("a")
    raw = one(group)
    assert (
        group.say(
            "c1",
            Settlement(raw.entry, raw.delivery, "extend", lease_ms=60_000),
            Settlement(raw.entry, raw.delivery, "back"),
        )
        == ["SETTLED"] * 2
    )
    assert one(group, "c2").entry == raw.entry


def test_what_cannot_be_acknowledged_is_still_held(group: Group) -> None:
    group.publish("a")
    raw = one(group)
    held = group.leases()
    group.partition.client.rename(group.stream_key, b"away")
    group.partition.client.set(group.stream_key, "not a stream")
    assert group.settle(raw, "ack").startswith("BROKEN WRONGTYPE")
    group.partition.client.rename(b"away", group.stream_key)
    assert group.leases() == held
    assert group.settle(raw, "ack") == "SETTLED"
    group.check()


def test_a_call_takes_two_hundred(group: Group) -> None:
    group.publish(*["k"] * 200)
    raws = group.get(count=200)
    items = [Settlement(raw.entry, raw.delivery, "ack") for raw in raws]
    with pytest.raises(InvalidSchedule):
        settle(group.partition.namespace, 0, "events", "g", "c1", [*items, items[0]])
    assert set(group.say("c1", *items)) == {"SETTLED"}
    assert group.say("c1") == []
    assert group.pending() == {}


# ------------------------------------------------------------------------------------------------ its schedule


def test_ack_closes_an_overlap(group: Group) -> None:
    raw = fired(group, 0, every=1000, initial_delay=0, overlap="skip")
    assert get(group).running == raw.fields[b"id"].decode()
    group.settle(raw, "retry", at_ms=NOW + 100, error="no")
    assert get(group).running is not None  # it still runs
    group.partition.now = NOW + 100
    group.settle(one(group), "ack")
    assert get(group).running is None
    assert fired(group, 1000).fields[b"n"] == b"2"
    group.partition.check()


@pytest.mark.parametrize("verb", ["ack", "reject"])
def test_what_waits_in_a_queue_comes_at_once(group: Group, verb: Any) -> None:
    raw = fired(group, 0, every=1000, initial_delay=0, overlap="queue")
    group.partition.now = NOW + 1500
    group.partition.drain()
    assert group.get() == []
    group.settle(raw, verb)
    group.partition.drain()
    assert one(group).fields[b"at"] == b"%d" % (NOW + 1000)
    group.partition.check()


def test_a_fixed_delay_counts_from_the_ack(group: Group) -> None:
    raw = fired(group, 0, every=1000, initial_delay=0, fixed_delay=True, ack_group="g")
    group.partition.now = NOW + 2500
    group.settle(raw, "ack")
    assert get(group).at_ms == NOW + 3500
    group.partition.check()


def test_only_the_group_that_the_schedule_names_closes_it(group: Group) -> None:
    other = Group(group.partition, "other")
    raw = fired(group, 0, every=1000, initial_delay=0, overlap="skip", ack_group="g")
    other.settle(one(other), "ack")
    assert get(group).running is not None
    group.settle(raw, "ack")
    assert get(group).running is None


def test_whichever_group_is_first_closes_it_where_none_is_named(group: Group) -> None:
    other = Group(group.partition, "other")
    raw = fired(group, 0, every=1000, initial_delay=0, overlap="skip")
    other.settle(one(other), "ack")
    assert get(group).running is None
    assert group.settle(raw, "ack") == "SETTLED"
    group.partition.check()


def test_what_is_given_up_counts_towards_a_pause_and_what_is_tried_again_does_not(group: Group) -> None:
    raw = fired(group, 0, every=1000, initial_delay=0, pause_after=2)
    group.settle(raw, "retry", at_ms=NOW + 1, error="no")
    group.partition.now = NOW + 1
    group.settle(one(group), "reject", error="no")
    assert get(group).failures == 1
    group.settle(fired(group, 1000), "ack")
    assert get(group).failures == 0
    for at_ms in (2000, 3000):
        group.settle(fired(group, at_ms), "reject", error="no")
    stored = get(group)
    assert (stored.state, stored.failures, stored.paused_by) == ("paused", 2, "timerq")
    assert stored.paused_note == "2 failures in a row: no"
    group.partition.check()


def test_an_event_that_was_said_done_already_changes_nothing_more(group: Group) -> None:
    raw = fired(group, 0, every=1000, initial_delay=0, pause_after=2)
    group.partition.run(recurring.done(group.partition.scope, raw.fields[b"id"].decode(), "no"))
    assert get(group).failures == 1
    group.settle(raw, "reject", error="no")
    assert get(group).failures == 1


def test_the_last_outcome_of_each_occurrence_is_kept_with_the_fires(group: Group) -> None:
    group.settle(fired(group, 0, every=1000, initial_delay=0), "ack", outcome="3 mails sent")
    group.settle(fired(group, 1000), "retry", at_ms=NOW + 1001, error="no route")
    assert get(group).fires[1] == Fire(NOW + 1000, NOW + 1000, 0, "retry", 1, "no route")
    group.partition.now = NOW + 2000
    group.partition.drain()
    again, _ = group.get()
    group.settle(again, "reject", error="no route")
    stored = get(group)
    assert stored.fires == (
        Fire(NOW, NOW, 0, "ok", 1, "3 mails sent"),
        Fire(NOW + 1000, NOW + 1000, 0, "failed", 2, "no route"),
        Fire(NOW + 2000, NOW + 2000),
    )


def test_what_has_no_outcome_takes_none_from_the_next_of_its_call(group: Group) -> None:
    raw = fired(group, 0, every=1000, initial_delay=0)
    group.publish("a")
    other = one(group)
    items = (
        Settlement(raw.entry, raw.delivery, "ack"),
        Settlement(other.entry, other.delivery, "ack", outcome="x"),
    )
    assert group.say("c1", *items) == ["SETTLED"] * 2
    assert get(group).fires == (Fire(NOW, NOW, 0, "ok", 1, ""),)


def test_outcomes_stay_with_the_last_fires_where_the_schedule_is_set_anew(group: Group) -> None:
    raw = fired(group, 0, every=1000, initial_delay=0)
    assert group.settle(raw, "ack", outcome="sent 3") == "SETTLED"
    group.partition.upsert(every=2000)
    assert [(fire.outcome, fire.summary) for fire in get(group).fires] == [("ok", "sent 3")]
    group.partition.upsert(every=3000, reset=True)
    assert get(group).fires == ()


def test_an_outcome_makes_no_record_larger_than_a_listpack_holds(group: Group) -> None:
    for turn in range(12):
        words = {"every": 1000, "initial_delay": 0} if turn == 0 else {}
        group.settle(fired(group, 1000 * turn, **words), "ack", outcome="é" * 100)
    record = group.partition.record()
    assert {len(value) <= 64 for value in record.values()} == {True}
    fires = get(group).fires
    assert [fire.outcome for fire in fires] == ["ok"] * 10
    assert {fire.summary for fire in fires} == {"é" * 21 + "…"}  # an ellipsis says that it was cut
    # the place of one that is not handled yet tells nothing of the one before
    fired(group, 12_000)
    assert [fire.outcome for fire in get(group).fires] == ["ok"] * 9 + [None]
    group.partition.upsert("k", every=500)
    assert len(get(group).fires) == 10
    group.partition.check()


def test_what_a_trigger_made_is_no_occurrence(group: Group) -> None:
    group.settle(fired(group, 0, every=1000, initial_delay=0), "ack")
    group.partition.edit("trigger")
    group.settle(one(group), "reject", error="no")
    assert [fire.outcome for fire in get(group).fires] == ["ok"]


def test_a_record_that_cannot_be_read_stops_no_ack(group: Group) -> None:
    raw = fired(group, 0, every=1000, initial_delay=0, overlap="skip")
    group.partition.client.hset(group.partition.record_key(), "o", "rubbish")
    assert group.settle(raw, "ack", outcome="fine") == "SETTLED"
    assert group.pending() == {}
    group.partition.client.delete(group.partition.record_key())
    group.partition.client.rpush(group.partition.record_key(), "not a record")
    group.publish("k")
    assert group.settle(one(group), "ack") == "SETTLED"


# ------------------------------------------------------------------------------------------------ beginning


@pytest.mark.parametrize("verb", ["cancel", "destroy"])
def test_what_died_since_it_was_handed_out_does_not_begin(group: Group, verb: str) -> None:
    p = group.partition
    raw = fired(group, 0, delay=0, owner="o")
    if verb == "cancel":
        p.cancel(owner="o")
    else:
        p.run(owner.destroy(p.scope, owner.Owned(b"acme", b"o", 0)))
    p.upsert(owner="o", delay=0)
    new = fired(group, 0)
    items = [Settlement(each.entry, each.delivery, word) for each in (raw, new) for word in BEGIN_AND_ACK]
    assert group.say("c1", *items) == ["STALE", "NOT_HELD", "SETTLED", "SETTLED"]
    assert group.settle(raw, "begin") == "NOT_HELD"
    assert p.client.hget(p.key("meta"), "stale") == b"1"
    assert group.pending() == {}
    group.check()


def test_what_does_not_begin_closes_its_overlap_and_is_stale_for_its_group_alone(group: Group) -> None:
    p = group.partition
    other = Group(p, "other")
    raw = fired(group, 0, every=1000, initial_delay=0, overlap="skip")
    theirs = one(other)
    p.cancel()
    assert p.client.exists(p.key(f"run:{raw.fields[b'id'].decode()}"))
    assert group.settle(raw, "begin") == "STALE"
    assert not p.client.exists(p.key(f"run:{raw.fields[b'id'].decode()}"))
    assert other.pending() == {theirs.entry: b"c1"}
    assert other.settle(theirs, "ack") == "SETTLED"  # what runs already may end


def test_what_was_acknowledged_by_hand_is_not_said_to_be_stale(group: Group) -> None:
    raw = fired(group, 0, delay=0)
    group.partition.cancel()
    group.partition.client.xack(group.stream_key, "g", raw.entry)
    assert group.settle(raw, "begin") == "NOT_HELD"
    assert group.partition.client.hget(group.partition.key("meta"), "stale") is None
    group.check()


def test_what_does_not_go_with_its_key_begins(group: Group) -> None:
    p = group.partition
    errors = Group(p, "ops", "errors")
    group.publish("k")
    published = one(group)
    p.upsert(every=10, overlap="skip")
    for _ in range(2):
        p.now += 10
        p.drain()
    (report,) = errors.get()
    ran = one(group)
    p.cancel()
    assert errors.settle(report, "begin") == "SETTLED"
    assert [group.settle(raw, "begin") for raw in (published, ran)] == ["SETTLED", "STALE"]


# ------------------------------------------------------------------------------------------------ leaving


def test_who_leaves_is_forgotten_by_the_group_unless_it_holds_something(
    real_client: Any, group: Group
) -> None:
    p = group.partition
    group.publish("a")
    raw = one(group)

    def names() -> set[bytes]:
        return {each["name"] for each in real_client.xinfo_consumers(group.stream_key, "g")}

    assert p.ask(leave(p.namespace, 0, "events", "g", "c1")) == 0
    assert names() == {b"c1"}
    group.settle(raw, "back")
    assert p.ask(leave(p.namespace, 0, "events", "g", "c1")) == 1
    assert b"c1" not in names()
    (again,) = group.get("c2")
    assert (again.entry, keys_of([again])) == (raw.entry, ["a"])
    assert p.ask(leave(p.namespace, 0, "events", "none", "c1")) == 0
