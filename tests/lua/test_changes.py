"""cancel.lua, sweep.lua, edit.lua, publish.lua: taking out, pausing, publishing by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.lua.test_upsert import STATES, bring
from tests.support.group import Group
from tests.support.partition import EVENT, NOW, Partition
from timerq import Event, QueueUnavailable, Upsert
from timerq.commands import cancel, edit, members, upsert
from timerq.commands import recurring as recurring_verbs
from timerq.commands.dispatch import trim
from timerq.commands.items import many
from timerq.commands.options import Membership


def floors(partition: Partition) -> dict[str, int]:
    front = partition.key("floor:")
    found = {
        key[len(front) :].decode(): int(partition.client.get(key))
        for key in partition.client.keys(front + b"*")
    }
    assert found.keys() == {
        whose.decode() for whose in partition.client.zrange(partition.key("floors"), 0, -1)
    }
    return found


def fill(partition: Partition, keys: list[str], **words: Any) -> None:
    items = [Upsert(key, EVENT, delay=100, **words) for key in keys]
    partition.run(many(partition.scope, lambda thing: upsert.item(partition.scope, thing), items))


# ------------------------------------------------------------------------------------------------ cancel


@pytest.mark.parametrize("state", STATES)
def test_a_cancel_leaves_nothing_of_a_schedule(partition: Partition, state: str) -> None:
    version = bring(partition, state)
    assert partition.cancel(if_version=version + 1).outcome == "VERSION_MISMATCH"
    change = partition.cancel(if_version=version)
    assert (change.outcome, change.version) == ("CANCELLED", version)
    left = [key for key in partition.client.keys(partition.key("*")) if b":s:" not in key]
    names = {key[len(partition.tag) + 1 :].split(b":")[0] for key in left}
    assert names <= {b"meta", b"req", b"log", b"wake", b"streams"}
    partition.now += 100_000
    assert partition.fire().published == 0


def test_a_cancel_says_by_whom(partition: Partition) -> None:
    for key, by in (("a", "ops"), ("b", None)):
        partition.upsert(key, delay=5)
        assert partition.cancel(key, by=by).outcome == "CANCELLED"
    entries = [(entry["what"], entry["note"], entry["by"]) for entry in partition.entries()]
    assert entries == [("cancelled", "", "ops"), ("cancelled", "", "")]
    with pytest.raises(ValueError, match="by"):
        partition.cancel("a", by="")


def test_a_cancel_of_nothing_leaves_a_floor_by_which_what_is_on_the_stream_is_known(
    partition: Partition,
) -> None:
    fired = partition.upsert(delay=0, owner="o").version
    partition.fire()
    assert partition.cancel(owner="o").outcome == "NOT_PENDING"
    assert floors(partition)["acme\0k\0o"] >= fired
    assert partition.client.pttl(partition.key("floor:acme\0k\0o")) == -1  # trim.lua knows how long
    assert partition.upsert(delay=0, owner="o").version > floors(partition)["acme\0k\0o"]
    assert partition.cancel("none", if_version=0).outcome == "NOT_PENDING"
    assert partition.cancel("other", if_version=5).outcome == "VERSION_MISMATCH"
    assert set(floors(partition)) == {"acme\0k\0o", "acme\0none\0"}


def test_a_cancel_of_one_that_has_fired_before_leaves_a_floor_of_its_version(partition: Partition) -> None:
    version = partition.upsert(every=10).version
    partition.upsert("never", every=10)
    partition.now += 9
    partition.cancel("never")
    partition.now += 1
    partition.fire()
    partition.cancel()
    assert floors(partition) == {"acme\0k\0": version}


def fire_at(partition: Partition, at_ms: int) -> None:
    partition.now = NOW + at_ms
    partition.drain()


def one_shot(partition: Partition) -> None:
    partition.upsert(owner="o", delay=0)
    partition.drain()


def with_correlation(partition: Partition) -> None:
    partition.upsert(event=Event("t", correlation={"a": "b"}), owner="o", delay=0)
    partition.drain()


def consumed(partition: Partition) -> None:
    partition.upsert(owner="o", delay=1000)
    partition.edit("consume", owner="o")


def consumed_after_a_trigger(partition: Partition) -> None:
    partition.upsert(owner="o", delay=1000)
    partition.edit("trigger", owner="o")
    partition.edit("consume", owner="o")


def ended_by_its_limit(partition: Partition) -> None:
    partition.upsert(owner="o", every=10, initial_delay=0, limit=1)
    partition.drain()


def ended_by_its_calendar(partition: Partition) -> None:
    partition.upsert(owner="o", every=1000, initial_delay=0, misfire="skip", grace=1, until=NOW + 1500)
    partition.drain()
    fire_at(partition, 1400)
    assert not partition.record(owner="o")


def ended_by_its_handling(partition: Partition) -> None:
    words: dict[str, Any] = {"fixed_delay": True, "ack_group": "g", "until": NOW + 1500}
    partition.upsert(owner="o", every=1000, initial_delay=0, **words)
    partition.drain()
    partition.now += 600
    assert partition.done(partition.events()[0]["id"])
    assert not partition.record(owner="o")


def recurring(partition: Partition) -> None:
    partition.upsert(owner="o", every=10, initial_delay=0)
    partition.drain()


def backfilled(partition: Partition) -> None:
    version = partition.upsert(owner="o", every=10, start=NOW + 1000).version
    make = recurring_verbs._backfill_command
    partition.ask(make(partition.scope, "k", "o", version, b"", [NOW - 10]))


def triggered(partition: Partition) -> None:
    partition.upsert(owner="o", delay=1000)
    partition.edit("trigger", owner="o")


BEFORE = [one_shot, with_correlation, consumed, consumed_after_a_trigger, ended_by_its_limit, ended_by_its_calendar,
    ended_by_its_handling, recurring, triggered, backfilled]  # fmt: skip


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("way", ["cancel", "prefix", "owner", "set"])
def test_the_events_of_before_are_cancelled_with_what_was_armed_since(
    partition: Partition, before: Callable[[Partition], None], way: str
) -> None:
    before(partition)
    assert len(partition.events()) == 1
    if way == "set":
        generation = partition.run(members.enlist(partition.scope, "jobs")).generation
        partition.upsert(owner="o", every=60_000, reset=True, member=Membership("jobs", generation))
        place = members.Place(0, b"acme\0k\0o")
        partition.run(members.prune(partition.scope, Membership("jobs", generation), [place], []))
    else:
        partition.upsert(owner="o", delay=60_000)
        if way == "cancel":
            assert partition.cancel(owner="o").outcome == "CANCELLED"
        else:
            assert sweep(partition, *[("k", None), ("", "o")][way == "owner"]) == 1
    assert not partition.record(owner="o")
    assert floors(partition).keys() == {"acme\0k\0o"}
    assert Group(partition).read().stale == 1
    partition.check()


def test_what_never_had_an_event_leaves_no_floor_whatever_others_had(partition: Partition) -> None:
    for i in range(250):
        partition.upsert(f"fired{i}", delay=0)
    partition.drain()
    for turn in range(3):
        fill(partition, [f"a{i}" for i in range(100)])
        if turn == 1:
            partition.ask(trim(partition.namespace, 0))  # the ids are marked now
        assert all(partition.cancel(f"a{i}").outcome == "CANCELLED" for i in range(50))
        assert sweep(partition, "a") == 50
        assert floors(partition) == {}
    partition.upsert("fired7", delay=1000)
    partition.cancel("fired7")
    assert floors(partition).keys() == {"acme\0fired7\0"}


def test_while_it_is_not_known_what_has_fired_a_floor_is_left(partition: Partition) -> None:
    for i in range(10):
        partition.upsert(f"fired{i}", delay=0)
        partition.drain()  # a list each
    for i in range(4):
        partition.upsert(f"a{i}", delay=1000)
        partition.cancel(f"a{i}")
    assert floors(partition).keys() == {f"acme\0a{i}\0" for i in range(3)}  # the fourth has marked the rest


def test_a_record_that_cannot_be_read_leaves_a_floor_of_all_there_was(partition: Partition) -> None:
    partition.upsert(every=10, initial_delay=0)
    partition.drain()
    partition.client.hset(partition.record_key(), "s", "rubbish")
    partition.client.hdel(partition.record_key(), "t")
    assert partition.cancel().outcome == "CANCELLED"
    assert Group(partition).read().stale == 1


# ------------------------------------------------------------------------------------------------ sweep


def sweep(partition: Partition, prefix: str = "", owner: str | None = None) -> int:
    cancelled: int = partition.run(cancel.sweep(partition.scope, prefix, owner))
    return cancelled


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201, 450])
def test_a_sweep_takes_all_in_bounded_pieces(partition: Partition, count: int) -> None:
    fill(partition, [f"a{i}" for i in range(count)], owner="o")
    fill(partition, ["a", "b1"], owner="p")
    before = partition.seq
    assert sweep(partition, "a", "o") == count
    assert partition.seq - before == count // 200 + 1
    assert partition.client.zcard(partition.key("keys")) == 2
    partition.check()
    assert sweep(partition) == 2
    partition.check()


def test_what_is_armed_after_a_sweep_began_stays(partition: Partition) -> None:
    fill(partition, [f"a{i:03}" for i in range(400)])
    steps = cancel.sweep(partition.scope, "a", None)
    commands = next(steps)
    answers = [partition.ask(command) for command in commands]
    fill(partition, ["a000", "a399", "a999"])  # one already swept, one not yet, one new
    (command,) = steps.send(answers)
    (command,) = steps.send([partition.ask(command)])
    last = partition.ask(command)
    with pytest.raises(StopIteration) as done:
        steps.send([last])
    assert done.value.value == 399
    assert sorted(id.split(b"\0")[1] for id in partition.client.zrange(partition.key("keys"), 0, -1)) == [
        b"a000", b"a399", b"a999",
    ]  # fmt: skip
    partition.check()


def test_a_sweep_removes_what_cannot_be_read_and_leaves_what_is_no_record(partition: Partition) -> None:
    fill(partition, ["a", "bad", "gone", "z", "foreign"])
    partition.client.hset(partition.record_key("bad"), "s", "rubbish")
    partition.client.delete(partition.record_key("gone"), partition.record_key("foreign"))
    partition.client.rpush(partition.record_key("foreign"), "not a record")
    assert sweep(partition) == 2
    assert partition.client.zrange(partition.key("keys"), 0, -1) == [b"acme\0foreign\0"]
    assert sweep(partition) == 0


def test_a_sweep_leaves_floors_for_what_has_fired_before(partition: Partition) -> None:
    version = partition.upsert(every=10).version
    fill(partition, ["other"])
    partition.now += 10
    partition.fire()
    assert sweep(partition) == 2
    assert floors(partition) == {"acme\0k\0": version}


def test_a_prefix_is_a_prefix_and_a_tenant_a_wall(partition: Partition) -> None:
    fill(partition, ["a*", "ab", "a", "b"])
    partition.upsert("a*", delay=5, scope=partition.of("other"))
    assert sweep(partition, "a*") == 1
    assert sweep(partition, "a") == 2
    assert sweep(partition, "\u00e9") == 0
    assert sweep(partition) == 1
    assert partition.client.zcard(partition.key("keys")) == 1


# ------------------------------------------------------------------------------------------------ pause and resume


@pytest.mark.parametrize("state", STATES)
def test_a_paused_one_does_not_fire_until_it_is_resumed(partition: Partition, state: str) -> None:
    version = bring(partition, state)
    assert partition.edit("pause", if_version=version).outcome == (
        "UNCHANGED" if state == "paused" else "PAUSED"
    )
    partition.check()
    partition.now += 100_000
    assert (partition.fire().published, partition.fire().wait_us) == (0, None)
    resumed = partition.edit("resume", if_version=version)
    assert (resumed.outcome, resumed.version) == ("RESUMED", version)
    assert partition.edit("resume").outcome == "UNCHANGED"
    partition.check()
    fired = partition.fire()
    if state == "claimed":
        assert [handover.word for handover in fired.handovers] == ["claimed"]
    else:
        assert fired.published + fired.held == 1


def test_an_overdue_interval_folds_what_its_pause_has_missed(partition: Partition) -> None:
    partition.upsert(every=10)
    partition.edit("pause")
    partition.now += 1005
    partition.edit("resume")
    partition.fire()
    (event,) = partition.events()
    assert (event["at"], event["missed"]) == (str(NOW + 10), "99")


def test_a_resume_that_makes_an_earlier_head_wakes_the_sleepers(partition: Partition) -> None:
    partition.upsert(delay=10, paused=True)
    assert not partition.client.exists(partition.key("wake"))
    partition.edit("resume")
    assert partition.client.xlen(partition.key("wake")) == 1


# ------------------------------------------------------------------------------------------------ trigger


@pytest.mark.parametrize("state", STATES)
def test_a_trigger_publishes_now_and_changes_nothing_but_its_own_memory(
    partition: Partition, state: str
) -> None:
    version = bring(partition, state)
    partition.client.delete(partition.key("s:wrong"))
    before = partition.record()
    changes = []
    for _ in range(2):
        changes.append(partition.edit("trigger", if_version=version))
        partition.now += 1000
    assert [change.outcome for change in changes] == ["TRIGGERED", "TRIGGERED"]
    second = b"%d" % (partition.now // 1000 - 1)
    assert partition.record() == before | {b"g": second + b" " + changes[1].event_id.encode()}
    events = partition.events("events" if state == "claimed" else "wrong")
    assert [event["id"] for event in events] == [change.event_id for change in changes]
    assert len({change.event_id for change in changes}) == 2
    assert {event["n"] for event in events} == {"0"}
    assert [event["at"] for event in events] == [str(partition.now - 2000), str(partition.now - 1000)]
    assert changes[0].event_id.startswith(f"0-{version}-t")
    assert [(e["note"], e["what"]) for e in partition.entries()[-2:]] == [
        (change.event_id, "triggered") for change in changes
    ]
    partition.check()


def test_a_triggered_event_is_no_occurrence_and_has_no_number_of_one(partition: Partition) -> None:
    partition.upsert(every=1000)
    partition.now = NOW + 1000
    partition.fire()
    partition.edit("trigger")
    partition.now = NOW + 2000
    partition.fire()
    assert [event["n"] for event in partition.events()] == ["1", "0", "2"]


@pytest.mark.parametrize("kind", ["once", "every"])
def test_two_triggers_within_one_second_are_one_tick(partition: Partition, kind: str) -> None:
    words: dict[str, Any] = {"delay": 5000} if kind == "once" else {"every": 5000}
    partition.upsert(**words)
    partition.now = NOW + 400
    first = partition.edit("trigger", by="ops")
    partition.now = NOW + 999
    again = partition.edit("trigger", by="another")
    assert (again.outcome, again.event_id, again.version) == ("DUPLICATE", first.event_id, first.version)
    assert again
    assert partition.edit("trigger", if_version=first.version + 1).outcome == "VERSION_MISMATCH"
    partition.now = NOW + 1000
    assert partition.edit("trigger").outcome == "TRIGGERED"
    assert len(partition.events()) == 2
    assert [entry["by"] for entry in partition.entries()] == ["ops", ""]
    partition.check()


def test_a_consume_in_the_second_of_a_trigger_takes_the_one_shot_out_and_publishes_no_more(
    partition: Partition,
) -> None:
    partition.upsert(delay=5000)
    first = partition.edit("trigger")
    consumed = partition.edit("consume")
    assert (consumed.outcome, consumed.event_id) == ("DUPLICATE", first.event_id)
    assert partition.record() == {}
    assert len(partition.events()) == 1
    partition.check()


def test_a_trigger_that_could_not_publish_is_not_remembered(partition: Partition) -> None:
    partition.upsert("k", Event("t", stream="wrong"), every=5000)
    partition.client.set(partition.key("s:wrong"), "not a stream")
    with pytest.raises(QueueUnavailable, match="WRONGTYPE"):
        partition.edit("trigger")
    partition.client.delete(partition.key("s:wrong"))
    assert partition.edit("trigger").outcome == "TRIGGERED"


@pytest.mark.parametrize("state", ["armed", "paused", "held"])
def test_a_consumed_one_shot_does_not_fire_again(partition: Partition, state: str) -> None:
    bring(partition, state)
    partition.client.delete(partition.key("s:wrong"))
    assert partition.edit("consume").outcome == "TRIGGERED"
    partition.check()
    assert partition.record() == {}
    partition.now += 100_000
    assert partition.fire().published == 0
    assert len(partition.events("wrong")) == 1


def test_a_consume_that_cannot_publish_consumes_nothing(partition: Partition) -> None:
    partition.upsert("k", Event("t", stream="wrong"), delay=5)
    partition.client.set(partition.key("s:wrong"), "not a stream")
    before = partition.record()
    (result,) = partition.all([edit.item(partition.scope, "consume", "k")])
    assert "WRONGTYPE" in str(result)
    assert partition.record() == before
    partition.check()


def test_edits_of_one_command_are_each_their_own(partition: Partition) -> None:
    for key in ("a", "b", "c", "bad"):
        partition.upsert(key, owner="o", delay=5)
    partition.client.hset(partition.record_key("bad", "o"), "s", "rubbish")
    verbs: list[tuple[Any, str]] = [
        ("pause", "a"), ("trigger", "b"), ("pause", "bad"), ("consume", "c"), ("resume", "a"), ("pause", "none"),
    ]  # fmt: skip
    results = partition.all([edit.item(partition.scope, verb, key, "o") for verb, key in verbs])
    assert [str(getattr(r, "outcome", type(r).__name__)) for r in results] == [
        "PAUSED", "TRIGGERED", "QueueUnavailable", "TRIGGERED", "RESUMED", "NOT_PENDING",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------ publish


def test_what_is_published_by_hand_reads_like_any_event(partition: Partition) -> None:
    items = [
        edit.publish_item(partition.scope, Event("t", i, stream="s", correlation={"i": str(i)}), "k", "o")
        for i in (0, 1)
    ]
    changes = partition.all(items)
    events = partition.events("s")
    assert [event["id"] for event in events] == [change.event_id for change in changes]
    assert changes[1].version == changes[0].version + 1
    assert events[1] == {
        "id": f"0-{changes[1].version}-0", "type": "t", "key": "k", "tenant": "acme", "owner": "o", "at": str(NOW),
        "fired_ms": str(NOW), "n": "0", "version": str(changes[1].version), "missed": "0",
        "content_type": "application/msgpack", "correlation": '{"i":"1"}',
    }  # fmt: skip
    assert partition.client.zrange(partition.key("streams"), 0, -1) == [b"s"]
