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
from timerq import Event, Upsert
from timerq.commands import cancel, edit, upsert
from timerq.commands.dispatch import trim
from timerq.commands.items import gather


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
                assert name in ("cancel", "sweep", "beat")
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
