"""Recurring schedules where numbers are large: definitions of many kilobytes, instants at the end of 9999."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.partition import NOW, Partition
from timerq.commands import read
from timerq.commands.dispatch import fire
from timerq.timing import MAX_INSTANT_MS

MANY = [f"{n % 60} {n // 60} 1 1 {','.join('1' * 400)}" for n in range(99)]


def test_one_fire_hands_over_a_bounded_number_of_bytes_of_definitions(partition: Partition) -> None:
    for n in range(12):
        partition.upsert(str(n), cron=["* * * * *", *MANY])
    partition.now = NOW + 60_000
    fired = partition.ask(fire(partition.namespace, 0))
    sizes = [len(handover.definition) for handover in fired.handovers]
    assert sum(sizes) - sizes[-1] <= 262_144  # the last one is what reaches the bound
    assert 0 < len(sizes) < 12
    assert fired.wait_us == 0
    assert fired.published + partition.drain()[0] == 12
    partition.check()


@pytest.mark.parametrize("group", [{}, {"ack_group": "workers"}], ids=["-", "group"])
def test_a_fixed_delay_ends_with_the_year_9999(partition: Partition, group: dict[str, Any]) -> None:
    every_ms = MAX_INSTANT_MS - NOW - 1000
    partition.upsert("last", every=every_ms + 1001, initial_delay=0, fixed_delay=True, **group)
    partition.upsert("k", every=every_ms, initial_delay=0, fixed_delay=True, **group)
    assert partition.drain()[0] == 2
    assert partition.record("last") == {}  # the next one would be after it
    at_ms = partition.run(read.get(partition.scope, "k")).at_ms
    assert at_ms == (MAX_INSTANT_MS if group else MAX_INSTANT_MS - 1000)
    if group:
        partition.now = NOW + 1001
        (event,) = [event for event in partition.events() if event["key"] == "k"]
        assert partition.done(event["id"]).outcome == "DONE"
        assert partition.record() == {}
    assert ("ended", "until 1") in partition.log()
    partition.check()


def test_one_that_runs_at_the_end_of_9999_holds_the_next_one_up_no_further(partition: Partition) -> None:
    partition.now = MAX_INSTANT_MS - 5000
    partition.upsert(every=1000, fixed_delay=True, ack_group="workers", running_timeout=4000)
    partition.now += 1000
    assert partition.drain()[0] == 1
    partition.upsert(every=2000, initial_delay=0, fixed_delay=True, ack_group="workers", running_timeout=4000)
    assert partition.drain()[0] == 0
    assert partition.run(read.get(partition.scope, "k")).at_ms == MAX_INSTANT_MS


SPOILT = {
    "s": ["a 1 5 nan 0", "a 1 5 inf 0", "c 1 5 1e400 0", f"a 1 {'9' * 400} - 0", f"a {'9' * 400} 5 - 0"],
    "m": ["nan", "inf", "-1", "9" * 400],
    "u": [f"0-1-1 {'9' * 400}", f"0-1-1 {'9' * 20} w"],
    "d": ["e0 events m t", f"e{'9' * 400} events m t", "e events m t"],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in SPOILT for value in SPOILT[field]])
def test_a_number_that_is_no_score_stops_no_other(partition: Partition, field: str, value: str) -> None:
    for key in ("a", "bad", "z"):
        partition.upsert(key, cron="* * * * * *", overlap="queue", running_timeout=500)
    partition.client.hset(partition.record_key("bad"), field, value)
    if field == "s":
        partition.client.zadd(partition.key("due:acme"), {b"acme\0bad\0": NOW})
    for turn in range(1, 4):
        partition.now = NOW + 1000 * turn
        partition.drain()
    for key in ("a", "z"):
        assert sum(event["key"] == key for event in partition.events()) == 3
    numbers = [event[name] for event in partition.events() for name in ("at", "n", "missed")]
    assert all(number.isdigit() and len(number) < 16 for number in numbers)


def test_one_that_waited_longer_than_its_grace_is_left_out(partition: Partition) -> None:
    for key, grace in (("patient", 60_000), ("strict", 500)):
        partition.upsert(key, every=10_000, overlap="queue", misfire="skip", grace=grace)
    partition.now = NOW + 10_000
    partition.drain()
    running = [event["id"] for event in partition.events()]
    partition.now = NOW + 20_000
    partition.drain()
    partition.now = NOW + 25_000
    for event in running:
        partition.done(event)
    partition.drain()
    late = [(event["key"], int(event["at"]) - NOW) for event in partition.events()[2:]]
    assert late == [("patient", 20_000)]
    assert partition.record("strict")[b"t"] == b"1 0 1"
