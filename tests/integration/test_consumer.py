"""The consumer at work: every event handled, tried again, given up, taken over, handed back."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pydantic
import pytest
import redis

from tests.support.consumers import Running, Seen
from tests.support.events import Events, Stopwatch
from tests.support.proxy import Proxy, wait_for
from timerq import Event, InvalidSchedule, TimerQueue, Upsert, schedule
from timerq.commands.command import MAX_ITEMS
from timerq.commands.consume import Settlement, settle
from timerq.consumer import AsyncContext, Consumer, Context, desk, ending, loop, service
from timerq.consumer import lanes as lanes_room
from timerq.consumer.desk import Desk
from timerq.dispatcher import Dispatcher
from timerq.embedded import EmbeddedRedis
from timerq.errors import Incomplete
from timerq.keys import dead, stream
from timerq.model import Delivery, Outcome
from timerq.testing import ManualClock

MakeRedis = Callable[..., EmbeddedRedis]
GROUP = "g"


class Order(pydantic.BaseModel):
    order_id: int


def pending(client: redis.Redis, queue: TimerQueue, group: str = GROUP, name: str = "events") -> int:
    """How many entries the group has read and not settled."""
    assert queue.namespace is not None
    found = 0
    for tag in queue.namespace.tags:
        for info in client.xinfo_groups(stream(tag, name.encode())):
            if info["name"] == group.encode():
                found += info["pending"]
    return found


def dead_letters(client: redis.Redis, queue: TimerQueue, group: str = GROUP) -> list[dict[bytes, bytes]]:
    assert queue.namespace is not None
    found: list[Any] = []
    for tag in queue.namespace.tags:
        found += [fields for _, fields in client.xrange(dead(tag, b"events", group.encode()))]
    return found


def publish(queue: TimerQueue, count: int, type: str = "t", lanes: int = 1_000_000) -> None:
    for n in range(count):
        queue.publish(Event(type, n), key=f"k{n % lanes}")


# ------------------------------------------------------------------------------------------------ handling


def test_every_event_is_handled_once_and_acknowledged(
    redis_url: str, queue: TimerQueue, redis_client: redis.Redis
) -> None:
    seen = Seen()
    app = Consumer(queue, group=GROUP)

    @app.on("async")
    async def later(event: Delivery) -> None:
        seen.add(event)

    @app.on("sync")
    def now(event: Delivery) -> str:
        seen.add(event)
        assert threading.current_thread().name.startswith("timerq-g")
        return "done"

    with Running(app), Dispatcher(redis_url):
        queue.upsert_many([Upsert(f"k{n}", Event("async", n), delay=n) for n in range(200)])
        queue.upsert_many([Upsert(f"s{n}", Event("sync", n), delay=n, owner="o") for n in range(50)])
        seen.wait(250)
        wait_for(lambda: app.counts.handled == 250, "all are acknowledged")
    assert [id for id, n in Counter(seen.ids).items() if n > 1] == []
    assert {event.attempt for event in seen.all} == {1}
    assert pending(redis_client, queue) == 0
    assert app.counts.lost == app.counts.handed_back == 0
    assert queue.namespace is not None
    (group,) = redis_client.xinfo_groups(stream(queue.namespace.tags[0], b"events"))
    assert group["consumers"] == 0  # it has left


@pytest.mark.one_server
def test_a_namespace_of_several_partitions_and_tenants(redis_url: str, redis_client: redis.Redis) -> None:
    seen = Seen()
    with TimerQueue.connect(redis_url, namespace="many") as queue:
        queue.init(partitions=4)
        with TimerQueue.connect(redis_url, namespace="many", tenant="other") as other:
            publish(queue, 40)
            publish(other, 40)
        app = Consumer(queue, group=GROUP, concurrency=7)
        app.on("t")(lambda event: seen.add(event) and None)
        with Running(app):
            seen.wait(80)
            wait_for(lambda: app.counts.handled == 80, "all are acknowledged")
        assert Counter(event.tenant for event in seen.all) == {"default": 40, "other": 40}
        assert pending(redis_client, queue) == 0


@pytest.mark.one_server
def test_no_more_run_at_once_than_may(queue: TimerQueue) -> None:
    running = most = 0
    ended = Seen()
    publish(queue, 40)
    app = Consumer(queue, group=GROUP, concurrency=5)

    @app.on("t")
    async def handler(event: Delivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        ended.add(event)

    with Running(app):
        ended.wait(40)
    assert most == 5


@pytest.mark.one_server
def test_what_nobody_wants(queue: TimerQueue, redis_client: redis.Redis) -> None:
    publish(queue, 3, "unheard of")
    first = Consumer(queue, group="acks")
    second = Consumer(queue, group="buries", unwanted="dead")
    third = Consumer(queue, group="leaves", unwanted="leave")
    with Running(first), Running(second), Running(third):
        apps = (first, second, third)
        wait_for(lambda: all(app.counts.unwanted == 3 for app in apps), "all are seen")
        wait_for(lambda: pending(redis_client, queue, "acks") == 0, "it is acknowledged")
    assert pending(redis_client, queue, "acks") == pending(redis_client, queue, "buries") == 0
    assert len(dead_letters(redis_client, queue, "buries")) == 3
    assert pending(redis_client, queue, "leaves") == 3
    assert (first.counts.handled, second.counts.dead) == (0, 0)


@pytest.mark.one_server
def test_large_events_that_die_together_are_buried_a_few_at_a_time(
    queue: TimerQueue, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def watched(*words: Any) -> Any:
        calls.append(sum(item.verb == "reject" for item in words[-1]))
        return settle(*words)

    monkeypatch.setattr(desk, "settle", watched)
    app = Consumer(queue, group=GROUP, unwanted="dead")
    all_began: list[asyncio.Event] = []

    @app.on("t", attempts=1)
    async def fails_with_the_others(event: Delivery) -> Incomplete:
        all_began[:] = all_began or [asyncio.Event()]
        if event.payload[0] == 9:
            all_began[0].set()
        await all_began[0].wait()
        return Incomplete("no")

    for n in range(10):
        for type in ("t", "unheard of"):
            queue.publish(Event(type, [n, "x" * 60_000]), key=f"k{n}")
    with Running(app):
        wait_for(lambda: len(dead_letters(redis_client, queue)) == 20, "all are given up")
    assert sum(calls) == 20
    assert max(calls) <= 4  # 256 KiB


@pytest.mark.one_server
def test_payloads_fit_the_model_or_are_dead_at_once(queue: TimerQueue, redis_client: redis.Redis) -> None:
    seen = Seen()
    app = Consumer(queue, group=GROUP)

    @app.on("order")
    async def handler(order: Order) -> None:
        seen.add(order)

    queue.publish(Event("order", {"order_id": "x"}), key="bad")
    queue.publish(Event("order", {"order_id": 7}), key="good")
    with Running(app):
        wait_for(lambda: app.counts.dead == 1 and app.counts.handled == 1, "both are settled")
    assert seen.all == [Order(order_id=7)]
    (letter,) = dead_letters(redis_client, queue)
    assert letter[b"error"].startswith(b"InvalidPayload: payload.order_id")
    assert letter[b"attempts"] == b"1"


@pytest.mark.one_server
def test_an_entry_that_cannot_be_read_does_not_stop_the_others(
    redis_url: str, queue: TimerQueue, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    assert queue.namespace is not None
    publish(queue, 1)
    redis_client.xadd(stream(queue.namespace.tags[0], b"events"), {"foreign": b"\xff"})
    publish(queue, 1)
    app = Consumer(queue, group=GROUP)
    app.on("t")(lambda event: seen.add(event) and None)
    with Running(app):
        seen.wait(2)
        wait_for(lambda: app.counts.unreadable == 1 and pending(redis_client, queue) == 0, "it is settled")
    (letter,) = dead_letters(redis_client, queue)
    assert b"unreadable" in letter[b"error"]
    assert letter[b"foreign"] == b"\xff"
    assert f"cannot be read; it is a dead letter of group {GROUP}: it has no field 'id'" in caplog.text
    with Events(redis_url, queue.namespace, "errors") as errors:
        (told,) = errors.wait(1)
    assert told.type == "handler.dead"


@pytest.mark.one_server
def test_scheduled_functions_run_under_their_names(redis_url: str, queue: TimerQueue) -> None:
    seen = Seen()

    @schedule(every=50)
    async def tick(fired_at: Any, name: str) -> None:
        seen.add((fired_at, name))

    @schedule(every=50, stream="elsewhere")
    def other() -> None: ...

    app = Consumer(queue, group=GROUP)
    app.add(tick, attempts=2)
    assert app.handlers["tick"].attempts == 2
    with pytest.raises(InvalidSchedule, match="elsewhere"):
        app.add(other)
    with pytest.raises(InvalidSchedule, match="already"):
        app.add(tick)
    queue.upsert_many([tick.upsert])
    with Running(app), Dispatcher(redis_url):
        (at, name), *_ = seen.wait(3)
    assert name == "tick"
    assert at.tzinfo is not None


# ------------------------------------------------------------------------------------------------ failing


def test_b91_one_event_that_always_fails_among_good_ones(
    redis_url: str, queue: TimerQueue, redis_client: redis.Redis
) -> None:
    seen = Seen()
    app = Consumer(queue, group=GROUP)

    @app.on("t", attempts=3, backoff=20, max_backoff=50)
    async def handler(event: Delivery) -> None:
        seen.add(event)
        if event.payload == 7:
            raise ValueError("always")

    publish(queue, 21)
    with Running(app):
        wait_for(lambda: app.counts.dead == 1 and app.counts.handled == 20, "all are settled")
    tries = Counter(event.payload for event in seen.all)
    assert tries == {n: 3 if n == 7 else 1 for n in range(21)}
    assert [event.attempt for event in seen.all if event.payload == 7] == [1, 2, 3]
    assert pending(redis_client, queue) == 0
    (letter,) = dead_letters(redis_client, queue)
    assert letter[b"error"] == b"ValueError: always"
    assert b"raise ValueError" in letter[b"traceback"]
    assert (letter[b"attempts"], letter[b"group"]) == (b"3", GROUP.encode())
    with Events(redis_url, queue.namespace, "errors") as errors:
        told = errors.wait(3)
    assert [event.type for event in told] == ["handler.failed", "handler.failed", "handler.dead"]
    assert {event.payload["reason"] for event in told} == {"ValueError: always"}
    assert {event.payload["event"] for event in told} == {
        event.id for event in seen.all if event.payload == 7
    }


@pytest.mark.one_server
def test_what_counts_as_a_failure(queue: TimerQueue, redis_client: redis.Redis) -> None:
    app = Consumer(queue, group=GROUP)
    options: Any = {"attempts": 1}

    @app.on("incomplete", **options)
    async def incomplete(event: Delivery) -> Incomplete:
        return Incomplete("not yet")

    @app.on("exits", **options)
    def exits(event: Delivery) -> None:
        raise SystemExit(3)

    @app.on("exits-async", **options)
    async def exits_async(event: Delivery) -> None:
        raise SystemExit(3)

    @app.on("cancelled", **options)
    async def cancelled(event: Delivery) -> None:
        raise asyncio.CancelledError

    def cancel_oneself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    @app.on("cancels-itself", **options)
    async def cancels_itself(event: Delivery) -> None:
        cancel_oneself()
        await asyncio.sleep(60)

    @app.on("cancels-itself-later", **options)
    async def cancels_itself_later(event: Delivery, ctx: AsyncContext) -> None:
        await asyncio.sleep(0)
        cancel_oneself()
        await asyncio.sleep(60)

    @app.on("forgot", **options)
    def forgot(event: Delivery) -> Any:
        return incomplete(event)

    @app.on("stops", **options)
    def stops(event: Delivery) -> None:
        raise StopIteration

    @app.on("slow", timeout=20, **options)
    async def slow(event: Delivery) -> None:
        await asyncio.sleep(60)

    class Panic(BaseException): ...

    @app.on("panics", **options)
    def panics(event: Delivery) -> None:
        raise Panic

    @app.on("panics-async", **options)
    async def panics_async(event: Delivery) -> None:
        raise Panic

    @app.on("panics-later", **options)
    async def panics_later(event: Delivery) -> None:
        await asyncio.sleep(0)
        raise Panic

    @app.on("closes", **options)
    async def closes(event: Delivery) -> None:
        raise GeneratorExit

    @app.on("closes-later", **options)
    async def closes_later(event: Delivery) -> None:
        await asyncio.sleep(0)
        raise GeneratorExit

    @app.on("closes-in-time", timeout="1h", **options)
    async def closes_in_time(event: Delivery, ctx: AsyncContext) -> None:
        await asyncio.sleep(0)
        raise GeneratorExit

    late = threading.Event()

    @app.on("slow-thread", timeout=20, **options)
    def slow_thread(event: Delivery) -> None:
        late.wait(30)
        raise ValueError("nobody hears it")

    @app.on("own-timeout", timeout="1h", **options)
    async def own_timeout(event: Delivery) -> None:
        raise TimeoutError("its own")

    for type in app.handlers:
        queue.publish(Event(type), key=type)
    with Running(app):
        wait_for(lambda: app.counts.dead == len(app.handlers), "all are given up")
        late.set()
    letters = {
        letter[b"type"].decode(): letter[b"error"].decode() for letter in dead_letters(redis_client, queue)
    }
    assert letters["incomplete"] == "Incomplete: not yet"
    assert "SystemExit" in letters["exits"]
    assert "SystemExit" in letters["exits-async"]
    assert letters["cancelled"] == "CancelledError"
    assert letters["cancels-itself"] == letters["cancels-itself-later"] == "CancelledError"
    assert letters["panics"] == letters["panics-async"] == letters["panics-later"] == "Panic"
    assert letters["closes"] == letters["closes-later"] == letters["closes-in-time"] == "GeneratorExit"
    assert "async def" in letters["forgot"]
    assert "StopIteration" in letters["stops"]
    assert "its timeout of 0.02 s" in letters["slow"]
    assert "its timeout of 0.02 s" in letters["slow-thread"]
    assert letters["own-timeout"] == "TimeoutError: its own"
    assert pending(redis_client, queue) == 0


@pytest.mark.one_server
def test_a_lane_waits_for_a_thread_that_takes_too_long(
    queue: TimerQueue, caplog: pytest.LogCaptureFixture
) -> None:
    app = Consumer(queue, group=GROUP, ordered=True)
    runs: list[tuple[int, int]] = []
    under_way, most = [0], [0]
    go, beside = threading.Event(), threading.Event()

    @app.on("t", timeout=20, backoff=10)
    def handler(event: Delivery) -> None:
        if event.owner == "other":
            beside.set()
            return
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        runs.append((event.payload, event.attempt))
        if len(runs) == 1:
            go.wait(60)
        under_way[0] -= 1

    for n in range(3):
        queue.publish(Event("t", n), key="k", owner="o")
    with Running(app):
        wait_for(lambda: "its lane waits until it has ended" in caplog.text, "its time is up")
        queue.publish(Event("t"), key="k", owner="other")
        assert beside.wait(60)  # no other lane waits
        assert runs == [(0, 1)]
        go.set()
        wait_for(lambda: app.counts.handled == 4, "all are handled")
    assert (most, runs[:2]) == ([1], [(0, 1), (0, 2)])
    lane = [n for n, _ in runs]  # on a machine that stands still, others may have taken too long as well
    assert lane == sorted(lane)


@pytest.mark.one_server
def test_another_group_sees_each_event_once_while_one_tries_again(queue: TimerQueue) -> None:
    calm, upset = Seen(), Seen()
    first, second = Consumer(queue, group="calm"), Consumer(queue, group="upset")
    first.on("t")(lambda event: calm.add(event) and None)

    @second.on("t", attempts=4, backoff=10)
    async def handler(event: Delivery) -> None:
        if upset.add(event) < 4:
            raise ValueError

    publish(queue, 1)
    with Running(first), Running(second):
        upset.wait(4)
        wait_for(lambda: second.counts.handled == 1, "it is handled in the end")
    assert len(calm.all) == 1


# ------------------------------------------------------------------------------------------------ lanes


def test_an_ordered_group_keeps_each_lane_in_order(queue: TimerQueue, redis_client: redis.Redis) -> None:
    seen, running = Seen(), set()
    overlaps: list[str] = []
    apps = [Consumer(queue, group=GROUP, ordered=True, concurrency=4) for _ in range(2)]

    async def handler(event: Delivery) -> None:
        if event.lane in running:
            overlaps.append(event.lane)
        running.add(event.lane)
        await asyncio.sleep(0.001)
        running.discard(event.lane)
        if event.payload % 10 == 3 and event.attempt == 1:
            raise ValueError("once")
        seen.add((event.lane, event.payload))

    for app in apps:
        app.on("t", backoff=20)(handler)
    publish(queue, 200, lanes=8)
    with Running(apps[0]), Running(apps[1]):
        seen.wait(200)
        wait_for(lambda: pending(redis_client, queue) == 0, "all are acknowledged")
    assert overlaps == []
    for lane in range(8):
        assert [n for name, n in seen.all if name == f"k{lane}"] == list(range(lane, 200, 8))


@pytest.mark.one_server
def test_a_new_owner_does_not_wait_for_what_the_one_before_left_to_be_tried_again(queue: TimerQueue) -> None:
    seen = Seen()
    app = Consumer(queue, group=GROUP, ordered=True)

    @app.on("fails", backoff="1h", max_backoff="1h")
    async def fails(event: Delivery) -> Incomplete:
        return Incomplete("no")

    @app.on("t")
    async def handle(event: Delivery) -> None:
        seen.add(event.payload)

    queue.publish(Event("fails"), key="k", owner="o")
    with Running(app):
        wait_for(lambda: app.counts.retried == 1, "it waits to be tried again")
        queue.publish(Event("t", "old"), key="k", owner="o")
        queue.owner("o").destroy()
        queue.publish(Event("t", "new"), key="k", owner="o")
        assert seen.wait(1) == ["new"]
        wait_for(lambda: app.counts.stale == 2, "what was the old one's is dropped")


@pytest.mark.one_server
def test_a_retrying_event_holds_its_own_lane_only(queue: TimerQueue) -> None:
    seen = Seen()
    app = Consumer(queue, group=GROUP, ordered=True)
    go = threading.Event()

    @app.on("t", attempts=1000, backoff=20, max_backoff=20)
    async def handler(event: Delivery) -> None:
        if event.lane == "k0" and not go.is_set():
            raise ValueError
        seen.add((event.lane, event.payload))

    publish(queue, 30, lanes=3)
    with Running(app):
        seen.wait(20)
        assert {lane for lane, _ in seen.all} == {"k1", "k2"}
        go.set()
        seen.wait(30)
    assert [n for lane, n in seen.all if lane == "k0"] == list(range(0, 30, 3))


@pytest.mark.one_server
@pytest.mark.parametrize("keeps_few", [False, True])
@pytest.mark.parametrize("lanes", [1, 1_000_000])
def test_lanes_that_stand_take_no_room_from_the_others(
    queue: TimerQueue, monkeypatch: pytest.MonkeyPatch, lanes: int, keeps_few: bool
) -> None:
    """Also where more stands than is read ahead; and where it is full, it reads on once a lane goes on."""
    most = 2 * MAX_ITEMS  # as many as are read ahead
    if keeps_few:
        monkeypatch.setattr(lanes_room, "MOST", 1)
    publish(queue, most + 10, "bad", lanes)
    queue.publish(Event("good"), key="another")
    seen, app = Seen(), Consumer(queue, group=GROUP, ordered=True)
    backoff = "500ms" if keeps_few else "1h"

    @app.on("bad", backoff=backoff, max_backoff=backoff)
    async def bad(event: Delivery) -> None:
        if event.attempt == 1 and event.payload < lanes:
            raise ValueError("not yet")

    @app.on("good")
    async def good(event: Delivery) -> None:
        seen.add(event)

    with Running(app):
        seen.wait(1)
        if keeps_few:
            wait_for(lambda: app.counts.handled == most + 11, "all are handled")
    assert keeps_few or app.counts.handled == 1


@pytest.mark.one_server
def test_a_reader_that_is_full_does_not_ask_again_and_again(
    queue: TimerQueue, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_room, "MOST", 1)
    most = 2 * MAX_ITEMS
    publish(queue, most + 10, lanes=1)
    app = Consumer(queue, group=GROUP, ordered=True)

    @app.on("t", backoff="1h", max_backoff="1h")
    async def fails(event: Delivery) -> None:
        raise ValueError("not yet")

    with Running(app):
        wait_for(lambda: pending(redis_client, queue) == most and app.counts.retried == 1, "it is full")
        redis_client.config_resetstat()
        time.sleep(0.5)  # what it does meanwhile is counted
        stats: Any = redis_client.info("commandstats")
    assert stats.get("cmdstat_evalsha", {"calls": 0})["calls"] < 20


@pytest.mark.one_server
def test_the_lead_goes_over_when_the_leader_stops(queue: TimerQueue) -> None:
    seen = Seen()
    first = Consumer(queue, group=GROUP, ordered=True)
    second = Consumer(queue, group=GROUP, ordered=True)
    first.on("t")(lambda event: seen.add(("first", event.payload)) and None)
    second.on("t")(lambda event: seen.add(("second", event.payload)) and None)
    leading = Running(first).start()
    publish(queue, 3, lanes=1)
    seen.wait(3)
    with Running(second):
        leading.stop()
        publish(queue, 3, lanes=1)
        seen.wait(6)
    assert seen.all == [("first", n) for n in range(3)] + [("second", n) for n in range(3)]


# ------------------------------------------------------------------------------------------------ leases, take-over


@pytest.mark.one_server
def test_a_long_handler_keeps_its_event(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For four leases. Time goes on once all are lengthened, however slow the machine; others look all the time."""
    clock, seen, go = ManualClock(), Seen(), threading.Event()
    lengthened_ms: dict[bytes, int] = {}
    send = Desk._send

    async def noted(desk: Desk, items: Sequence[Settlement]) -> Sequence[str]:
        now_ms = clock.now_ms
        words = await send(desk, items)
        lengthened_ms.update({item.entry: now_ms for item in items if item.verb == "extend"})
        return words

    def are_lengthened(now_ms: int) -> bool:
        return [at_ms >= now_ms for at_ms in [*lengthened_ms.values()]] == [True] * 3

    monkeypatch.setattr(Desk, "_send", noted)
    monkeypatch.setattr(loop, "LOOK_S", 0.02)
    with TimerQueue.connect(redis_url, clock=clock) as queue:
        queue.init(clock="manual")
        apps = [Consumer(queue, group=GROUP, lease=300) for _ in range(3)]

        async def handler(event: Delivery) -> None:
            seen.add(event)
            while not go.is_set():
                await asyncio.sleep(0.01)

        for app in apps:
            app.on("t")(handler)
        publish(queue, 3)
        with Running(apps[0]), Running(apps[1]), Running(apps[2]):
            seen.wait(3)
            for _ in range(12):
                wait_for(partial(are_lengthened, clock.advance(100)), "all are lengthened")
            go.set()
            wait_for(lambda: sum(app.counts.handled for app in apps) == 3, "all are handled")
    assert len(seen.all) == 3
    assert sum(app.counts.lost for app in apps) == 0


