"""fire.lua and advance.lua: what is due goes to its stream once, whatever is wrong with its neighbours."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.partition import EVENT, NOW, Partition
from tests.support.ticks import interval_after
from timerq import Event, Upsert
from timerq.commands import upsert
from timerq.commands.dispatch import LEASE_MS, Advance, fire

FIELDS = [
    "id", "type", "key", "tenant", "owner", "at", "fired_ms", "n", "version", "missed", "payload", "content_type",
    "correlation",
]  # fmt: skip


def ids(partition: Partition, stream: str = "events") -> list[str]:
    return [event["key"] for event in partition.events(stream)]


# ------------------------------------------------------------------------------------------------ events


def test_an_event_says_all_there_is_to_say(partition: Partition) -> None:
    event = Event("order.due", {"a": 1}, stream="orders", correlation={"trace": "é"}, codec="json")
    made = partition.upsert("k:1", event, delay=5, owner="o")
    partition.now += 7
    fired = partition.fire()
    assert (fired.published, fired.held, fired.dropped, fired.wait_us, fired.handovers) == (1, 0, 0, None, [])
    ((_, fields),) = partition.client.xrange(partition.key("s:orders"))
    assert [name.decode() for name in fields] == FIELDS
    assert fields == {
        b"id": b"0-%d-1" % made.version, b"type": b"order.due", b"key": b"k:1", b"tenant": b"acme", b"owner": b"o",
        b"at": b"%d" % (NOW + 5), b"fired_ms": b"%d" % (NOW + 7), b"n": b"1", b"version": b"%d" % made.version,
        b"missed": b"0", b"payload": b'{"a":1}', b"content_type": b"application/json",
        b"correlation": '{"trace":"é"}'.encode(),
    }  # fmt: skip
    assert partition.record("k:1", "o") == {}
    partition.check()


@pytest.mark.parametrize("size", [0, 1, 60, 63, 64, 65, 128, 190, 255, 256, 257, 5000, 65_000])
def test_a_payload_cut_into_pieces_is_whole_on_the_stream(partition: Partition, size: int) -> None:
    payload = bytes(i % 251 for i in range(size))
    partition.upsert("k", Event("t", payload), delay=0)
    partition.fire()
    import msgpack

    ((_, fields),) = partition.client.xrange(partition.key("s:events"))
    assert msgpack.unpackb(fields[b"payload"]) == payload


def test_nothing_fires_early_and_the_wait_is_exact(partition: Partition) -> None:
    partition.upsert(delay=5)
    fired = partition.fire()
    assert (fired.published, fired.wait_us) == (0, 5000)
    partition.now += 4
    assert partition.fire().wait_us == 1000
    partition.now += 1
    assert partition.fire().published == 1


def test_a_lower_rank_leaves_alone_what_has_just_become_due(partition: Partition) -> None:
    partition.upsert(delay=5)
    partition.now += 5
    fired = partition.fire(lag_ms=100)
    assert (fired.published, fired.wait_us) == (0, 100_000)
    partition.now += 99
    assert partition.fire(lag_ms=100).published == 0
    partition.now += 1
    assert partition.fire(lag_ms=100).published == 1


def test_the_oldest_go_first_and_ties_in_key_order(partition: Partition) -> None:
    for key, delay in (("c", 3), ("a", 5), ("b", 3), ("d", 1)):
        partition.upsert(key, delay=delay)
    partition.now += 5
    assert partition.fire(batch=2).wait_us == 0
    assert ids(partition) == ["d", "b"]
    partition.fire()
    assert ids(partition) == ["d", "b", "c", "a"]


def test_an_event_goes_to_its_own_stream_and_the_streams_are_known(partition: Partition) -> None:
    for i, stream in enumerate(("a", "b", "a")):
        partition.upsert(f"k{i}", Event("t", stream=stream), delay=0)
    partition.fire()
    assert (ids(partition, "a"), ids(partition, "b")) == (["k0", "k2"], ["k1"])
    assert partition.client.zrange(partition.key("streams"), 0, -1) == [b"a", b"b"]


# ------------------------------------------------------------------------------------------------ fairness


def test_a_tenant_with_much_to_fire_does_not_starve_the_others(partition: Partition) -> None:
    for i in range(50):
        partition.upsert(f"k{i}", delay=0)
    for tenant in ("b", "c", "d"):
        partition.upsert("k", delay=0, scope=partition.of(tenant))
    fired = partition.fire(batch=8)
    assert (fired.published, fired.wait_us) == (5, 0)
    assert Counter(event["tenant"] for event in partition.events()) == {"acme": 2, "b": 1, "c": 1, "d": 1}
    assert partition.fire(batch=8).published == 8
    partition.check()


def test_with_more_tenants_than_a_batch_each_has_its_turn(partition: Partition) -> None:
    tenants = [f"t{i:02}" for i in range(12)]
    for tenant in tenants:
        for key in ("a", "b"):
            partition.upsert(key, delay=0, scope=partition.of(tenant))
        partition.now += 1
    for _ in range(6):
        assert partition.fire(batch=4).published == 4
    assert Counter(event["tenant"] for event in partition.events()) == dict.fromkeys(tenants, 2)
    assert partition.fire().wait_us is None
    partition.check()


# ------------------------------------------------------------------------------------------------ bounds


def test_a_call_touches_at_most_a_batch_and_at_most_200(partition: Partition) -> None:
    for _ in range(2):
        partition.all([upsert.item(partition.scope, Upsert(f"k{i}", EVENT, delay=0)) for i in range(200)])
    partition.all([upsert.item(partition.scope, Upsert(f"l{i}", EVENT, delay=0)) for i in range(200)])
    assert partition.fire(batch=3).published == 3
    fired = partition.ask(fire(partition.namespace, 0, batch=5000))
    assert (fired.published, fired.wait_us) == (200, 0)


def test_a_call_publishes_a_bounded_number_of_bytes(partition: Partition) -> None:
    large = Event("t", "x" * 65_000)
    for tenant in ("a", "b"):
        scope = partition.of(tenant)
        for i in range(12):
            partition.upsert(f"k{i}", large, delay=0, scope=scope)
    calls = [partition.fire().published for _ in range(8)]
    assert sum(calls) == 24
    assert max(calls) <= 6  # 256 KiB, and the one that passed the bound for each tenant
    partition.check()


def test_a_tenant_whose_due_set_is_none_stops_no_other(partition: Partition) -> None:
    partition.upsert("k", delay=0, scope=partition.of("broken"))
    partition.client.delete(partition.key("due:broken"))
    partition.client.set(partition.key("due:broken"), "no sorted set")
    partition.now += 1
    partition.upsert("k", delay=0)
    fired = partition.fire()
    assert (fired.published, fired.held, fired.wait_us) == (1, 1, 1_000_000)
    assert partition.log()[-1][0] == "held"
    partition.client.delete(partition.key("due:broken"))
    partition.now += 1000
    assert partition.fire().wait_us is None


def test_correlations_count_too(partition: Partition) -> None:
    event = Event("t", correlation={"trace": "x" * 4000})
    for i in range(200):
        partition.upsert(f"k{i}", event, delay=0)
    assert partition.fire().published == 66  # 4,013 bytes each
    partition.check()


def test_many_tenants_with_large_events_are_bounded_too(partition: Partition) -> None:
    large = Event("t", "x" * 65_000)
    for i in range(40):
        partition.upsert("k", large, delay=0, scope=partition.of(f"t{i}"))
    calls: list[int] = []
    while sum(calls) < 40:
        calls.append(partition.fire().published)
    assert max(calls) <= 6
    assert Counter(event["tenant"] for event in partition.events()) == {f"t{i}": 1 for i in range(40)}
    partition.check()


# ------------------------------------------------------------------------------------------------ bad apples


def spoil_unknown_field(p: Partition) -> None:
    p.client.hset(p.record_key("bad"), "a", "1")


def spoil_state(p: Partition) -> None:
    p.client.hset(p.record_key("bad"), "s", "rubbish")


def spoil_definition(p: Partition) -> None:
    p.client.hset(p.record_key("bad"), "d", "rubbish")


def spoil_payload(p: Partition) -> None:
    p.client.hdel(p.record_key("bad"), "p")


def spoil_content(p: Partition) -> None:
    p.client.hset(p.record_key("bad"), "d", "o events z t")


def spoil_type(p: Partition) -> None:
    p.client.delete(p.record_key("bad"))
    p.client.rpush(p.record_key("bad"), "not a record")


def spoil_stream(p: Partition) -> None:
    p.client.hset(p.record_key("bad"), "d", "o wrong m t")
    p.client.set(p.key("s:wrong"), "not a stream")


SPOILERS = [
    spoil_unknown_field, spoil_state, spoil_definition, spoil_payload, spoil_content, spoil_type, spoil_stream,
]  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILERS)
def test_one_bad_apple_is_held_and_the_rest_goes_on(partition: Partition, spoil: Any) -> None:
    for key in ("a", "bad", "z"):
        partition.upsert(key, delay=0)
    partition.upsert("next", delay=0, scope=partition.of("zebra"))
    spoil(partition)
    fired = partition.fire()
    assert (fired.published, fired.held) == (3, 1)
    assert ids(partition) == ["a", "z", "next"]
    id = b"acme\0bad\0"
    assert partition.client.zrange(partition.key("held"), 0, -1) == [id]
    assert partition.client.zscore(partition.key("due:acme"), id) == NOW + 1000
    assert [what for what, _ in partition.log()] == ["held"]
    assert partition.fire().published == 0  # and nothing twice


def test_a_held_one_is_tried_again_less_and_less_often_and_fires_when_all_is_well(
    partition: Partition,
) -> None:
    partition.upsert("bad", delay=0)
    spoil_stream(partition)
    waits = []
    for _ in range(8):
        fired = partition.fire()
        assert (fired.published, fired.held) == (0, 1)
        assert fired.wait_us is not None
        waits.append(fired.wait_us // 1000)
        partition.now += waits[-1] - 1
        assert partition.fire().held == 0
        partition.now += 1
    assert waits == [1000, 2000, 4000, 8000, 16_000, 32_000, 32_000, 32_000]
    record = partition.record("bad")
    assert record[b"s"].startswith(b"h ")
    assert b"wrong" in record[b"e"]
    assert len(record[b"e"]) <= 200
    partition.check()
    partition.client.delete(partition.key("s:wrong"))
    assert partition.fire().published == 1
    ((event),) = partition.events("wrong")
    assert (event["at"], event["n"]) == (str(NOW), "1")
    assert not partition.client.exists(partition.key("held"))
    partition.check()


def test_a_held_interval_keeps_its_grid(partition: Partition) -> None:
    partition.upsert("bad", every=300)
    partition.client.hset(partition.record_key("bad"), "d", "e300 wrong m t")
    partition.client.set(partition.key("s:wrong"), "not a stream")
    partition.now += 300
    assert partition.fire().held == 1
    partition.now += 1000
    partition.client.delete(partition.key("s:wrong"))
    assert partition.fire().published == 1
    (event,) = partition.events("wrong")
    assert (event["at"], event["missed"]) == (str(NOW + 300), "3")
    record = partition.record("bad")
    assert record[b"s"].split(b" ")[0::2] == [b"a", b"%d" % (NOW + 1500), b"1"]
    assert b"e" not in record
    partition.check()


@pytest.mark.parametrize("cure", ["upsert", "cancel", "pause", "pause and resume"])
@pytest.mark.parametrize("spoil", [spoil_unknown_field, spoil_stream])
def test_a_held_one_can_be_cured_or_taken_out(partition: Partition, spoil: Any, cure: str) -> None:
    partition.upsert("bad", delay=0)
    spoil(partition)
    partition.fire()
    if cure == "upsert":
        assert partition.upsert("bad", delay=0).outcome == "REPLACED"
    elif cure == "cancel":
        assert partition.cancel("bad").outcome == "CANCELLED"
    else:
        assert partition.edit("pause", "bad").outcome == "PAUSED"
        assert b"e" not in partition.record("bad")
        if cure == "pause and resume":
            assert partition.edit("resume", "bad").outcome == "RESUMED"
    assert not partition.client.exists(partition.key("held"))
    partition.check()
    fired = partition.fire()
    assert fired.published == (cure == "upsert")
    assert fired.held == (cure == "pause and resume")


@pytest.mark.parametrize("spoil", [spoil_state, spoil_definition])
def test_an_unreadable_record_is_cured_by_an_upsert_or_cancelled(partition: Partition, spoil: Any) -> None:
    for cure in ("upsert", "cancel"):
        partition.upsert("bad", every=5, initial_delay=0)
        spoil(partition)
        partition.fire()
        if cure == "upsert":
            assert partition.upsert("bad", delay=0).outcome == "REPLACED"
            partition.check()
            assert partition.fire().published == 1
        else:
            assert partition.cancel("bad").outcome == "CANCELLED"
        partition.check()
        assert partition.client.zcard(partition.key("keys")) == 0


def test_a_waiting_member_without_a_record_is_removed_and_counted(partition: Partition) -> None:
    for key in ("a", "b"):
        partition.upsert(key, owner="o", delay=0)
    partition.client.delete(partition.record_key("a", "o"))
    fired = partition.fire()
    assert (fired.published, fired.held, fired.dropped) == (1, 0, 0)
    assert partition.log() == [("orphan", "in the due set without a record")]
    assert partition.client.hget(partition.key("meta"), "orphans") == b"1"
    partition.check()


def test_an_expired_record_of_a_whole_tenant_leaves_no_head_behind(partition: Partition) -> None:
    partition.client.zadd(partition.key("heads"), {"ghost": NOW - 5})
    assert partition.fire().wait_us is None
    assert not partition.client.exists(partition.key("heads"))


@pytest.mark.parametrize("kind", ["once", "every"])
def test_the_record_is_the_truth_and_the_score_is_not(partition: Partition, kind: str) -> None:
    if kind == "once":
        partition.upsert(delay=50)
    else:
        partition.upsert(every=50)
    partition.client.zadd(partition.key("due:acme"), {"acme\0k\0": NOW - 5})
    partition.client.zadd(partition.key("heads"), {"acme": NOW - 5})
    fired = partition.fire()
    assert (fired.published, fired.wait_us) == (0, 50_000)
    partition.check()
    partition.now += 50
    assert partition.fire().published == 1


def test_a_paused_one_in_the_due_set_leaves_it(partition: Partition) -> None:
    partition.upsert(delay=0)
    partition.edit("pause")
    partition.client.zadd(partition.key("due:acme"), {"acme\0k\0": NOW})
    partition.client.zadd(partition.key("heads"), {"acme": NOW})
    assert partition.fire().published == 0
    partition.check()


def test_a_log_or_a_list_of_streams_that_cannot_be_written_repeats_nothing(partition: Partition) -> None:
    partition.upsert("bad", delay=0)
    spoil_stream(partition)
    partition.upsert("tick", every=10, initial_delay=0)
    partition.client.set(partition.key("log"), "not a stream")
    partition.client.set(partition.key("streams"), "not a sorted set")
    partition.now += 25
    for _ in range(3):
        partition.fire()
    assert [(event["n"], event["missed"]) for event in partition.events()] == [("1", "2")]
    assert partition.cancel("bad").outcome == "CANCELLED"


# ------------------------------------------------------------------------------------------------ floors


def test_what_a_dead_owner_left_is_dropped_and_what_is_newer_fires(partition: Partition) -> None:
    dead = [partition.upsert(f"k{i}", owner="o", delay=0).version for i in range(3)]
    partition.upsert("tick", owner="o", every=5, initial_delay=0)
    partition.client.set(partition.key("floor:acme\0o"), partition.client.hget(partition.key("meta"), "last"))
    partition.upsert("k1", owner="o", delay=0)
    partition.upsert("other", owner="p", delay=0)
    fired = partition.fire()
    assert (fired.published, fired.dropped) == (2, 3)
    assert ids(partition) == ["k1", "other"]
    assert int(partition.events()[0]["version"]) > max(dead)
    assert partition.client.hget(partition.key("meta"), "dropped") == b"3"
    assert [what for what, _ in partition.log()].count("dropped") == 3
    partition.check()


def test_an_older_handle_of_an_owner_arms_nothing(partition: Partition) -> None:
    born = partition.upsert("k", owner="o", delay=5).version
    partition.client.set(partition.key("floor:acme\0o"), born)
    assert partition.upsert("l", owner="o", delay=5, incarnation=born).outcome == "OWNER_GONE"
    assert partition.upsert("l", owner="o", delay=5, incarnation=born + 1).outcome == "CREATED"


# ------------------------------------------------------------------------------------------------ intervals


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(every=st.integers(1, 10**12), steps=st.lists(st.integers(0, 10**12), min_size=1, max_size=6))
def test_the_grid_is_that_of_interval_after(partition: Partition, every: int, steps: list[int]) -> None:
    partition.now = NOW
    partition.client.delete(partition.key("s:events"))
    made = partition.upsert("k", every=every, restart=True, paused=False, reset=True)
    at = made.at_ms
    for n, step in enumerate(steps, 1):
        partition.now = at + step
        assert partition.fire().published == 1
        event = partition.events()[-1]
        following, missed = interval_after(at, every, partition.now)
        assert (event["at"], event["missed"], event["n"]) == (str(at), str(missed), str(n))
        assert partition.record()[b"s"].decode().split(" ")[2] == str(following)
        assert following > partition.now
        at = following


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    every=st.integers(1, 50),
    until=st.integers(0, 300),
    limit=st.none() | st.integers(1, 8),
    steps=st.lists(st.integers(0, 60), min_size=30, max_size=30),
)
def test_until_and_limit_end_it_and_every_slot_is_told_once(
    partition: Partition, every: int, until: int, limit: int | None, steps: list[int]
) -> None:
    partition.now = NOW
    partition.client.delete(partition.key("s:events"))
    if until < every:
        with pytest.raises(ValueError, match="until"):
            partition.upsert("k", every=every, until=NOW + until, limit=limit, restart=True, reset=True)
        return
    partition.upsert("k", every=every, until=NOW + until, limit=limit, restart=True, reset=True)
    for step in steps:
        partition.now += step
        partition.fire()
    partition.now += 1000
    for _ in range(300):
        if not partition.fire().published:
            break
    assert partition.record() == {}
    partition.check()
    told = []
    for event in partition.events():
        at, missed = int(event["at"]) - NOW, int(event["missed"])
        told += [at + i * every for i in range(missed + 1)]
    slots = list(range(every, until + 1, every))
    if limit is None or len(partition.events()) < limit:
        assert told == slots
    else:
        assert len(partition.events()) == limit
        assert told == slots[: len(told)]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_limit_counts_over_changes_until_it_is_reset(partition: Partition, limit: int) -> None:
    partition.upsert(every=10, limit=limit + 2)
    for _ in range(2):
        partition.now += 10
        partition.fire()
    assert partition.record()[b"t"] == b"2 0 0"
    assert partition.upsert(every=20, limit=limit + 2).outcome == "REPLACED"
    if limit + 2 > 3:
        assert partition.record()[b"t"] == b"2 0 0"
    with pytest.raises(ValueError, match="limit"):
        partition.upsert(every=20, limit=2)
    for _ in range(limit):
        partition.now += 20
        assert partition.fire().published == 1
    assert partition.record() == {}
    assert ("ended", f"limit {limit + 2}") in partition.log()
    partition.upsert(every=20, limit=2)
    assert b"t" not in partition.record()


def test_a_reset_counts_anew(partition: Partition) -> None:
    partition.upsert(every=10, limit=3)
    partition.now += 10
    partition.fire()
    made = partition.upsert(every=10, limit=3, reset=True)
    assert made.outcome == "REPLACED"
    assert b"t" not in partition.record()


def test_an_interval_ends_with_the_year_9999(partition: Partition) -> None:
    last = 253_402_300_799_999
    partition.upsert(every=10_000, start=last - 5000)
    partition.now = last - 4000
    assert partition.fire().published == 1
    assert partition.record() == {}
    with pytest.raises(ValueError, match="every"):
        partition.upsert(every=10_000)
    with pytest.raises(ValueError, match="delay"):
        partition.upsert(delay=10_000)
    assert partition.upsert(delay=4000).at_ms == last


def test_missed_ones_are_folded_counted_and_logged(partition: Partition) -> None:
    partition.upsert(every=10)
    partition.now += 47
    partition.fire()
    (event,) = partition.events()
    assert (event["at"], event["missed"], event["n"]) == (str(NOW + 10), "3", "1")
    assert partition.record()[b"t"] == b"1 3 0"
    assert partition.log() == [("missed", "3")]
    assert partition.client.hmget(partition.key("meta"), "fired", "missed") == [b"1", b"3"]


# ------------------------------------------------------------------------------------------------ calendars


def test_a_calendar_that_knows_its_next_fires_and_asks_for_the_one_after(partition: Partition) -> None:
    made = partition.calendar(at=NOW, following=NOW + 10, x="x of k", w=f"{NOW + 500} 7 - -")
    fired = partition.fire()
    assert fired.published == 1
    (handover,) = fired.handovers
    assert (handover.word, handover.id, handover.n, handover.at_ms) == ("refill", b"acme\0k\0", "1", NOW + 10)
    assert handover.version == str(made.version)
    assert (handover.definition, handover.window) == ("x of k", f"{NOW + 500} 7 - -")
    assert partition.record()[b"s"] == b"a %d %d - 1" % (made.version, NOW + 10)
    step = Advance(handover, NOW + 10, NOW + 20)
    assert partition.advance(step) == ["ADVANCED"]
    assert partition.record()[b"s"] == b"a %d %d %d 1" % (made.version, NOW + 10, NOW + 20)
    assert partition.advance(step) == ["STALE"]
    partition.check()


def test_a_calendar_that_does_not_know_its_next_is_claimed_and_asked_again_after_a_lease(
    partition: Partition,
) -> None:
    partition.calendar(at=NOW, following=None)
    (first,) = partition.fire().handovers
    assert (first.word, first.n, first.at_ms) == ("claimed", "0", NOW)
    assert partition.record()[b"s"].startswith(b"c ")
    assert partition.fire().wait_us == LEASE_MS * 1000
    partition.now += LEASE_MS
    (second,) = partition.fire().handovers
    assert second == first
    assert partition.advance(Advance(second, NOW, partition.now + 10, missed=4)) == ["ADVANCED"]
    partition.check()
    assert partition.advance(Advance(first, NOW, partition.now + 99, missed=1)) == ["STALE"]
    fired = partition.fire()
    assert [handover.word for handover in fired.handovers] == ["refill"]
    (event,) = partition.events()
    assert (event["at"], event["missed"], event["n"]) == (str(NOW), "4", "1")
    assert partition.record()[b"t"] == b"1 4 0"
    assert b"m" not in partition.record()


def test_a_calendar_whose_next_has_passed_is_claimed(partition: Partition) -> None:
    partition.calendar(at=NOW, following=NOW + 10)
    partition.now += 10
    assert [handover.word for handover in partition.fire().handovers] == ["claimed"]
    assert partition.events() == []


def test_a_calendar_without_a_next_ends(partition: Partition) -> None:
    partition.calendar(at=NOW, following=0)
    fired = partition.fire()
    assert (fired.published, fired.handovers) == (1, [])
    assert partition.record() == {}
    assert partition.log() == [("ended", "last 1")]
    partition.check()


@pytest.mark.parametrize("word", ["claimed", "refill"])
@pytest.mark.parametrize("change", ["upsert", "cancel", "pause", "resume", "trigger", "fired", "recreated"])
def test_an_advance_that_comes_late_changes_nothing_it_should_not(
    partition: Partition, word: str, change: str
) -> None:
    following = NOW + 10 if word == "refill" else None
    partition.calendar(at=NOW, following=following)
    (handover,) = partition.fire().handovers
    step = Advance(handover, handover.at_ms, NOW + 20)
    if change == "upsert":
        partition.calendar(at=NOW + 5, following=NOW + 7, x="y")
    elif change == "cancel":
        partition.cancel()
    elif change == "pause":
        partition.edit("pause")
    elif change == "resume":
        partition.edit("pause")
        partition.edit("resume")
    elif change == "trigger":
        partition.edit("trigger")
    elif change == "fired":
        assert partition.advance(step) == ["ADVANCED"]
        partition.fire()
    else:
        partition.cancel()
        partition.calendar(at=NOW, following=following)
    before = partition.record()
    # a refill stays right whatever the state; a claim is only for what is still claimed
    fine = change == "trigger" or (word == "refill" and change in ("pause", "resume"))
    assert partition.advance(step) == ["ADVANCED" if fine else "STALE"]
    if not fine:
        assert partition.record() == before
    partition.check()


def test_a_calendar_that_cannot_be_asked_is_held_and_lets_go_when_it_can(partition: Partition) -> None:
    partition.calendar(at=NOW, following=None)
    waits = []
    for _ in range(7):
        (handover,) = partition.fire().handovers
        assert partition.advance(Advance(handover, NOW, 0, hold="no such zone: " + "x" * 200)) == ["ADVANCED"]
        record = partition.record()
        assert record[b"s"].startswith(b"h ")
        assert record[b"e"].startswith(b"no such zone")
        assert len(record[b"e"]) <= 200
        partition.check()
        wait = partition.fire().wait_us
        assert wait is not None
        waits.append(wait // 1000)
        partition.now += waits[-1]
    assert waits == [1000, 2000, 4000, 8000, 16_000, 32_000, 32_000]
    (handover,) = partition.fire().handovers
    assert partition.advance(Advance(handover, NOW, partition.now + 10)) == ["ADVANCED"]
    assert not partition.client.exists(partition.key("held"))
    assert partition.fire().published == 1
    assert b"e" not in partition.record()
    partition.check()


@pytest.mark.parametrize("change", ["upsert", "cancel", "pause"])
def test_a_claimed_one_that_was_held_before_leaves_nothing_behind(partition: Partition, change: str) -> None:
    partition.calendar(at=NOW, following=None)
    (handover,) = partition.fire().handovers
    partition.advance(Advance(handover, NOW, 0, hold="no"))
    partition.now += 1000
    assert len(partition.fire().handovers) == 1
    if change == "upsert":
        partition.upsert(delay=5)
    elif change == "cancel":
        partition.cancel()
    else:
        partition.edit("pause")
    assert not partition.client.exists(partition.key("held"))
    partition.check()


def test_an_advance_to_an_earlier_instant_wakes_the_sleepers(partition: Partition) -> None:
    partition.calendar(at=NOW, following=None)
    (handover,) = partition.fire().handovers
    partition.advance(Advance(handover, NOW, NOW + 10))
    ((_, fields),) = partition.client.xrange(partition.key("wake"))
    assert fields[b"at"] == b"%d" % NOW


def test_a_trigger_does_not_disturb_a_calendars_claim(partition: Partition) -> None:
    partition.calendar(at=NOW, following=None)
    (handover,) = partition.fire().handovers
    change = partition.edit("trigger")
    assert change.event_id.split("-")[2].startswith("t")
    assert partition.advance(Advance(handover, NOW, NOW + 10)) == ["ADVANCED"]
    partition.fire()
    assert [event["n"] for event in partition.events()] == ["0", "1"]


def test_the_longest_advance_fits_one_call(partition: Partition) -> None:
    for i in range(200):
        partition.calendar(f"k{i}", at=NOW, following=None)
    handovers = partition.fire().handovers
    assert len(handovers) == 200
    answers = partition.advance(*[Advance(handover, NOW, NOW + 10) for handover in handovers])
    assert answers == ["ADVANCED"] * 200
    assert partition.fire().published == 200
    partition.check()


@pytest.mark.parametrize("window", [f"{NOW + 250} - - -", "- 2 - -"], ids=["until", "limit"])
def test_a_calendar_ends_by_its_window_too(partition: Partition, window: str) -> None:
    partition.calendar(at=NOW + 100, following=NOW + 200)
    partition.client.hset(partition.record_key(), "w", window)
    partition.now += 100
    (handover,) = partition.fire().handovers
    assert partition.advance(Advance(handover, NOW + 200, NOW + 300)) == ["ADVANCED"]
    partition.now += 100
    assert partition.fire().handovers == []
    assert [event["n"] for event in partition.events()] == ["1", "2"]
    assert partition.record() == {}
    partition.check()
