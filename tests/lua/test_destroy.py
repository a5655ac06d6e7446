"""destroy.lua, live.lua, silent.lua: the floor first, bounded sweeps, and what a new incarnation finds."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tests.support.partition import EVENT, NOW, Partition
from timerq import Event, Outcome, QueueUnavailable, Swept, Upsert
from timerq.commands import cancel, edit, owner, read, recurring, upsert
from timerq.commands.dispatch import Advance
from timerq.commands.history import history
from timerq.commands.items import many
from timerq.commands.owner import Found, Owned

O = Owned(b"acme", b"o", 0)  # noqa: E741
RETENTION_MS = 86_400_000


def begin(partition: Partition, ttl_ms: int = 0) -> Owned:
    return O._replace(incarnation=partition.run(owner.begin(partition.scope, O, ttl_ms)))


def destroy(partition: Partition, owned: Owned = O) -> owner.Destroyed:
    destroyed: owner.Destroyed = partition.run(owner.destroy(partition.scope, owned))
    return destroyed


def piece(partition: Partition, owned: Owned = O, **words: Any) -> owner.Piece:
    done: owner.Piece = partition.ask(owner.destroy_piece(partition.namespace, owned, **words))
    return done


def silent(partition: Partition, limit: int = 100) -> list[Found]:
    found: list[Found] = partition.ask(owner.find_silent(partition.namespace, 0, limit))
    return found


def fill(partition: Partition, count: int, **words: Any) -> None:
    items = [Upsert(f"k{i:04}", EVENT, owner="o", **(words or {"delay": 100})) for i in range(count)]
    partition.run(many(partition.scope, lambda thing: upsert.item(partition.scope, thing), items))


def floor(partition: Partition) -> int:
    return int(partition.client.get(partition.key("floor:acme\0o")))


def owners(partition: Partition) -> dict[bytes, float]:
    return dict(partition.client.zrange(partition.key("owners"), 0, -1, withscores=True))


def server_ms(partition: Partition) -> int:
    seconds, micros = partition.client.time()
    return int(seconds) * 1000 + int(micros) // 1000


# ------------------------------------------------------------------------------------------------ what goes


def test_all_of_an_owner_goes_and_nothing_else(partition: Partition) -> None:
    others = partition.of("acm")
    partition.upsert("k", owner="ox", delay=5)
    partition.upsert("k", delay=5)
    partition.upsert("k", owner="o", delay=5, scope=others)
    before = partition.state()
    partition.upsert("armed", owner="o", delay=5)
    partition.upsert("every", owner="o", every=5)
    partition.upsert("paused", owner="o", delay=5, paused=True)
    partition.calendar("calendar", at=NOW + 5, following=None, owner="o")
    partition.upsert("large", Event("t", "x" * 60_000), owner="o", delay=5)
    partition.upsert("held", Event("t", stream="wrong"), owner="o", delay=0)
    partition.client.set(partition.key("s:wrong"), "not a stream")
    partition.fire()
    assert partition.record("held", "o")[b"s"].startswith(b"h")
    last = int(partition.client.hget(partition.key("meta"), "last"))
    assert destroy(partition) == (6, last, False)
    partition.check()
    after = partition.state()
    assert set(after[partition.key("floors")]) == {b"acme\0o"}
    for name in (
        *("meta", "log", "req:test", "wake", "s:wrong", "s:errors", "streams"),
        *("floor:acme\0o", "floors"),
    ):
        after.pop(partition.key(name), None)
        before.pop(partition.key(name), None)
    assert after == before
    assert floor(partition) == last
    assert partition.client.pttl(partition.key("floor:acme\0o")) == -1  # trim.lua knows how long


def test_a_destroy_of_nothing_leaves_a_floor_all_the_same(partition: Partition) -> None:
    partition.upsert("k", owner="o", delay=0)
    partition.fire()  # what is on the stream must be known as dead
    last = int(partition.client.hget(partition.key("meta"), "last"))
    assert destroy(partition).swept == 0
    assert floor(partition) == last
    assert ("destroyed", "") not in partition.log()


def test_the_log_has_one_line_that_each_key_is_told(partition: Partition) -> None:
    fill(partition, 250)
    partition.upsert("k", owner="ox", delay=5)
    destroy(partition)
    assert partition.log() == [("destroyed", "")]
    for key, of, told in (("k0007", "o", 1), ("other", "o", 1), ("k", "ox", 0), ("k", None, 0)):
        entries = partition.run(history(partition.scope, key, of)).entries
        assert [entry.what for entry in entries] == ["destroyed"] * told


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201, 400, 401])
def test_it_goes_in_pieces_of_two_hundred(partition: Partition, count: int) -> None:
    fill(partition, count)
    steps = owner.destroy(partition.scope, O)
    (command,) = next(steps)
    pieces = 1
    destroyed = None
    while destroyed is None:
        try:
            (command,) = steps.send([partition.ask(command)])
        except StopIteration as done:
            destroyed = done.value
            break
        pieces += 1
        assert owners(partition) == {b"acme\0o\0": -floor(partition)}  # a dispatcher could go on with it
    assert (destroyed.swept, pieces) == (count, count // 200 + 1)
    assert owners(partition) == {}
    assert partition.run(read.count(partition.scope)) == 0
    partition.check()


def test_what_is_armed_meanwhile_stays(partition: Partition) -> None:
    fill(partition, 300)
    first = piece(partition)
    assert first.swept == 200
    for key in ("a", "k0007", "k0250", "z"):  # before, behind, and what was still to be swept
        assert partition.upsert(key, owner="o", delay=7).outcome == "CREATED"
    second = piece(partition, ceiling=first.ceiling, after=first.after)
    assert (second.swept, second.after) == (99, None)
    page = partition.run(read.list_page(partition.scope, "", "o"))
    assert [schedule.key for schedule in page.items] == ["a", "k0007", "k0250", "z"]
    partition.check()


def test_it_is_safe_to_run_twice_at_every_piece(partition: Partition) -> None:
    fill(partition, 450)
    first = piece(partition)
    assert piece(partition, ceiling=first.ceiling).swept == 200  # by another one, from the start
    again = piece(partition, ceiling=first.ceiling, after=first.after)
    assert (again.swept, again.after) == (50, None)
    assert owners(partition) == {}
    assert piece(partition, ceiling=first.ceiling, after=first.after) == ("DESTROYED", 0, first.ceiling, None)
    assert destroy(partition).swept == 0
    partition.check()


def test_a_record_that_is_none_is_left_alone_and_stops_nothing(partition: Partition) -> None:
    fill(partition, 3)
    partition.client.hset(partition.record_key("k0000", "o"), "s", "rubbish")
    partition.client.delete(partition.record_key("k0001", "o"), partition.record_key("k0002", "o"))
    partition.client.rpush(partition.record_key("k0002", "o"), "not a record")
    assert destroy(partition).swept == 1
    assert partition.client.type(partition.record_key("k0002", "o")) == b"list"
    assert partition.client.zrange(partition.key("own:acme\0o"), 0, -1) == [b"acme\0k0002\0o"]


def test_out_of_memory_an_owner_can_still_be_destroyed(real_client: Any) -> None:
    partition = Partition(real_client)
    fill(partition, 300)
    first = owner.destroy_piece(partition.namespace, O)
    real_client.script_load(first.script.text)
    real_client.config_set("maxmemory-policy", "noeviction")
    real_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            partition.upsert("more", delay=5)
        assert destroy(partition).swept == 300
    finally:
        real_client.config_set("maxmemory", 0)
    assert floor(partition)
    partition.check()


def test_a_hundred_thousand_timers_go_in_short_scripts(real_client: Any) -> None:
    partition = Partition(real_client)
    due, index = partition.key("due:acme"), partition.key("own:acme\0o")
    partition.upsert("k", owner="o", delay=10**9)
    flat = partition.record("k", "o")
    pipeline = real_client.pipeline(transaction=False)
    for i in range(100_000):
        id = f"acme\0k{i:06}\0o"
        pipeline.hset(partition.key("sch:" + id), mapping=flat)
        pipeline.zadd(due, {id: NOW + 10**9})
        pipeline.zadd(index, {id: 0})
        pipeline.zadd(partition.key("keys"), {id: 0})
        if i % 10_000 == 0:
            pipeline.execute()
    pipeline.execute()
    real_client.config_set("slowlog-max-len", 1000)
    real_client.config_set("slowlog-log-slower-than", 20_000)
    real_client.slowlog_reset()
    real_client.config_resetstat()
    try:
        assert destroy(partition).swept == 100_001
        slow = [entry for entry in real_client.slowlog_get(1000) if entry["command"].startswith(b"EVAL")]
    finally:
        real_client.config_set("slowlog-log-slower-than", -1)
    calls = real_client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert calls == 501
    # this machine may have stopped for a moment; a script that held it would be one in two
    assert len(slow) <= 2
    assert partition.client.exists(due, index, partition.key("keys")) == 0


# ------------------------------------------------------------------------------------------------ incarnations


def test_an_incarnation_is_a_version_of_its_own(partition: Partition) -> None:
    first, second = begin(partition).incarnation, begin(partition).incarnation
    armed = partition.upsert("k", owner="o", delay=5, incarnation=first).version
    assert first < second < armed
    assert partition.upsert("k", owner="o", delay=5, incarnation=second).outcome == "REPLACED"


def test_whoever_is_gone_is_told_so_and_changes_nothing(partition: Partition) -> None:
    old = begin(partition)
    partition.upsert("k", owner="o", delay=5, incarnation=old.incarnation)
    destroy(partition, old)
    new = begin(partition)
    partition.upsert("k", owner="o", every=7, incarnation=new.incarnation)
    before = {name: value for name, value in partition.state().items() if b":req:" not in name}
    before.pop(partition.key("meta"))
    dead = floor(partition)
    stale = old.incarnation
    changes = [
        partition.do(cancel.item(partition.scope, "k", "o", incarnation=stale)),
        *(partition.edit(verb, "k", "o", incarnation=stale) for verb in ("pause", "resume", "trigger", "consume")),
        partition.do(edit.publish_item(partition.scope, EVENT, "k", "o", incarnation=stale)),
    ]  # fmt: skip
    assert {(change.outcome, change.version, bool(change)) for change in changes} == {
        ("OWNER_GONE", dead, False)
    }
    assert partition.upsert("k", owner="o", delay=5, incarnation=stale).outcome == "OWNER_GONE"
    assert partition.ask(owner.live(partition.namespace, old, 60_000)).floor == dead
    gone = partition.run(owner.sweep_prefix(partition.scope, old, "", None, Swept))
    assert gone == dead
    assert destroy(partition, old) == (0, dead, True)
    after = {name: value for name, value in partition.state().items() if b":req:" not in name}
    after.pop(partition.key("meta"))
    assert after == before
    assert partition.edit("trigger", "k", "o", incarnation=new.incarnation).outcome == "TRIGGERED"
    assert (
        partition.do(cancel.item(partition.scope, "k", "o", incarnation=new.incarnation)).outcome
        == "CANCELLED"
    )


def test_an_old_one_may_end_its_own_sweep(partition: Partition) -> None:
    old = begin(partition)
    fill(partition, 300)
    first = piece(partition, old)  # and then its process was killed
    new = begin(partition)
    partition.upsert("new", owner="o", delay=5, incarnation=new.incarnation)
    assert destroy(partition, old) == (100, first.ceiling, True)
    assert owners(partition) == {}
    assert partition.run(read.count(partition.scope)) == 1


def test_a_sweep_under_a_handle_takes_nothing_of_a_later_incarnation(partition: Partition) -> None:
    old = begin(partition)
    partition.upsert("k1", owner="o", delay=5)
    steps = owner.sweep_prefix(partition.scope, old, "", None, Swept)
    (command,) = next(steps)
    answer = partition.ask(command)  # it lives; and then
    destroy(partition)
    partition.upsert("k2", owner="o", delay=5, incarnation=begin(partition).incarnation)
    (command,) = steps.send([answer])
    assert partition.ask(command)[1] == 0
    assert partition.run(read.count(partition.scope)) == 1


# ------------------------------------------------------------------------------------------------ a clean start


def half_destroyed(partition: Partition, *keys: str) -> None:
    """Destroyed by somebody who died behind the first piece, with these keys left."""
    assert min(keys) > "k"
    first = piece(partition)
    assert first.after is not None
    assert all(partition.record(key, "o") for key in keys)


def test_what_is_left_of_a_gone_one_is_not_there_for_the_new_one(partition: Partition) -> None:
    partition.upsert("p", owner="o", delay=5, paused=True)
    partition.upsert("q", owner="o", every=500, limit=3, initial_delay=0)
    partition.upsert("r", owner="o", delay=5)
    partition.upsert("s", owner="o", delay=5, idempotency_key="token")
    partition.fire()
    fill(partition, 200)
    half_destroyed(partition, "p", "q", "r", "s")
    born = begin(partition).incarnation
    paused = partition.upsert("p", owner="o", delay=5, incarnation=born)
    assert (paused.outcome, paused.state) == ("CREATED", "armed")
    assert (
        partition.upsert("q", owner="o", every=500, limit=1, initial_delay=0, incarnation=born).outcome
        == "CREATED"
    )
    assert b"t" not in partition.record("q", "o")
    assert partition.upsert("r", owner="o", delay=5, mode="keep", incarnation=born).outcome == "CREATED"
    assert partition.upsert("s", owner="o", delay=9, idempotency_key="token").outcome == "CREATED"
    partition.check()
    done = piece(partition, ceiling=floor(partition))
    assert done.swept == 0
    assert partition.run(read.count(partition.scope)) == 4


def test_an_idempotency_key_is_the_same_for_another_handle_that_lives(partition: Partition) -> None:
    first = begin(partition).incarnation
    armed = partition.upsert("k", owner="o", delay=5, idempotency_key="token", incarnation=first)
    second = begin(partition).incarnation
    again = partition.upsert("k", owner="o", delay=5, idempotency_key="token", incarnation=second)
    assert (again.outcome, again.version) == ("DUPLICATE", armed.version)
    with pytest.raises(ValueError, match="idempotency_key"):
        partition.upsert("k", owner="o", delay=6, idempotency_key="token", incarnation=second)


@pytest.mark.parametrize("verb", ["pause", "resume", "trigger", "consume"])
def test_what_is_left_is_not_pending_for_an_edit(partition: Partition, verb: Any) -> None:
    version = partition.upsert("p", owner="o", delay=5, paused=True).version
    fill(partition, 200)
    half_destroyed(partition, "p")
    for if_version in (None, version):
        assert partition.edit(verb, "p", "o", if_version).outcome == "NOT_PENDING"
    assert partition.events() == []


def test_what_is_left_neither_goes_on_from_now_nor_is_backfilled(partition: Partition) -> None:
    partition.upsert("p", owner="o", every=5, start=NOW - 100, paused=True)
    fill(partition, 200)
    half_destroyed(partition, "p")
    partition.now += 1000
    now = lambda: partition.now  # noqa: E731
    change = partition.run(recurring.resume_from_now(partition.scope, "p", "o", None, None, now, None))
    assert change.outcome is Outcome.NOT_PENDING
    told = partition.run(recurring.backfill(partition.scope, "p", "o", NOW - 50, NOW, None, partition.now))
    assert (told.outcome, told.published) == (Outcome.VERSION_MISMATCH, 0)
    assert partition.events() == []


def test_what_is_left_is_never_fired_whatever_a_calendar_or_a_handler_says(partition: Partition) -> None:
    partition.upsert("r", owner="o", every=50, fixed_delay=True, ack_group="g", initial_delay=0)
    partition.upsert("s", owner="o", every=50, overlap="queue", initial_delay=0)
    partition.upsert("t", owner="o", delay=10)
    partition.fire()
    running = {event["key"]: event["id"] for event in partition.events()}
    assert set(running) == {"r", "s"}
    partition.now += 5
    partition.calendar("p", at=partition.now, following=None, owner="o")
    fill(partition, 200)
    (handover,) = partition.fire().handovers
    assert handover.word == "claimed"
    half_destroyed(partition, "p", "r", "s", "t")
    step = partition_step(handover, partition.now)
    assert partition.advance(step) == ["ADVANCED"]
    for event_id in running.values():
        assert partition.done(event_id).outcome == "DONE"
    before = len(partition.events())
    partition.now += 100_000
    while partition.fire().wait_us is not None:
        pass
    assert len(partition.events()) == before
    partition.check()


def partition_step(handover: Any, now: int) -> Any:
    return Advance(handover, now, now + 60_000)


# ------------------------------------------------------------------------------------------------ heartbeats


def test_a_heartbeat_is_heard_for_as_long_as_it_says(partition: Partition) -> None:
    before_ms = server_ms(partition)
    first = begin(partition, 60_000)
    (until_ms,) = owners(partition).values()
    assert before_ms + 60_000 <= until_ms <= server_ms(partition) + 60_000
    # another handle's is no reason to die earlier
    partition.ask(owner.live(partition.namespace, first, 5_000))
    assert owners(partition) == {b"acme\0o": until_ms}
    partition.ask(owner.live(partition.namespace, first, 120_000))
    assert owners(partition)[b"acme\0o"] >= before_ms + 120_000
    assert silent(partition) == []


def test_many_are_heard_together_and_each_is_told_of_its_own_floor(partition: Partition) -> None:
    before_ms = server_ms(partition)
    gone = begin(partition)
    destroy(partition)
    lives = begin(partition)
    others = [Owned(b"acme", b"o%d" % n, 0, lives.incarnation + n) for n in range(1, 199)]
    beats = [(gone, 90_000), (lives, 60_000), *((other, 5_000) for other in others)]
    assert len(beats) == 200
    told = partition.ask(owner.hear(partition.namespace, 0, beats))
    assert told == [floor(partition), *[None] * 199]
    heard = owners(partition)
    assert len(heard) == 199
    assert before_ms + 60_000 <= heard[b"acme\0o"] <= server_ms(partition) + 60_000
    assert before_ms + 5_000 <= heard[b"acme\0o198"] <= server_ms(partition) + 5_000
    partition.ask(owner.hear(partition.namespace, 0, [(lives, 5_000)]))
    assert owners(partition) == heard  # another handle's is no reason to die earlier


def test_without_one_there_is_nothing_to_listen_to(partition: Partition) -> None:
    begin(partition)
    assert owners(partition) == {}


def test_who_falls_silent_is_found_and_destroyed(partition: Partition) -> None:
    first = begin(partition, 60_000)
    partition.upsert("k", owner="o", delay=5, incarnation=first.incarnation)
    past = server_ms(partition) - 1
    partition.client.zadd(
        partition.key("owners"), {"acme\0o": past, "acme\0p": past - 1, "other\0o": past + 10**6}
    )
    found = silent(partition)
    assert found == [
        Found(O._replace(owner=b"p"), until_ms=past - 1),
        Found(O, until_ms=past),
    ]
    assert silent(partition, 1) == found[:1]
    assert piece(partition, silent=True) == ("DESTROYED", 1, floor(partition), None)
    assert b"acme\0o" not in owners(partition)
    assert partition.log() == [("destroyed", "its heartbeat stopped")]
    assert partition.ask(owner.live(partition.namespace, first, 60_000)).floor == floor(partition)
    assert b"acme\0o" not in owners(partition)  # a late one is not heard


def test_who_is_heard_again_before_anybody_noticed_lives(partition: Partition) -> None:
    first = begin(partition, 60_000)
    partition.client.zadd(partition.key("owners"), {"acme\0o": 5})
    partition.upsert("k", owner="o", delay=5, incarnation=first.incarnation)
    assert partition.ask(owner.live(partition.namespace, first, 60_000)).floor is None
    before = partition.state()
    assert piece(partition, silent=True).word == "ALIVE"
    after = partition.state()
    after.pop(partition.key("req:test"))
    before.pop(partition.key("req:test"))
    assert after == before
    assert partition.run(read.count(partition.scope)) == 1


def test_a_sweep_that_was_begun_is_found_also_when_a_new_one_lives(partition: Partition) -> None:
    old = begin(partition, 60_000)
    fill(partition, 300)
    first = piece(partition, old)
    new = begin(partition, 60_000)
    partition.upsert("new", owner="o", delay=5, incarnation=new.incarnation)
    assert silent(partition) == [Found(O, ceiling=first.ceiling)]
    assert set(owners(partition)) == {b"acme\0o", b"acme\0o\0"}
    done = piece(partition, ceiling=first.ceiling)
    assert (done.swept, done.after) == (100, None)
    assert set(owners(partition)) == {b"acme\0o"}
    assert partition.run(read.count(partition.scope)) == 1


def test_a_later_destroy_takes_over_what_an_earlier_one_has_left(partition: Partition) -> None:
    fill(partition, 500)
    first = piece(partition)
    partition.upsert("new", owner="o", delay=5)
    second = piece(partition)
    assert second.ceiling > first.ceiling
    assert owners(partition) == {b"acme\0o\0": -second.ceiling}
    assert piece(partition, ceiling=first.ceiling, after=b"acme\0z\0o").after is None
    assert owners(partition) == {b"acme\0o\0": -second.ceiling}  # the earlier one's end is not its end
    assert piece(partition, ceiling=second.ceiling, after=second.after).after is None
    assert owners(partition) == {}
    assert partition.run(read.count(partition.scope)) == 0


def test_reading_beside_the_question_whether_one_lives(partition: Partition) -> None:
    first = begin(partition)
    fill(partition, 450)
    keys = partition.run(
        owner.guarded(
            partition.scope, first, owner.list_keys(partition.scope, first, ""), lambda floor: [str(floor)]
        )
    )
    assert keys == [f"k{i:04}" for i in range(450)]
    assert partition.run(owner.list_keys(partition.scope, first, "k001")) == [f"k001{i}" for i in range(10)]
    destroy(partition)
    partition.upsert("k", owner="o", delay=5)
    said = owner.guarded(partition.scope, first, read.count(partition.scope, "", "o"), lambda floor: floor)
    assert partition.run(said) == floor(partition)


def test_a_fault_of_redis_ends_no_sweep_quietly(partition: Partition) -> None:
    fill(partition, 3)
    partition.client.delete(partition.key("own:acme\0o"))
    partition.client.set(partition.key("own:acme\0o"), "not an index")
    with pytest.raises((redis.ResponseError, QueueUnavailable), match="WRONGTYPE"):
        destroy(partition)
    assert floor(partition)