@pytest.mark.one_server
def test_b93_short_leases_and_a_timer_that_is_due_after_them(redis_url: str, queue: TimerQueue) -> None:
    # a machine that stands still for longer than a lease loses one, but not time and again
    for _ in range(5):
        seen = Seen()
        apps = [Consumer(queue, group=GROUP, lease=500) for _ in range(4)]
        for app in apps:
            app.on("t")(lambda event, seen=seen: seen.add(event) and None)
        dispatchers = [Dispatcher(redis_url) for _ in range(4)]
        with ExitStack() as stack:
            for dispatcher in dispatchers:
                stack.enter_context(dispatcher)
            for app in apps:
                stack.enter_context(Running(app))
            queue.upsert("k", Event("t"), delay=1_700)
            seen.wait(1)
            time.sleep(1.2)  # more than two leases: whoever wanted to take it over would have
        assert sum(app.counts.handled for app in apps) == 1
        if len(seen.all) == 1:
            return
    raise AssertionError(f"handled {len(seen.all)} times")


@pytest.mark.one_server
def test_b51_consumers_of_one_name_share_the_work(queue: TimerQueue) -> None:
    seen = Seen()
    apps = [Consumer(queue, group=GROUP, name="the-same", concurrency=3) for _ in range(3)]
    for app in apps:
        app.on("t")(lambda event: seen.add(event) and None)
    with Running(apps[0]), Running(apps[1]), Running(apps[2]):
        publish(queue, 200)
        seen.wait(200)
        wait_for(lambda: sum(app.counts.handled for app in apps) == 200, "all are acknowledged")
    assert len(set(seen.ids)) == len(seen.ids) == 200
    assert len({app.new_name() for app in apps}) == 3


