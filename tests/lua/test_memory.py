"""A Redis that is out of memory refuses whole scripts or runs them whole, and everything goes on afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from tests.lua.test_contract import SAMPLES
from tests.lua.test_trim import fill as fill_stream
from tests.lua.test_trim import old
from tests.support.partition import EVENT, NOW, Partition
from timerq import Event, QueueUnavailable, Upsert
from timerq.commands import cancel, edit, members, recurring, upsert
from timerq.commands.command import Command
from timerq.commands.dispatch import Advance, advance, fire, trim
from timerq.commands.items import gather
from timerq.commands.options import Membership


@contextmanager
def full(partition: Partition) -> Iterator[None]:
    """No memory is left."""
    partition.client.config_set("maxmemory-policy", "noeviction")
    partition.client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        partition.client.config_set("maxmemory", 0)


def busy(client: Any) -> Partition:
    partition = Partition(client)
    partition.upsert("k", owner="o", delay=0)
    partition.upsert("l", every=10, initial_delay=0)
    partition.upsert("bad", Event("t", stream="wrong"), delay=0)
    partition.client.set(partition.key("s:wrong"), "not a stream")
    partition.upsert("later", delay=1000)
    partition.upsert("paused", delay=10, paused=True)
    partition.calendar("c", at=NOW, following=None)
    partition.now += 5
    for name in sorted(SAMPLES):  # loaded, since loading takes memory
        client.script_load(SAMPLES[name](partition).script.text)
    return partition


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_out_of_memory_nothing_is_half_done_and_then_all_goes_on(real_client: Any, name: str) -> None:
    partition = busy(real_client)
    command = SAMPLES[name](partition)
    before = partition.state()
    with full(partition):
        try:
            reply = partition.raw(command)
        except redis.ResponseError as error:
            assert ("maxmemory" in str(error), partition.state()) == (True, before)  # noqa: PT017
        else:
            assert reply[0].startswith(b"OK ")
            partition.check()
            if partition.state() != before:  # what frees memory may run
                assert name in ("cancel", "sweep", "destroy", "beat")
    partition.check()
    assert partition.evaluate(command)[0].startswith(b"OK ")
    partition.check()
    fired = partition.fire()
    assert partition.client.xlen(partition.key("s:events")) == len(
        {event["id"] for event in partition.events()}
    )
    assert fired.published >= (0 if name in ("fire", "sweep") else 1)


@pytest.mark.parametrize("verb", ["pause", "resume", "trigger", "consume"])
def test_out_of_memory_an_edit_is_refused(real_client: Any, verb: Any) -> None:
    partition = busy(real_client)
    key = "paused" if verb == "resume" else "later"
    command = gather(
        partition.scope, [edit.item(partition.scope, verb, key), edit.item(partition.scope, verb, key)]
    )
    before = partition.state()
    with full(partition), pytest.raises(redis.ResponseError, match="maxmemory"):
        partition.raw(command)
    assert partition.state() == before
    (first, _) = command.read(partition.evaluate(command))
    assert first
    partition.check()


def test_out_of_memory_a_batch_is_refused_whole(real_client: Any) -> None:
    partition = busy(real_client)
    items = [upsert.item(partition.scope, Upsert(f"n{i}", EVENT, delay=5)) for i in range(50)]
    command = gather(partition.scope, items)
    before = partition.state()
    with full(partition), pytest.raises(redis.ResponseError, match="maxmemory"):
        partition.raw(command)
    assert partition.state() == before
    assert len(partition.ask(command)) == 50


def test_out_of_memory_streams_are_trimmed_all_the_same(real_client: Any) -> None:
    partition = busy(real_client)
    fill_stream(partition, old(500))
    with full(partition):
        assert partition.ask(trim(partition.namespace, 0)).read == 500
    partition.check()


def test_out_of_memory_what_is_due_waits_and_then_fires_once(real_client: Any) -> None:
    partition = busy(real_client)
    with full(partition):
        for _ in range(3):
            with pytest.raises(redis.ResponseError, match="maxmemory"):
                partition.fire()
    fired = partition.fire()
    assert (fired.published, fired.held) == (2, 1)
    assert sorted(event["key"] for event in partition.events()) == ["k", "l"]
    partition.check()


def test_out_of_memory_a_cancel_of_many_is_whole(real_client: Any) -> None:
    partition = busy(real_client)
    keys = ["none", "later", "l", "paused", "bad"]
    command = gather(partition.scope, [cancel.item(partition.scope, key) for key in keys])
    before = partition.state()
    with full(partition):
        try:
            partition.raw(command)
        except redis.ResponseError as error:
            assert ("maxmemory" in str(error), partition.state()) == (True, before)  # noqa: PT017
        partition.check()
    outcomes = [change.outcome for change in command.read(partition.evaluate(command))]
    assert outcomes == ["NOT_PENDING", "CANCELLED", "CANCELLED", "CANCELLED", "CANCELLED"]
    partition.check()


@pytest.mark.parametrize("way", ["cancel", "sweep", "prune"])
def test_out_of_memory_what_has_fired_can_be_cancelled_and_makes_room(real_client: Any, way: str) -> None:
    partition = busy(real_client)
    member = Membership("jobs", partition.run(members.enlist(partition.scope, "jobs")).generation)
    if way == "prune":
        partition.upsert("l", every=10, initial_delay=0, member=member)
    partition.fire()
    with full(partition):
        if way == "cancel":
            assert partition.cancel("l").outcome == "CANCELLED"
        elif way == "sweep":
            assert partition.run(cancel.sweep(partition.scope, "l", None)) == 2
        else:
            done: list[Any] = []
            assert partition.run(
                members.prune(partition.scope, member, [members.Place(0, b"acme\0l\0")], done)
            )
            assert [change.outcome for change in done] == ["CANCELLED"]
    assert partition.record("l") == {}
    assert partition.client.exists(partition.key("floor:acme\0l\0"))
    partition.check()


# ------------------------------------------------------------------------------------------------ recurring schedules


def half_way(partition: Partition, command: Command[Any], *, may_run: bool = False) -> Any:
    """The command's answer, after it was refused while no memory was left, with nothing done."""
    partition.client.script_load(command.script.text)
    before = partition.state()
    with full(partition):
        try:
            partition.raw(command)
        except redis.ResponseError as error:
            assert "maxmemory" in str(error)  # noqa: PT017
            assert partition.state() == before
        else:
            assert may_run
            partition.check()
    partition.check()
    answer = command.read(partition.evaluate(command))
    partition.check()
    return answer


