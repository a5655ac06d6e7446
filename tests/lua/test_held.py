"""fire.lua and advance.lua: a recurring schedule that cannot be read or asked is held and told once; no other waits."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.lua.test_policies import fire_at
from tests.support.partition import NOW, Partition
from timerq import Event
from timerq.commands import read
from timerq.commands.dispatch import Advance

SPOILERS = [
    ("o", "rubbish"), ("o", ""), ("o", "s x 0 0 - -"), ("o", "s 5000 0 0 -"),
    ("x", "rubbish"), ("x", ""), ("x", "[]"), ("x", "null"), ("x", "{}"), ("x", '{"cron":5}'), ("x", b"\xff\xfe"),
    ("x", '{"cron":"61 * * * *"}'), ("x", '{"cron":"0 0 30 2 *"}'), ("x", '{"cron":"* * * * *","tz":"Mars/Olympus"}'),
    ("x", '{"cron":"* * * * *","new":1}'), ("x", '{"cron":"* * * * *","jitter":"5s"}'), ("x", "[" * 2000),
    ("x", '{"every":0}'), ("x", '{"every":1e3}'), ("x", '{"cron":"* * * * *","exclude":["* * * * *"]}'),
    ("w", "rubbish"), ("w", "x - - -"), ("zz", "unknown"),
]  # fmt: skip


def reports(partition: Partition) -> list[tuple[str, str, str]]:
    return [
        (fields[b"type"].decode(), fields[b"key"].decode(), json.loads(fields[b"payload"])["reason"])
        for _, fields in partition.client.xrange(partition.key("s:errors"))
    ]


@pytest.mark.parametrize(
    ("field", "value"), SPOILERS, ids=[f"{field}-{str(value)[:40]}" for field, value in SPOILERS]
)
def test_one_that_cannot_be_read_is_held_and_the_others_go_on(
    partition: Partition, field: str, value: Any
) -> None:
    for key in ("a", "bad", "z"):
        partition.upsert(key, cron="* * * * * *", misfire="skip", overlap="skip")
    # what it has missed must be asked for, so each part of its definition is read
    partition.client.hset(partition.record_key("bad"), field, value)
    assert fire_at(partition, 2500) == 2
    assert [event["key"] for event in partition.events()] == ["a", "z"]
    assert partition.client.zrange(partition.key("held"), 0, -1) == [b"acme\0bad\0"]
    assert partition.client.zscore(partition.key("due:acme"), b"acme\0bad\0") == NOW + 2500 + 1000
    record = partition.record("bad")
    assert record[b"s"].startswith(b"h ")
    assert 1 <= len(record[b"e"]) <= 200
    ((word, key, reason),) = reports(partition)
    assert (word, key) == ("schedule.held", "bad")
    assert reason[:30] == re.sub(r"[^ -~]", "?", record[b"e"].decode(errors="replace"))[:30]
    assert fire_at(partition, 3000) == 0  # the others' events are not handled
    for event in partition.events():
        partition.done(event["id"])
    assert fire_at(partition, 4000) == 2
    assert len(reports(partition)) == 1 + 2  # and the two that were skipped
    assert partition.upsert("bad", cron="* * * * * *").outcome == "REPLACED"
    partition.check()
    assert fire_at(partition, 5000) == 1


def hold_by_stream(partition: Partition) -> None:
    partition.upsert("k", Event("t", stream="wrong"), every=1000)
    partition.client.set(partition.key("s:wrong"), "not a stream")


def hold_by_calendar(partition: Partition) -> None:
    partition.upsert("k", cron="* * * * * *")
    partition.client.hset(partition.record_key(), "x", "rubbish")


def mend(partition: Partition) -> None:
    partition.client.delete(partition.key("s:wrong"))
    if b"x" in partition.record():
        partition.client.hset(partition.record_key(), "x", '{"cron":"* * * * * *"}')


@pytest.mark.parametrize("hold", [hold_by_stream, hold_by_calendar])
def test_a_hold_is_reported_once_and_not_at_each_try(partition: Partition, hold: Any) -> None:
    hold(partition)
    at, waits = 2500, []
    for _ in range(7):
        fire_at(partition, at)
        wait = partition.fire().wait_us
        assert wait is not None
        waits.append(wait // 1000)
        at += waits[-1]
    assert waits == [1000, 2000, 4000, 8000, 16_000, 32_000, 32_000]
    assert len(reports(partition)) == 1
    assert [what for what, _ in partition.log()] == ["held"] * 7
    partition.check()
    mend(partition)
    assert fire_at(partition, at) == 1
    stored = partition.run(read.get(partition.scope, "k"))
    assert (stored.state, stored.held) == ("armed", None)
    assert not partition.client.exists(partition.key("held"))
    partition.check()
    hold(partition)
    partition.upsert("k", Event("t", stream="wrong"), every=1000)
    partition.client.delete(partition.key("s:wrong"))
    partition.client.set(partition.key("s:wrong"), "not a stream")
    fire_at(partition, at + 10_000)
    assert len(reports(partition)) == 2  # another hold


@pytest.mark.parametrize("cure", ["upsert", "cancel", "pause", "mend"])
def test_a_calendar_that_is_held_can_be_cured_or_taken_out(partition: Partition, cure: str) -> None:
    hold_by_calendar(partition)
    fire_at(partition, 1000)
    if cure == "upsert":
        assert partition.upsert("k", cron="* * * * * *").outcome == "REPLACED"
        assert fire_at(partition, 2000) == 1
    elif cure == "cancel":
        assert partition.cancel().outcome == "CANCELLED"
    elif cure == "pause":
        assert partition.edit("pause").outcome == "PAUSED"
        assert b"e" not in partition.record()
    else:
        mend(partition)
        assert fire_at(partition, 3000) == 1
    assert not partition.client.exists(partition.key("held"))
    partition.check()


def test_a_calendar_that_cannot_say_what_follows_is_held_before_that_is_due(partition: Partition) -> None:
    partition.upsert("k", cron="* * * * * *")
    partition.now = NOW + 1000
    partition.client.hset(partition.record_key(), "x", "rubbish")
    assert partition.drain() == (1, 0)  # what was known is published
    stored = partition.record()
    assert stored[b"s"].startswith(b"h ")
    assert partition.client.zscore(partition.key("due:acme"), b"acme\0k\0") == NOW + 2000
    partition.check()
    partition.now = NOW + 2000
    partition.drain()
    mend(partition)
    partition.now = NOW + 5000
    assert partition.drain()[0] == 1
    assert [(int(e["at"]) - NOW, e["missed"]) for e in partition.events()] == [(1000, "0"), (2000, "3")]
    partition.check()


def test_what_is_held_before_it_is_due_fires_no_sooner(partition: Partition) -> None:
    partition.upsert("k", cron="40 * * * *")
    first = int(partition.record()[b"s"].split(b" ")[2]) - NOW
    partition.client.hset(partition.record_key(), "x", "rubbish")
    assert fire_at(partition, first) == 1
    assert partition.record()[b"s"].startswith(b"h ")
    partition.client.hset(partition.record_key(), "x", '{"cron":"40 * * * *"}')
    assert fire_at(partition, first + 1000) == 0
    assert partition.record()[b"s"].startswith(b"a ")
    partition.check()
    assert fire_at(partition, first + 3_600_000) == 1
    partition.check()


def test_an_unreadable_reason_is_still_an_event(partition: Partition) -> None:
    partition.upsert("k", Event("t", stream="wrong"), every=1000)
    partition.client.hset(partition.record_key(), 'zz"\\\x01é', "1")
    fire_at(partition, 1000)
    ((word, _, reason),) = reports(partition)
    assert word == "schedule.held"
    assert reason.startswith('unknown field zz"\\?')


def test_a_late_refill_arms_none_that_was_set_aside(partition: Partition) -> None:
    partition.calendar(at=NOW, following=NOW + 10)
    (refill,) = partition.fire().handovers
    assert partition.advance(Advance(refill, NOW + 10, 0, hold="no")) == ["ADVANCED"]
    before = partition.record()
    assert partition.advance(Advance(refill, NOW + 10, NOW + 20)) == ["STALE"]
    assert partition.record() == before
    partition.check()