# ------------------------------------------------------------------------------------------------ stopping


@pytest.mark.one_server
def test_a_stop_waits_for_what_is_in_hand(queue: TimerQueue, redis_client: redis.Redis) -> None:
    began, ended = Seen(), Seen()
    app = Consumer(queue, group=GROUP)

    @app.on("t")
    async def handler(event: Delivery) -> None:
        began.add(event)
        await asyncio.sleep(0.3)
        ended.add(event)

    publish(queue, 5)
    running = Running(app).start()
    began.wait(5)
    running.stop()
    assert len(ended.all) == 5
    assert pending(redis_client, queue) == 0


@pytest.mark.one_server
@pytest.mark.parametrize("ordered", [False, True])
def test_what_a_stop_cannot_wait_for_is_handed_back_at_once(queue: TimerQueue, ordered: bool) -> None:
    began, seen = Seen(), Seen()
    app = Consumer(queue, group=GROUP, drain=100, ordered=ordered, concurrency=3)

    @app.on("t")
    async def handler(event: Delivery) -> None:
        began.add(event)
        await asyncio.sleep(60)

    publish(queue, 10)
    running = Running(app).start()
    began.wait(3)
    with Stopwatch() as watch:
        running.stop()
    assert watch.seconds < 20
    assert app.counts.handed_back >= 3
    other = Consumer(queue, group=GROUP, ordered=ordered)
    other.on("t")(lambda event: seen.add(event) and None)
    with Running(other), Stopwatch() as watch:
        seen.wait(10)
    assert watch.seconds < 20  # not a lease of 30 s
    assert {event.attempt for event in seen.all} == {1}  # it was not their fault
    assert {event.delivery for event in seen.all if event.id in began.ids} == {2}