WAITING: dict[str, dict[str, Any]] = {
    "skip": {"overlap": "skip"},
    "queue": {"overlap": "queue"},
    "fixed delay": {"fixed_delay": True, "ack_group": "g"},
    "pause": {"pause_after": 1},
    "end": {"fixed_delay": True, "ack_group": "g", "until": NOW + 2000},
}


@pytest.mark.parametrize("words", WAITING.values(), ids=WAITING)
@pytest.mark.parametrize("error", [None, "no"])
def test_out_of_memory_nothing_is_handled_by_half(
    real_client: Any, words: dict[str, Any], error: str | None
) -> None:
    partition = Partition(real_client)
    partition.upsert(every=1000, **words)
    for at in (1000, 2000):
        partition.now = NOW + at
        partition.drain()
    event_id = partition.events()[-1]["id"]
    (command,) = next(recurring.done(partition.scope, event_id, error))
    paused = error is not None and "pause_after" in words
    assert half_way(partition, command).outcome == ("PAUSED" if paused else "DONE")
    assert not partition.client.exists(partition.key(f"run:{event_id}"))
    assert (partition.record() == {}) is ("until" in words)


@pytest.mark.parametrize("words", WAITING.values(), ids=WAITING)
def test_out_of_memory_what_runs_and_what_is_due_waits(real_client: Any, words: dict[str, Any]) -> None:
    partition = Partition(real_client)
    partition.upsert(every=1000, **words)
    partition.now = NOW + 1000
    assert half_way(partition, fire(partition.namespace, 0)).published == 1
    partition.now = NOW + 2000
    half_way(partition, fire(partition.namespace, 0), may_run="fixed_delay" in words)  # which is not due
    partition.now = NOW + 10**8  # its time is up
    half_way(partition, fire(partition.namespace, 0))
    ids = [event["id"] for event in partition.events()]
    assert len(ids) == len(set(ids)) == (1 if "until" in words else 3 if "pause_after" in words else 2)


