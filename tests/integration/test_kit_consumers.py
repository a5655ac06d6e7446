"""A real Consumer inside a TestQueue: retries, dead letters, lanes and armed timers in the kit's time."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import redis
from pydantic import BaseModel

from timerq import Event, TimerqError
from timerq.commands.command import Steps
from timerq.commands.consume import Received, Settlement, receive
from timerq.consumer import AsyncContext, Consumer, Context
from timerq.consumer.desk import Desk
from timerq.model import Delivery
from timerq.testing import TestQueue, assert_scheduled

START_MS = 1_767_225_600_000
MINUTE = 60_000
NOWHERE = "redis://127.0.0.1:1/0"
"""Where an app is before a kit lends it another place; nothing is ever sent there."""


class Order(BaseModel):
    order_id: int


@pytest.fixture(params=["fakeredis", "redis"])
def kit(request: pytest.FixtureRequest, any_url: str) -> Iterator[TestQueue]:
    with TestQueue(None if request.param == "fakeredis" else any_url, partitions=2) as kit:
        yield kit


def test_failures_are_tried_again_in_the_kits_time(kit):
    app = Consumer(NOWHERE, group="g")
    runs: list[tuple[int, int]] = []

    @app.on("order", attempts=4, backoff="10m", max_backoff="1h")
    async def order(event: Delivery, ctx: AsyncContext) -> None:
        runs.append((event.attempt, kit.clock.now_ms))
        if event.attempt < 3:
            raise ValueError("not yet")
        await ctx.schedule("follow", {"of": event.key}, delay="1d")

    @app.on("follow")
    def follow(event: Delivery, ctx: Context) -> None:  # a sync one runs in a thread
        runs.append((0, kit.clock.now_ms))

    kit.queue.upsert("o", Event("order"), delay="30m")
    events = kit.advance("3d", app)
    assert [event.type for event in events] == ["order", "follow"]
    assert [attempt for attempt, _ in runs] == [1, 2, 3, 0]
    assert runs[0][1] - START_MS == 30 * MINUTE
    assert runs[0][1] < runs[1][1] < runs[2][1] <= runs[0][1] + 40 * MINUTE
    # counted from the event, not from its handling
    assert runs[3][1] - START_MS == 30 * MINUTE + 1440 * MINUTE
    assert (app.counts.handled, app.counts.retried, app.counts.dead) == (2, 2, 0)
    assert len(kit.events(stream="errors")) == 2


def test_what_never_succeeds_is_a_dead_letter_and_time_goes_on(kit):
    app = Consumer(NOWHERE, group="g")

    @app.on("bad", attempts=3, backoff="1m")
    def bad(event: Delivery) -> None:
        raise ValueError("never")

    kit.queue.upsert("b", Event("bad"), every="1d", pause_after=2)
    kit.queue.upsert("unwanted", Event("other"), delay="1h")
    events = kit.advance("10d", app)
    assert [event.type for event in events] == ["other", "bad", "bad"]
    assert (app.counts.dead, app.counts.unwanted) == (2, 1)
    assert kit.queue.get("b").state == "paused"


def test_lanes_are_kept_while_one_is_tried_again(kit):
    app = Consumer(NOWHERE, group="g", ordered=True)
    runs: list[tuple[str | None, int, int]] = []

    @app.on("step", attempts=3, backoff="10m")
    async def step(event: Delivery) -> None:
        runs.append((event.owner, event.payload, event.attempt))
        if (event.owner, event.payload, event.attempt) == ("a", 1, 1):
            raise ValueError("once")

    for n in (1, 2, 3):
        for owner in "ab":
            kit.queue.upsert(f"s{n}", Event("step", n), delay=f"{n}s", owner=owner)
    kit.advance("1h", app)
    assert [(n, attempt) for owner, n, attempt in runs if owner == "a"] == [(1, 1), (1, 2), (2, 1), (3, 1)]
    assert [(n, attempt) for owner, n, attempt in runs if owner == "b"] == [(1, 1), (2, 1), (3, 1)]
    assert runs.index(("b", 3, 1)) < runs.index(("a", 1, 2))


def test_leases_are_lengthened_before_anything_is_read_however_slow_redis_is(kit, monkeypatch):
    # time in a kit jumps past leases: a read that came first would take over, as the second attempt, what waits here
    send = Desk._send

    async def slow(desk: Desk, items: Sequence[Settlement]) -> Sequence[str]:
        await asyncio.sleep(0.02)
        return await send(desk, items)

    monkeypatch.setattr(Desk, "_send", slow)
    app = Consumer(NOWHERE, group="g", ordered=True)
    runs: list[tuple[int, int]] = []

    @app.on("step", attempts=3, backoff="10m")
    async def step(event: Delivery) -> None:
        runs.append((event.payload, event.attempt))
        if runs == [(1, 1)]:
            raise ValueError("once")

    for n in (1, 2, 3):
        kit.queue.upsert(f"s{n}", Event("step", n), delay=f"{n}s", owner="a")
    kit.advance("1h", app)
    assert runs == [(1, 1), (1, 2), (2, 1), (3, 1)]


def test_what_a_dead_consumer_held_is_taken_over_when_its_lease_ends(kit):
    app = Consumer(NOWHERE, group="g")
    runs: list[tuple[int, int]] = []
    app.on("t")(lambda event: runs.append((event.attempt, kit.clock.now_ms - START_MS)))
    kit.queue.upsert("a", Event("t"), delay=0)
    kit.advance()

    def begun() -> Steps[list[Received]]:
        return (
            yield [receive(kit.namespace, p, "events", "g", "dead", count=9, lease_ms=30_000) for p in (0, 1)]
        )

    kit.advance(0, app)  # makes the group, and handles the first one
    kit.queue.upsert("b", Event("t"), delay="1m")
    kit.advance("1m")
    assert sum(len(received.deliveries) for received in kit.queue.run(begun())) == 1
    kit.advance("10m", app)
    assert runs == [(1, 0), (2, MINUTE + 30_000)]


def test_ordered_ones_of_one_group_take_turns_in_a_kit(kit):
    """As at a deploy: the new one need not wait for a lease that ends by the server's time."""
    runs: list[tuple[str, int]] = []
    apps = {}
    for name in ("old", "new"):
        apps[name] = Consumer(NOWHERE, group="g", ordered=True)
        apps[name].on("t")(lambda event, name=name: runs.append((name, event.payload)))
    for n, name in enumerate(["old", "new", "new", "old"]):
        kit.queue.publish(Event("t", n), key=f"k{n}")
        kit.advance("1m", apps[name])
    assert runs == [("old", 0), ("new", 1), ("new", 2), ("old", 3)]