@pytest.mark.one_server
def test_a_thread_that_never_ends_does_not_hold_up_a_stop(queue: TimerQueue) -> None:
    began, never = threading.Event(), threading.Event()
    app = Consumer(queue, group=GROUP, drain=50)

    @app.on("t")
    def handler(event: Delivery) -> None:
        began.set()
        never.wait(60)

    publish(queue, 1)
    running = Running(app).start()
    assert began.wait(10)
    with Stopwatch() as watch:
        running.stop()
    never.set()
    assert watch.seconds < 20


# ------------------------------------------------------------------------------------------------ contexts


AMBIENT: contextvars.ContextVar[str] = contextvars.ContextVar("ambient")


@pytest.mark.one_server
def test_what_ignores_its_end_does_not_hold_up_a_stop(
    queue: TimerQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "PATIENCE_S", 0.05)
    monkeypatch.setattr(service, "_LAST_WORDS_S", 0.05)
    began, late = Seen(), threading.Event()
    app = Consumer(queue, group=GROUP, drain=0)

    @app.on("goes-on")
    async def goes_on(event: Delivery) -> None:
        began.add(event)
        while not late.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

    @app.on("in-a-thread")
    async def in_a_thread(event: Delivery) -> None:
        began.add(event)
        await asyncio.to_thread(late.wait, 60)

    for type in app.handlers:
        queue.publish(Event(type), key=type)
    before = set(threading.enumerate())
    running = Running(app).start()
    began.wait(2)
    running.stop()
    assert {thread for thread in set(threading.enumerate()) - before if not thread.daemon} == set()
    late.set()