def test_out_of_memory_a_backfill_publishes_nothing(real_client: Any) -> None:
    partition = Partition(real_client)
    version = partition.upsert(every=1000).version
    instants = [NOW - 2000, NOW - 1000]
    command = recurring._backfill_command(partition.scope, "k", None, version, b"", instants)
    assert half_way(partition, command) == ["BACKFILLED", "2", "0"]
    assert len(partition.events()) == 2


@pytest.mark.parametrize(
    ("at", "following", "skipped", "hold"),
    [(0, 10, 0, None), (50, 60, 4, None), (None, 0, 4, None), (None, 0, 0, None), (0, 10, 0, "no")],
    ids=["due", "later", "ended, some left out", "ended", "held"],
)
def test_out_of_memory_a_claim_is_answered_whole(
    real_client: Any, at: int | None, following: int, skipped: int, hold: str | None
) -> None:
    partition = Partition(real_client)
    partition.calendar(at=NOW, following=None)
    (claimed,) = partition.fire().handovers
    step = Advance(claimed, 0 if at is None else NOW + at, NOW + following, skipped=skipped, hold=hold)
    command = advance(partition.namespace, 0, [step, step])
    answers = half_way(partition, command, may_run=at is None)
    assert answers in (["ADVANCED", "STALE"], ["STALE", "STALE"])
    assert (partition.record() == {}) is (at is None)
    if at is not None:
        assert partition.client.hget(partition.key("meta"), "skipped") == (b"4" if skipped else None)


def test_out_of_memory_a_refill_waits(real_client: Any) -> None:
    partition = Partition(real_client)
    partition.calendar(at=NOW, following=NOW + 10)
    (refill,) = partition.fire().handovers
    command = advance(partition.namespace, 0, [Advance(refill, NOW + 10, NOW + 20)])
    half_way(partition, command, may_run=True)
    assert partition.record()[b"s"].split(b" ")[3] == b"%d" % (NOW + 20)


@pytest.mark.parametrize("alone", [False, True])
def test_out_of_memory_a_resume_from_now_is_refused(real_client: Any, alone: bool) -> None:
    partition = Partition(real_client)
    partition.upsert(every=1000)
    partition.edit("pause", by="ops", note="x")
    if not alone:
        partition.upsert("other", delay=10**6)
    partition.now = NOW + 5500
    item = edit.item(partition.scope, "skip", "k", going=edit.Going(NOW + 1000, NOW + 6000, None, 5))
    command = gather(partition.scope, [item])
    if alone:  # nothing else that the script writes takes memory: the answer says what was refused
        real_client.script_load(command.script.text)
        before = partition.record()
        with full(partition):
            (refused,) = partition.ask(command)
        assert isinstance(refused, QueueUnavailable)
        assert "OOM" in str(refused)
        assert partition.record() == before
        (change,) = partition.ask(command)
    else:
        (change,) = half_way(partition, command)
    assert change.outcome == "RESUMED"
    assert partition.record()[b"t"] == b"0 0 5"
    partition.check()


@pytest.mark.parametrize("words", [{"cron": "* * * * *"}, {"every": 1000, "overlap": "skip"}], ids=str)
def test_out_of_memory_a_calendar_and_a_policy_are_stored_whole(
    real_client: Any, words: dict[str, Any]
) -> None:
    partition = Partition(real_client)
    partition.upsert(every=500)
    member = Membership("jobs", 1)
    wanted = Upsert("k", EVENT, by="ops", limit=7, **words)
    item = upsert.item(partition.scope, wanted, now=lambda: partition.now, member=member)
    (made,) = half_way(partition, gather(partition.scope, [item]))
    assert made.outcome == "REPLACED"
    assert partition.client.zrange(partition.key("set:acme\0jobs"), 0, -1) == [b"acme\0k\0"]
