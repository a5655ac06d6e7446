"""The walk of one schedule: the tour that a newcomer takes, with real Redis and time standing still.

Read it beside `timerq/client.py`, `timerq/lua/upsert.lua`, `timerq/lua/fire.lua` and `timerq/keys.py`.
"""

from __future__ import annotations

import msgpack
import pytest

from timerq import Event, Outcome, TimerQueue
from timerq.testing import ManualClock, fire_due


@pytest.mark.one_server
def test_the_walk_of_one_schedule(redis_url, redis_client):
    # A shop is a namespace; its tenant "acme" arms a reminder. Time is ours to move: this namespace has a manual clock.
    clock = ManualClock("2026-03-01T09:00:00Z")
    shop = TimerQueue.connect(redis_url, namespace="shop", tenant="acme", clock=clock)
    shop.init(clock="manual")

    # 1. upsert: lua/upsert.lua stores a record, an entry in the due set, an entry in the index of keys - in one step.
    event = Event("order.reminder", {"order_id": 42}, correlation={"trace": "abc"})
    handle = shop.upsert("reminder:order-42", event, delay="30m")

    assert handle.outcome is Outcome.CREATED
    assert handle.schedule.at.isoformat() == "2026-03-01T09:30:00+00:00"
    record = redis_client.hgetall(b"{shop:0}:sch:acme\x00reminder:order-42\x00")
    assert record[b"d"] == b"o events m order.reminder"  # a one-shot, its stream, its codec, its type
    assert redis_client.zscore(b"{shop:0}:due:acme", b"acme\x00reminder:order-42\x00") == handle.at_ms

    # 2. The customer writes: the same key again replaces it. The older version will never fire.
    replaced = shop.upsert("reminder:order-42", event, delay="1h")

    assert replaced.outcome is Outcome.REPLACED
    assert replaced.replaced_version == handle.version < replaced.version
    assert handle.cancel() is False  # the first handle is fenced by its version

    # 3. Half an hour later nothing is due; a moment before the hour neither. Never early.
    clock.advance("59m")
    assert fire_due(shop) == 0
    clock.set(replaced.at_ms - 1)
    assert fire_due(shop) == 0

    # 4. Due: lua/fire.lua puts the event on its stream and takes the schedule out - in one step.
    clock.set(replaced.at_ms)
    assert fire_due(shop) == 1
    assert fire_due(shop) == 0  # exactly once
    assert shop.get("reminder:order-42") is None

    # 5. What any program in any language reads.
    [(_, fields)] = redis_client.xrange(b"{shop:0}:s:events")
    assert fields == {
        b"id": b"0-%d-1" % replaced.version,  # the idempotency key: partition, version, occurrence
        b"type": b"order.reminder",
        b"key": b"reminder:order-42",
        b"tenant": b"acme",
        b"owner": b"",
        b"at": b"%d" % replaced.at_ms,
        b"fired_ms": b"%d" % replaced.at_ms,
        b"n": b"1",
        b"version": b"%d" % replaced.version,
        b"missed": b"0",
        b"payload": msgpack.packb({"order_id": 42}),
        b"content_type": b"application/msgpack",
        b"correlation": b'{"trace":"abc"}',
    }

    # 6. A heartbeat every five minutes: it fires, and its next occurrence is armed in the same step.
    shop.upsert("heartbeat", Event("tick"), every="5m")
    clock.advance("5m")
    assert fire_due(shop) == 1
    assert shop.get("heartbeat").n == 1

    # 7. Nobody looks for an hour: one late event stands for all that were missed, and the rate is kept.
    clock.advance("1h")
    assert fire_due(shop) == 1
    late = redis_client.xrevrange(b"{shop:0}:s:events", count=1)[0][1]
    assert late[b"missed"] == b"11"
    assert shop.get("heartbeat").at_ms == clock.now_ms + 300_000

    # 8. Ops: count, pause, list, cancel - by key or by prefix, and a prefix is a prefix, never a pattern.
    shop.upsert("reminder:order-*", event, delay="1d")
    shop.upsert("reminder:order-7", event, delay="1d")
    assert shop.count("reminder:order-*") == 1
    assert shop.pause("heartbeat").outcome is Outcome.PAUSED
    assert [schedule.key for schedule in shop.list()] == ["heartbeat", "reminder:order-*", "reminder:order-7"]
    assert shop.cancel_prefix("reminder:") == 2
    assert shop.cancel("reminder:order-7").outcome is Outcome.NOT_PENDING

    # 9. Another tenant's keys are its own.
    other = TimerQueue.connect(redis_url, namespace="shop", tenant="globex", clock=clock)
    assert other.get("heartbeat") is None
    assert other.cancel_prefix("") == 0
    assert shop.count() == 1

    shop.close()
    other.close()