@pytest.mark.one_server
def test_no_ambient_context_leaks_into_a_handler(queue: TimerQueue) -> None:
    seen = Seen()
    app = Consumer(queue, group=GROUP, concurrency=1)

    @app.on("async")
    async def later(event: Delivery) -> None:
        seen.add(len([*contextvars.copy_context()]))
        AMBIENT.set("left behind")

    @app.on("sync")
    def now(event: Delivery) -> None:
        seen.add(len([*contextvars.copy_context()]))
        AMBIENT.set("left behind")

    for _ in range(3):
        queue.publish(Event("async"), key="k")
        queue.publish(Event("sync"), key="k")

    async def serve() -> None:
        AMBIENT.set("of the caller")
        serving = asyncio.create_task(app.serve())
        await asyncio.to_thread(seen.wait, 6)
        app.request_stop()
        await serving

    asyncio.run(serve())
    assert seen.all == [0] * 6


def test_a_handler_arms_publishes_and_cancels_in_its_lane(redis_url: str, queue: TimerQueue) -> None:
    seen = Seen()
    app = Consumer(queue, group=GROUP, declares=["later"])

    @app.on("hold")
    async def hold(event: Delivery, ctx: AsyncContext) -> None:
        armed = await ctx.schedule("release", {"n": event.payload}, delay=100)
        assert (await ctx.schedule("release", {"n": "another"}, delay="1h", name="x")).outcome == "CREATED"
        assert (await ctx.cancel(f"x@{event.id}")).outcome == "CANCELLED"
        seen.add(("armed", armed.outcome, armed.at_ms - event.fired_ms))

    @app.on("release")
    def release(event: Delivery, ctx: Context) -> None:
        ctx.publish(Event("over", event.payload))
        ctx.schedule_upsert("idle", Event("later"), delay="1h")
        seen.add(("released", event.owner, event.correlation))

    @app.on("over")
    async def over(event: Delivery, ctx: AsyncContext) -> None:
        assert await ctx.once()
        assert not await app.once(event)
        assert await app.once(event, "mail")
        seen.add(("over", event.lane, event.payload))

    with Running(app), Dispatcher(redis_url):
        first = queue.publish(Event("hold", 1, correlation={"trace": "abc"}), key="offer-42")
        armed, over_, released = sorted(seen.wait(3), key=lambda told: str(told[0]))
    assert armed == ("armed", Outcome.CREATED, 100)
    assert released == ("released", "offer-42", {"trace": "abc", "causation_id": first.event_id})
    assert over_ == ("over", "offer-42", {"n": 1})
    (idle,) = queue.list(owner="offer-42")
    assert (idle.key, idle.event.type) == ("idle", "later")