def test_days_pass_without_a_script_too_many(kit):
    app = Consumer(NOWHERE, group="g")
    seen = []
    app.on("digest")(lambda event: seen.append(event.at_ms))
    kit.queue.upsert("d", Event("digest"), cron="0 9 * * *")
    assert [event.at_ms for event in kit.advance("30d", app)] == seen
    assert len(seen) == 30


def test_an_app_goes_from_kit_to_kit_and_back_to_where_it_was(kit):
    app = Consumer(NOWHERE, group="g")
    seen: list[str] = []
    app.on("t")(lambda event: seen.append(event.key))
    with TestQueue(handlers=app) as first:
        first.queue.upsert("one", Event("t"), delay="1m")
        first.advance("1m")
        with pytest.raises(TimerqError, match="another kit"):
            kit.advance("1m", app)
    assert app.place.url == NOWHERE
    kit.queue.upsert("two", Event("t"), delay="1m")
    kit.advance("1m", app)
    assert seen == ["one", "two"]


def test_a_test_that_is_asynchronous():
    app = Consumer(NOWHERE, group="g")

    @app.on("begin")
    async def begin(event: Delivery, ctx: AsyncContext) -> None:
        loops.append(asyncio.get_running_loop())
        await ctx.schedule("end", None, delay="1h")

    app.on("end")(lambda event: None)
    loops: list[Any] = []

    async def scenario() -> None:
        async with TestQueue() as kit:
            await kit.aqueue.upsert("k", Event("begin"), delay="1m")
            await kit.aadvance("2m", app)
            (schedule,) = kit.pending()
            assert_scheduled(kit, schedule.key, owner=schedule.owner, at=START_MS + 61 * MINUTE)
            assert [event.type for event in await kit.aadvance("1h", app)] == ["end"]
        assert loops == [asyncio.get_running_loop()]

    asyncio.run(scenario())


