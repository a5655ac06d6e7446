"""What a handler may do with the timers of its lane besides starting them: look, cancel, destroy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from timerq import AsyncContext, Consumer, Context, Delivery, Event, InvalidSchedule, Outcome
from timerq.testing import TestQueue

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture(params=["fakeredis", "redis"])
def kit(request: pytest.FixtureRequest, any_url: str) -> Iterator[TestQueue]:
    with TestQueue(None if request.param == "fakeredis" else any_url, partitions=2) as kit:
        yield kit


@pytest.fixture
def app() -> Consumer:
    return Consumer(NOWHERE, group="g", ordered=True, declares=["tick", "new"])


def start(kit: TestQueue, owner: str) -> None:
    kit.queue.publish(Event("start"), key="k", owner=owner)


def test_a_handler_sees_and_cancels_what_its_owner_has(kit: TestQueue, app: Consumer) -> None:
    said: list[Any] = []

    @app.on("start")
    async def begin(event: Delivery, ctx: AsyncContext) -> None:
        for name in ("poll:1", "poll:2", "idle"):
            await ctx.start_single(name, Event("tick"), "1h")
        said.append((await ctx.active_keys(), await ctx.active_keys("poll:")))
        said.append([schedule.key for schedule in await ctx.list("poll:")])
        said.append((await ctx.is_active("idle"), await ctx.is_active("none"), (await ctx.get("idle")).key))
        said.append((await ctx.cancel_prefix("poll:"), await ctx.active_keys()))

    @app.on("stop")
    def stop(event: Delivery, ctx: Context) -> None:
        said.append((ctx.active_keys("i"), ctx.is_active("idle"), ctx.get("idle").owner))
        said.append(([schedule.key for schedule in ctx.list()], ctx.cancel_prefix("x"), ctx.cancel_all()))
        said.append((ctx.active_keys(), ctx.start_single("again", Event("tick"), "1h").outcome))

    start(kit, "room-1")
    start(kit, "room-2")
    kit.advance(0, app)
    both = [
        (["idle", "poll:1", "poll:2"], ["poll:1", "poll:2"]),
        ["poll:1", "poll:2"],
        (True, False, "idle"),
        (2, ["idle"]),
    ]
    assert sorted(map(str, said)) == sorted(map(str, both * 2))
    said.clear()
    kit.queue.publish(Event("stop"), key="k", owner="room-1")
    kit.advance(0, app)
    assert said == [(["idle"], True, "room-1"), (["idle"], 0, 1), ([], Outcome.CREATED)]
    assert [schedule.key for schedule in kit.queue.list(owner="room-2")] == ["idle"]


def test_without_an_owner_the_lane_is_the_key(kit: TestQueue, app: Consumer) -> None:
    said: list[Any] = []

    @app.on("hold")
    async def hold(event: Delivery, ctx: AsyncContext) -> None:
        await ctx.schedule("tick", delay="1h")
        said.append(await ctx.active_keys())
        said.append(await ctx.destroy())

    kit.queue.publish(Event("hold"), key="offer-42")
    kit.queue.upsert("offer-42", Event("tick"), delay="1d")  # of no owner: no business of the lane's timers
    kit.advance(0, app)
    assert len(said[0]) == said[1] == 1
    assert kit.queue.count() == 1


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_handler_destroys_its_owner(kit: TestQueue, app: Consumer, kind: str) -> None:
    said: list[Any] = []
    handled: list[str] = []
    app.on("tick")(lambda event: handled.append(event.key))

    async def end(event: Delivery, ctx: AsyncContext) -> str:
        await ctx.start_fixed_rate("beat", Event("tick"), "1s")
        await ctx.publish(Event("tick"), key="unread")  # is on the stream by then, and never handled
        said.append(await ctx.destroy())
        said.append((await ctx.start_single("late", Event("tick"), "1s")).outcome)
        said.append((await ctx.list(), await ctx.active_keys(), await ctx.cancel_all(), await ctx.destroy()))
        return "stopped"

    def end_in_thread(event: Delivery, ctx: Context) -> str:
        ctx.start_fixed_rate("beat", Event("tick"), "1s")
        ctx.publish(Event("tick"), key="unread")
        said.append(ctx.destroy())
        said.append(ctx.start_single("late", Event("tick"), "1s").outcome)
        said.append((ctx.list(), ctx.active_keys(), ctx.cancel_all(), ctx.destroy()))
        return "stopped"

    app.on("stop")(end if kind == "async" else end_in_thread)
    old = kit.queue.owner("session-7")
    old.start_single("pending", Event("tick"), "5s")
    old.publish(Event("stop"), key="k")
    kit.advance("1m", app)
    assert said == [2, Outcome.OWNER_GONE, ([], [], 0, 0)]
    assert handled == []
    assert (app.counts.handled, app.counts.retried, app.counts.stale) == (1, 0, 1)
    assert not old.is_active("pending")
    new = kit.queue.owner("session-7")
    new.start_single("pending", Event("tick"), "5s")
    kit.advance("1m", app)
    assert handled == ["pending"]


def test_an_event_of_an_owner_that_has_gone_meanwhile_touches_nothing_of_the_next_one(
    kit: TestQueue, app: Consumer
) -> None:
    said: list[Any] = []

    @app.on("start")
    def begin(event: Delivery, ctx: Context) -> None:
        kit.queue.owner("o").destroy()  # by somebody else, while this is being handled
        kit.queue.owner("o").start_single("new", Event("new"), "1h")
        said.append((ctx.list(), ctx.get("new"), ctx.active_keys(), ctx.is_active("new")))
        said.append((ctx.cancel_all(), ctx.destroy()))

    start(kit, "o")
    kit.advance(0, app)
    assert said == [([], None, [], False), (0, 0)]
    assert kit.queue.owner("o").is_active("new")


def test_names_as_long_as_names_may_be_are_names_like_any_other(kit: TestQueue, app: Consumer) -> None:
    said: list[Any] = []
    names = ["é" * 256, "é" * 255 + "ab"]  # each of 512 bytes; alike but for their ends

    @app.on("start", attempts=2, backoff=0)
    async def begin(event: Delivery, ctx: AsyncContext) -> None:
        for name in names:
            armed = await ctx.schedule("tick", delay="1h", name=name)
            await ctx.schedule_upsert(name, Event("new"), delay="2h", idempotency_key=name)
            said.append((armed.outcome, len(armed.key.encode()) <= 512, await ctx.once(name)))
        with pytest.raises(InvalidSchedule, match=r"^name: got"):
            await ctx.schedule("tick", delay="1h", name="x" * 513)
        with pytest.raises(InvalidSchedule, match=r"^name: got"):
            await ctx.once("x" * 513)
        with pytest.raises(InvalidSchedule, match=r"^name: got"):
            await ctx.once("\ud800")
        if event.attempt == 1:
            raise RuntimeError("once more")

    start(kit, "room-1")
    kit.advance(1, app)
    assert said == [(Outcome.CREATED, True, True)] * 2 + [(Outcome.DUPLICATE, True, False)] * 2
    assert (app.counts.handled, app.counts.dead) == (1, 0)
    armed = [schedule.key for schedule in kit.queue.list(owner="room-1")]
    assert len(armed) == 4
    assert set(names) < set(armed)


def test_a_word_that_upsert_has_not_is_named_and_the_others_as_they_were_written(
    kit: TestQueue, app: Consumer
) -> None:
    said: list[str] = []

    @app.on("start")
    async def begin(event: Delivery, ctx: AsyncContext) -> None:
        for words in ({"delay": "5s", "modes": "keep"}, {"delay": "5s", "every": "1m"}, {"delay": "no"}):
            with pytest.raises(InvalidSchedule) as caught:
                await ctx.schedule_upsert("k", Event("new"), **words)
            said.append(str(caught.value))

    start(kit, "room-1")
    kit.advance(0, app)
    assert said[0] == "modes: got 'keep'; did you mean mode?"
    assert said[1].startswith("timing: got 'delay and every'; want")
    assert said[2].startswith("delay: got 'no'; want")


def test_a_marker_that_nobody_can_await_is_refused_and_never_true(kit: TestQueue, app: Consumer) -> None:
    """A coroutine is true: ``if app.once(event)`` in a sync handler would let an effect happen each time."""
    said: list[Any] = []

    @app.on("start", attempts=1)
    def begin(event: Delivery, ctx: Context) -> None:
        said.append((ctx.once(), ctx.once()))
        if app.once(event):
            said.append("an effect")

    start(kit, "room-1")
    kit.advance(0, app)
    assert said == [(True, False)]
    (letter,) = kit.queue.dead_list("g")
    assert letter.error == "TimerqError: once is to be awaited: in a sync handler it is ctx.once()"