def test_a_handler_that_runs_a_hundred_times_arms_one_timer(redis_url: str, queue: TimerQueue) -> None:
    runs, fired = Seen(), Seen()
    app = Consumer(queue, group=GROUP, concurrency=1)

    @app.on("hold", attempts=100, backoff=1, max_backoff=1)
    async def hold(event: Delivery, ctx: AsyncContext) -> None:
        armed = await ctx.schedule("release", {"run": event.attempt}, delay=30)
        runs.add(armed.outcome)
        raise ValueError("it crashes after it has armed")

    app.on("release")(lambda event: fired.add(event) and None)
    with Running(app), Dispatcher(redis_url):
        queue.publish(Event("hold"), key="k")
        runs.wait(100)
        fired.wait(1)
        wait_for(lambda: app.counts.dead == 1, "it is given up")
    assert runs.all == [Outcome.CREATED] + [Outcome.DUPLICATE] * 99
    assert [event.payload for event in fired.all] == [{"run": 1}]


# ------------------------------------------------------------------------------------------------ Redis goes away


def test_a_restart_of_redis(make_redis: MakeRedis, tmp_path: Path) -> None:
    seen = Seen()
    server = make_redis(tmp_path, appendfsync="always")
    with TimerQueue.connect(server.url) as queue:
        queue.init()
        app = Consumer(queue, group=GROUP, lease="2s")
        app.on("t")(lambda event: seen.add(event) and None)
        with Running(app):
            publish(queue, 50)
            seen.wait(50)
            server.kill()
            wait_for(lambda: bool(app.failing), "it is noticed")
            server.start()
            publish(queue, 50)
            seen.wait(lambda all: len({event.id for event in all}) == 100)
            wait_for(lambda: not app.failing, "all is well again")
        with redis.Redis.from_url(server.url) as client:
            assert pending(client, queue) == 0