def test_a_kit_that_is_closed_when_its_loop_has_ended_lets_an_app_go(kit):
    """As a fixture does after a test that is asynchronous, and never closed the kit itself."""
    app = Consumer(NOWHERE, group="g")
    seen: list[str] = []
    app.on("t")(lambda event: seen.append(event.key))

    async def scenario(kit: TestQueue, key: str) -> None:
        await kit.aqueue.upsert(key, Event("t"), delay="1m")
        await kit.aadvance("1m", app)

    for key in ("one", "two"):
        with TestQueue() as other:
            asyncio.run(scenario(other, key))
    kit.queue.upsert("three", Event("t"), delay="1m")
    kit.advance("1m", app)
    assert seen == ["one", "two", "three"]
    kit.close()
    assert app.place.url == NOWHERE


@pytest.mark.one_server
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # sockets of a loop that has ended, in a client left open
def test_async_clients_whose_loop_has_ended_do_not_keep_a_kit_from_closing(
    redis_url: str, redis_client: redis.Redis
) -> None:
    app = Consumer(NOWHERE, group="g")
    app.on("t")(lambda event: None)
    with TestQueue(redis_url) as kit:
        asyncio.run(kit.aqueue.upsert("k", Event("t"), delay="1m"))
        assert len(kit.advance("1m", app)) == 1  # in a loop of the kit's own
    assert redis_client.dbsize() == 0
    assert app.place.url == NOWHERE


@pytest.mark.one_server
def test_one_that_runs_elsewhere_is_not_taken_from_there(redis_url):
    app = Consumer(redis_url, group="g")

    async def scenario() -> None:
        ready = asyncio.Event()
        serving = asyncio.create_task(app.serve(ready.set))
        await ready.wait()
        async with TestQueue() as kit:
            with pytest.raises(TimerqError, match="runs already"):
                await kit.aadvance("1m", app)
        app.request_stop()
        await serving

    asyncio.run(scenario())


def test_a_consumer_at_work_does_not_load_the_kit():
    code = "import sys, timerq.consumer; print([name for name in sys.modules if name.startswith('timerq.testing')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_a_handler_of_a_gone_owner_touches_nothing_of_the_next_incarnation(kit: TestQueue) -> None:
    app = Consumer(NOWHERE, group="g", declares=["later"])
    outcomes: list[str] = []

    @app.on("step")
    async def step(event: Delivery, ctx: AsyncContext) -> None:
        await kit.aqueue.owner("actor").destroy()  # while it is handled, the actor is begun anew
        await kit.aqueue.owner("actor").start_single("step", Event("later", "new"), "1h")
        outcomes.append((await ctx.start_single("step", Event("later", "old"), "1h")).outcome)
        outcomes.append((await ctx.schedule("later", delay="1h")).outcome)
        outcomes.append((await ctx.cancel("step")).outcome)

    kit.queue.owner("actor").start_single("step", Event("step"), "1s")
    kit.advance("1s", app)
    assert outcomes == ["OWNER_GONE"] * 3
    (left,) = kit.pending(owner="actor")
    assert left.event.payload == "new"


