"""Bounded streams between a dispatcher and a consumer, and the verbs that bound them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from typing import Any

import pytest
import redis

from tests.support.cli import Run, objects
from tests.support.consumers import Running, Seen
from tests.support.proxy import wait_for
from timerq import AsyncTimerQueue, Backlog, BacklogFull, Bound, Event, InvalidSchedule, TimerQueue, Upsert
from timerq.consumer import Consumer, Context
from timerq.dispatcher import Dispatcher
from timerq.keys import stream
from timerq.model import Delivery

GROUP = "g"


def unacknowledged(client: redis.Redis, tag: bytes) -> list[tuple[bytes, bytes]]:
    """The lanes of what the group has before it, as the stream itself and its pending list say at one instant."""
    key = stream(tag, b"events")
    with client.pipeline(transaction=True) as pipe:
        pipe.xrange(key)
        pipe.xpending_range(key, GROUP, "-", "+", 1000)
        pipe.xinfo_groups(key)
        entries, pending, (group,) = pipe.execute()

    def place(entry: bytes) -> tuple[int, int]:
        ms, seq = entry.split(b"-")
        return int(ms), int(seq)

    last = place(group["last-delivered-id"])
    waits = {each["message_id"] for each in pending} | {entry for entry, _ in entries if place(entry) > last}
    return [(fields[b"tenant"], fields[b"owner"]) for entry, fields in entries if entry in waits]


def backlog_of(queue: TimerQueue) -> Backlog:
    (found,) = queue.stats().backlogs
    return found


def test_a_bound_that_holds_is_never_exceeded_and_all_arrive(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """By one of all in each partition, and by one of each lane."""
    seen = Seen()
    most: list[tuple[int, int]] = []
    with TimerQueue.connect(redis_url) as queue:
        namespace = queue.init(partitions=2)
        made = queue.bound("events", group=GROUP, limit=6, lane_limit=2)
        assert made == Bound("events", GROUP, 6, 2, "hold", 3)
        app = Consumer(queue, group=GROUP, concurrency=4)

        @app.on("t")
        def handle(event: Delivery) -> None:
            lanes = unacknowledged(redis_client, namespace.tags[event.partition])
            most.append((len(lanes), max(Counter(lanes).values())))
            seen.add(event)

        due = queue.upsert("first", Event("t"), delay="1h", owner="o0").at_ms
        assert due is not None
        queue.cancel("first", owner="o0")
        queue.upsert_many(
            [Upsert(f"k{n}", Event("t", n), at=due - 7_200_000 + n, owner=f"o{n % 8}") for n in range(160)]
        )
        with Running(app), Dispatcher(redis_url):
            seen.wait(160)
            wait_for(lambda: app.counts.handled == 160, "all are acknowledged")
        assert (backlog_of(queue).waiting, backlog_of(queue).held_back, queue.stats().held_back) == (0, 0, 0)
    assert max(count for count, _ in most) == 3
    assert max(count for _, count in most) <= 2
    assert len({*seen.ids}) == 160
    lanes = defaultdict(list)
    for tag in namespace.tags:
        for _, fields in redis_client.xrange(stream(tag, b"events")):
            lanes[fields[b"owner"]].append(int(fields[b"at"]))
    assert all(found == sorted(found) for found in lanes.values())


@pytest.mark.parametrize("rule", ["drop_newest", "drop_oldest"])
def test_what_is_dropped_and_what_is_handled_add_up(redis_url: str, queue: TimerQueue, rule: Any) -> None:
    seen = Seen()
    queue.bound("events", group=GROUP, limit=5, rule=rule)
    app = Consumer(queue, group=GROUP)
    app.on("t")(lambda event: seen.add(event) and None)
    queue.upsert_many([Upsert(f"k{n:02}", Event("t", n), delay=0) for n in range(30)])
    with Dispatcher(redis_url) as dispatcher:
        wait_for(lambda: not queue.count(), "all are fired or dropped")
        fired = 5 if rule == "drop_newest" else 30
        wait_for(lambda: dispatcher.fired_total == fired, "its dispatcher knows")
        with Running(app):
            wait_for(lambda: app.counts.handled + backlog_of(queue).dropped == 30, "all are done with")
    assert len(seen.all) == 5
    assert backlog_of(queue).waiting == 0


@pytest.mark.one_server
def test_a_dispatcher_finds_out_what_another_program_has_acknowledged(
    redis_url: str, queue: TimerQueue, redis_client: redis.Redis
) -> None:
    queue.bound("events", group=GROUP, limit=1)
    queue.upsert_many([Upsert(f"k{n}", Event("t"), delay=0) for n in range(2)])
    assert queue.namespace is not None
    key = stream(queue.namespace.tags[0], b"events")
    with Dispatcher(redis_url):
        wait_for(lambda: queue.stats().held_back == 1, "one is held back")
        redis_client.xgroup_create(key, GROUP, "0")
        read: Any = redis_client.xreadgroup(GROUP, "by-hand", {key: ">"})
        ((_, ((entry, _),)),) = read
        redis_client.xack(key, GROUP, entry)
        wait_for(lambda: redis_client.xlen(key) == 2, "it fires")


@pytest.mark.one_server
def test_a_handler_that_publishes_to_a_full_stream_is_told_and_one_that_schedules_is_not(
    redis_url: str, queue: TimerQueue
) -> None:
    seen = Seen()
    queue.bound("events", group=GROUP, limit=1)
    app = Consumer(queue, group=GROUP)

    @app.on("first")
    def first(event: Delivery, ctx: Context) -> None:
        with pytest.raises(BacklogFull):
            ctx.publish(Event("second"))
        ctx.schedule("second", None, delay=0)

    @app.on("second")
    def second(event: Delivery) -> None:
        seen.add(event)

    with Running(app), Dispatcher(redis_url):
        queue.publish(Event("first"), key="k")
        seen.wait(1)
    assert app.counts.retried == app.counts.dead == 0


# ------------------------------------------------------------------------------------------------ verbs


def test_both_clients_bound_a_stream(redis_url: str, queue: TimerQueue) -> None:
    async def other() -> tuple[Bound, bool, bool]:
        async with AsyncTimerQueue.connect(redis_url) as queue:
            made = await queue.bound("events", group=GROUP, lane_limit=1, rule="drop_newest")
            await queue.publish(Event("t"), key="k")
            change = await queue.publish(Event("t"), key="k")
            return made, bool(change), await queue.unbound("events")

    made, published, ended = asyncio.run(other())
    assert (made, published, ended) == (Bound("events", GROUP, None, 1, "drop_newest", None), False, True)
    assert not queue.unbound("events")
    with pytest.raises(InvalidSchedule, match="limit=, lane_limit= or both"):
        queue.bound("events", group=GROUP)


def test_the_end_of_a_bound_that_never_was_makes_no_namespace(
    redis_url: str, redis_client: redis.Redis
) -> None:
    with TimerQueue.connect(redis_url, namespace="typo") as queue:
        assert not queue.unbound("events")
    assert redis_client.keys() == []


@pytest.mark.one_server
def test_the_command_line_bounds_a_stream_and_shows_it(run: Run, queue: TimerQueue) -> None:
    done = run("bound", "events", "--group", "billing", "--limit", "1", "--lane-limit", "1")
    assert done.stdout == (
        "BOUND  events for group billing: 1 in all and 1 in each lane, then hold back firing\n"
    )
    assert run("publish", "--type", "t", "--key", "k").exit_code == 0
    refused = run("publish", "--type", "t", "--key", "l")
    assert refused.exit_code == 4
    assert "stream events is full (group billing: 1 of 1); nothing was published" in refused.stderr
    assert "timerq upsert --delay 0s" in refused.stderr
    shown = run("stats").stdout
    assert "backlog of stream events for group billing" in shown
    assert "bound: 1 in all and 1 in each lane, then hold back firing" in shown
    (stats,) = objects(run("stats", "--json"))
    assert stats["backlogs"] == [
        {
            "bound": {
                "stream": "events", "group": "billing", "limit": 1, "lane_limit": 1, "rule": "hold", "share": 1,
            },
            "waiting": 1, "held_back": 0, "dropped": 0,
        }
    ]  # fmt: skip
    (made,) = objects(
        run("bound", "events", "--group", "billing", "--limit", "1", "--rule", "drop-newest", "--json")
    )
    assert made["rule"] == "drop_newest"
    dropped = run("publish", "--type", "t", "--key", "l")
    assert (dropped.exit_code, "DROPPED" in dropped.stderr) == (3, True)
    assert json.loads(run("unbound", "events", "--json").stdout) == {"stream": "events", "ended": True}
    again = run("unbound", "events")
    assert (again.exit_code, "has no bound" in again.stderr) == (3, True)


@pytest.mark.one_server
def test_the_command_line_says_what_is_wrong_and_what_is_held_back(run: Run, redis_url: str) -> None:
    wrong = run("bound", "events", "--group", "billing")
    assert wrong.exit_code == 2
    assert "--limit, --lane-limit or both" in wrong.stderr
    run("bound", "events", "--group", "billing", "--limit", "1")
    with TimerQueue.connect(redis_url) as queue, Dispatcher(redis_url):
        queue.upsert_many([Upsert(f"k{n}", Event("t"), delay=0) for n in range(2)])
        wait_for(lambda: queue.stats().held_back == 1, "one is held back")
        (left,) = queue.list()
    told = run("why", left.key).stdout
    assert "is held back: stream events is full (group billing: 1 of 1)" in told
    assert "held back: stream events is full" in run("get", left.key).stdout
    assert "held back: their stream is full" in run("stats").stdout