@pytest.mark.one_server
def test_b54_an_outage_under_an_idle_consumer_is_quiet(
    queue: TimerQueue, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    app = Consumer(proxy.url, group=GROUP)
    app.on("t")(lambda event: seen.add(event) and None)
    with Running(app):
        publish(queue, 1)
        seen.wait(1)
        with caplog.at_level(logging.INFO, logger="timerq"):
            proxy.refuse()
            proxy.close_connections()
            with Stopwatch() as watch:
                time.sleep(4)
            lines = len(caplog.records)
            proxy.accept()
        publish(queue, 1)
        seen.wait(2)
    assert watch.cpu_s < 0.2 * watch.seconds
    assert lines <= 4


@pytest.mark.one_server
def test_a_reply_that_is_lost_strands_nothing(
    queue: TimerQueue, proxy: Proxy, redis_client: redis.Redis
) -> None:
    seen = Seen()
    publish(queue, 20)
    app = Consumer(proxy.url, group=GROUP)
    app.on("t")(lambda event: seen.add(event) and None)
    lost = proxy.swallow_reply(
        lambda words: words[0] == b"EVALSHA" and b"_t_" not in b"".join(words), times=3
    )
    with Running(app):
        seen.wait(20, timeout_s=25)  # not a lease of 30 s
        wait_for(lambda: pending(redis_client, queue) == 0, "all are settled")
    assert lost.struck
    assert len(seen.ids) == len(set(seen.ids)) == 20


@pytest.mark.one_server
@pytest.mark.usefixtures("only_signals")
def test_b61_an_idle_consumer_hears_of_the_next_event_at_once(
    queue: TimerQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """Its bell stands open longer than redis-py's default time-out; an idle minute is tried with a shorter one."""
    seen = Seen()
    app = Consumer(queue, group=GROUP)
    app.on("t")(lambda event: seen.add(event) and None)
    with Running(app), caplog.at_level(logging.WARNING):
        publish(queue, 1)
        seen.wait(1)
        with Stopwatch() as watch:
            time.sleep(12)  # longer than the bell's read
        publish(queue, 1)
        seen.wait(
            2, timeout_s=15
        )  # nobody looks by chance before the lease of the first one would have ended
    assert not caplog.records
    assert watch.cpu_s < 0.05 * watch.seconds