def test_several_consumers_take_turns_each_with_its_own_stream_and_group(kit):
    billing, mail = Consumer(NOWHERE, group="billing"), Consumer(NOWHERE, "mails", group="mail")
    audit = Consumer(NOWHERE, group="audit")
    said: list[tuple[str, str, int]] = []

    @billing.on("order", attempts=2, backoff="10m")
    async def charge(event: Delivery, ctx: AsyncContext) -> None:
        said.append(("billing", event.type, (kit.clock.now_ms - START_MS) // MINUTE))
        if event.attempt == 1:
            raise ValueError("once more")
        await ctx.publish(Event("receipt", stream="mails"))

    @mail.on("receipt")
    async def send(event: Delivery, ctx: AsyncContext) -> None:
        said.append(("mail", event.type, (kit.clock.now_ms - START_MS) // MINUTE))

    @audit.on("order")
    def note(event: Delivery) -> None:
        said.append(("audit", event.type, (kit.clock.now_ms - START_MS) // MINUTE))

    kit.queue.upsert("o", Event("order"), delay="30m")
    events = kit.advance("1d", [billing, mail, audit])
    assert [event.type for event in events] == ["order", "receipt"]
    assert said[:2] == [("billing", "order", 30), ("audit", "order", 30)]
    (again, sent) = said[2:]
    assert again[:2] == ("billing", "order")
    assert sent == ("mail", "receipt", again[2])
    assert 30 < again[2] <= 40
    assert [app.counts.handled for app in (billing, mail, audit)] == [1, 1, 1]
    kit.handlers = (audit, billing)
    kit.queue.upsert("p", Event("order"), delay="1m")
    kit.advance("1m")
    assert said[4:] == [("audit", "order", 1441), ("billing", "order", 1441)]


def test_a_traceback_begins_with_the_handler_and_a_payload_that_does_not_fit_has_none() -> None:
    app = Consumer(NOWHERE, group="g")

    @app.on("slow", attempts=1)
    async def slow(event: Delivery, ctx: AsyncContext) -> None:
        raise ValueError("late")

    @app.on("blocking", attempts=1)
    def blocking(event: Delivery) -> None:
        raise ValueError("late")

    @app.on("plain", attempts=1)
    async def plain(event: Delivery) -> None:
        raise ValueError("late")

    @app.on("checked")
    async def checked(order: Order) -> None:
        raise AssertionError("it does not fit")

    with TestQueue(handlers=app) as kit:
        for name in ("slow", "blocking", "plain", "checked"):
            kit.queue.publish(Event(name, {}), key=name)
        kit.advance("1m")
        traces = {letter.type: letter.traceback.splitlines() for letter in kit.queue.dead_list("g")}
    for name in ("slow", "blocking", "plain"):
        assert traces[name][0] == "Traceback (most recent call last):"
        assert traces[name][1].endswith(f"in {name}")
        assert len([line for line in traces[name] if line.startswith("  File ")]) == 1
    assert "InvalidPayload: " in traces["checked"][0]


def test_of_a_type_that_no_handler_wants_the_log_tells_once(caplog: pytest.LogCaptureFixture) -> None:
    acks, buries = Consumer(NOWHERE, group="acks"), Consumer(NOWHERE, group="buries", unwanted="dead")
    with TestQueue() as kit, caplog.at_level(logging.INFO, logger="timerq.consumer"):
        for n in range(150):
            kit.queue.publish(Event(f"odd.{n}"), key="k")
            kit.queue.publish(Event(f"odd.{n}"), key="k")
        kit.advance("1m", [acks, buries])
    said = [message for message in caplog.messages if message.startswith("no handler here")]
    what = "no handler here for events of type odd.0 on stream events: they are %s (said once for each type)"
    assert said.count(what % "acknowledged unhandled") == said.count(what % "dead letters") == 1
    assert len(said) == 200  # of 100 types for each group: types may be made up without end
