"""What `timerq.patterns` ships, under a test kit's clock: also when the first run of each handler crashes behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pydantic
import pytest

from timerq import AsyncContext, Consumer, Context, Delivery, Event, InvalidSchedule, Outcome
from timerq.patterns import (
    WINDOWS,
    debounce,
    follow_up,
    idle_timeout,
    leading_and_trailing,
    remind,
    retry_later,
    stop_reminding,
    watchdog,
)
from timerq.testing import TestQueue

START_MS = 1_767_225_600_000
NOWHERE = "redis://127.0.0.1:1/0"
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


class Crash(Exception):
    """A handler ends, once it has done all that it does."""


@pytest.fixture(params=["calm", "crashing"])
def crashes(request: pytest.FixtureRequest) -> bool:
    """Whether each event's first handling crashes at its very end, and is made again."""
    return request.param == "crashing"


@pytest.fixture
def kit() -> Iterator[TestQueue]:
    with TestQueue() as kit:
        yield kit


class Room:
    """An app in a kit, whose handlers note what came, and when."""

    def __init__(self, kit: TestQueue, crashes: bool) -> None:
        self.kit = kit
        self.crashes = crashes
        self.app = Consumer(NOWHERE, group="g", ordered=True)
        self.came: list[tuple[str, Any, int]] = []
        kit.handlers = self.app

    def end(self, event: Delivery) -> None:
        if self.crashes and event.attempt == 1:
            raise Crash

    def notes(self, *types: str) -> None:
        """Handlers that only note what came."""
        for type_ in types:
            self.app.on(type_)(self.note)

    def note(self, event: Delivery) -> None:
        self.came.append((event.type, event.payload, event.at_ms - START_MS))

    def on(self, type: str, **words: Any) -> Any:
        return self.app.on(type, backoff="1ms", max_backoff="1ms", **words)

    def say(self, type: str, payload: Any = None, *, key: str = "lane") -> None:
        self.kit.queue.publish(Event(type, payload), key=key)
        self.kit.advance()


@pytest.fixture
def room(kit: TestQueue, crashes: bool) -> Room:
    return Room(kit, crashes)


def test_follow_up(room: Room) -> None:
    """Armed by one type, cancelled by another; its own message, and what comes of that, does not arm it again."""
    answers: list[Any] = []

    @room.on("agent")
    async def agent(event: Delivery, ctx: AsyncContext) -> None:
        answers.append(await follow_up(ctx, "follow-up", Event("due", "text"), "10m"))
        room.end(event)

    @room.on("human")
    async def human(event: Delivery, ctx: AsyncContext) -> None:
        await ctx.cancel("follow-up")
        room.end(event)

    @room.on("due")
    async def due(event: Delivery, ctx: AsyncContext) -> None:
        if event.attempt == 1:
            room.note(event)
        await ctx.publish(Event("agent", "still there?"))

    room.say("agent")
    room.kit.advance("9m")
    room.say("agent")  # pushes it back
    room.kit.advance("9m")
    room.say("human")
    room.kit.advance("1d")
    assert room.came == []
    answers.clear()
    room.say("agent")
    room.kit.advance("30d")
    assert room.came == [("due", "text", 18 * MINUTE + DAY + 10 * MINUTE)]
    assert len(answers) == (4 if room.crashes else 2)
    assert answers[-1] is None
    room.say("agent")  # a message of another cause does
    assert room.kit.pending()


def test_a_follow_up_of_one_key_arms_that_of_another(room: Room) -> None:
    @room.on("agent")
    async def agent(event: Delivery, ctx: AsyncContext) -> None:
        await follow_up(ctx, f"follow-up:{event.payload}", Event("due"), "10m")
        room.end(event)

    @room.on("due")
    async def due(event: Delivery, ctx: AsyncContext) -> None:
        await ctx.publish(Event("agent", 2))

    room.say("agent", 1)
    room.kit.advance("15m")
    assert [schedule.key for schedule in room.kit.pending()] == ["follow-up:2"]


def test_debounce(room: Room) -> None:
    @room.on("edit")
    async def edit(event: Delivery, ctx: AsyncContext) -> None:
        await debounce(ctx, "save", Event("save", event.payload), "2s", max_wait="5s")
        room.end(event)

    room.notes("save")
    for n in range(9):  # one a second, until second 8
        room.say("edit", n)
        room.kit.advance("1s")
    room.kit.advance("1m")
    # the fifth second belongs to the first burst: what is due is fired before what comes then
    assert room.came == [("save", 4, 5 * SECOND), ("save", 8, 10 * SECOND)]


def test_leading_and_trailing(room: Room) -> None:
    leads: list[int] = []

    @room.on("edit")
    async def edit(event: Delivery, ctx: AsyncContext) -> None:
        if await leading_and_trailing(ctx, "save", Event("save", event.payload), "2s"):
            leads.append(event.payload)

    room.notes("save")
    for n in range(3):
        room.say("edit", n)
        room.kit.advance("1s")
    room.kit.advance("1m")
    room.say("edit", 3)
    room.kit.advance("1m")
    assert leads == [0, 3]
    assert room.came == [("save", 2, 4 * SECOND)]
    assert len(room.kit.events(stream=WINDOWS)) == 1  # nothing followed the last one


def test_a_leading_one_that_crashes_before_it_has_acted_is_a_trailing_one(kit: TestQueue) -> None:
    room = Room(kit, crashes=True)
    leads: list[int] = []

    @room.on("edit")
    async def edit(event: Delivery, ctx: AsyncContext) -> None:
        is_first = await leading_and_trailing(ctx, "save", Event("save", event.payload), "2s")
        room.end(event)
        if is_first:
            leads.append(event.payload)

    room.notes("save")
    room.say("edit", 0)
    kit.advance("1m")
    assert leads == []
    assert room.came == [("save", 0, 2 * SECOND)]


def test_idle_timeout(room: Room) -> None:
    @room.on("seen")
    async def seen(event: Delivery, ctx: AsyncContext) -> None:
        await idle_timeout(ctx, "idle", Event("idle"), "15m")
        room.end(event)

    room.notes("idle")
    for _ in range(3):
        room.say("seen")
        room.kit.advance("14m")
    assert room.came == []
    room.kit.advance("1d")
    assert room.came == [("idle", None, 43 * MINUTE)]


def test_a_handler_that_runs_again_when_its_timer_has_fired_does_not_arm_it_again(kit: TestQueue) -> None:
    # not ordered: the lane goes on while the event waits to be tried again
    app = Consumer(NOWHERE, group="g")
    outcomes: list[Outcome] = []
    idle: list[int] = []

    @app.on("seen", backoff="1h", max_backoff="1h")
    async def seen(event: Delivery, ctx: AsyncContext) -> None:
        outcomes.append((await idle_timeout(ctx, "idle", Event("idle"), "1m")).outcome)
        if event.attempt == 1:
            raise Crash

    app.on("idle")(lambda event: idle.append(event.at_ms - START_MS))
    kit.queue.publish(Event("seen"), key="lane")
    kit.advance("3h", app)
    assert outcomes == [Outcome.CREATED, Outcome.DUPLICATE]
    assert idle == [MINUTE]


def test_a_beat_that_is_handled_again_begins_no_watch_anew(kit: TestQueue) -> None:
    app = Consumer(NOWHERE, group="g")
    alarms: list[tuple[int, int]] = []
    outcomes: list[Outcome] = []

    @app.on("beat", backoff="1h", max_backoff="1h")
    async def beat(event: Delivery, ctx: AsyncContext) -> None:
        outcomes.append((await watchdog(ctx, "watchdog", Event("alarm"), "20m")).outcome)
        if event.attempt == 1:
            raise Crash

    app.on("alarm")(lambda event: alarms.append((event.n, event.at_ms - START_MS)))
    kit.queue.publish(Event("beat"), key="lane")
    kit.advance("80m", app)
    assert outcomes == [Outcome.CREATED, Outcome.DUPLICATE]  # the second came after half an hour or more
    assert alarms == [(n, 20 * n * MINUTE) for n in (1, 2, 3, 4)]
    kit.queue.publish(Event("beat"), key="taken out of service")
    kit.advance(0, app)
    assert kit.queue.cancel("watchdog", owner="taken out of service")
    kit.advance("2h", app)
    assert kit.queue.get("watchdog", owner="taken out of service") is None


def test_watchdog(room: Room) -> None:
    @room.on("beat")
    async def beat(event: Delivery, ctx: AsyncContext) -> None:
        await watchdog(ctx, "watchdog", Event("alarm"), "1m")
        room.end(event)

    @room.app.on("alarm")
    def alarm(event: Delivery) -> None:
        room.came.append((event.type, event.n, event.at_ms - START_MS))

    for _ in range(3):
        room.say("beat")
        room.kit.advance("50s")
    assert room.came == []
    room.kit.advance("150s")  # until second 300; the last beat was at 100
    room.say("beat")
    room.kit.advance("1m")
    assert room.came == [
        ("alarm", 1, 160 * SECOND),
        ("alarm", 2, 220 * SECOND),
        ("alarm", 3, 280 * SECOND),
        ("alarm", 1, 360 * SECOND),
    ]


def test_retry_later(room: Room) -> None:
    delays = ("1h", "1d")
    given_up: list[Any] = []

    @room.on("charge")
    async def charge(event: Delivery, ctx: AsyncContext) -> None:
        room.note(event)
        if await retry_later(ctx, delays) is None:
            given_up.append(event.payload)
        await ctx.publish(Event("told", event.payload))
        room.end(event)

    @room.on("told")
    async def told(event: Delivery, ctx: AsyncContext) -> None:
        assert await retry_later(ctx, ()) is None  # it is no retry itself, though it comes of one
        room.end(event)

    room.say("charge", {"cents": 5})
    room.kit.advance("7d")
    at = sorted({at_ms for _, _, at_ms in room.came})
    assert at == [0, HOUR, HOUR + DAY]
    assert len(room.came) == (6 if room.crashes else 3)
    assert given_up == [{"cents": 5}] * (2 if room.crashes else 1)


def test_what_comes_of_a_retry_has_its_own_tries(kit: TestQueue) -> None:
    room = Room(kit, crashes=False)

    @room.on("a")
    async def a(event: Delivery, ctx: AsyncContext) -> None:
        if await retry_later(ctx, ["1h"]) is None:
            await ctx.publish(Event("b"))

    @room.on("b")
    async def b(event: Delivery, ctx: AsyncContext) -> None:
        room.note(event)
        await retry_later(ctx, ["1h"])

    room.say("a")
    kit.advance("1d")
    assert [at_ms for _, _, at_ms in room.came] == [HOUR, 2 * HOUR]


class Order(pydantic.BaseModel):
    cents: int


def test_a_retry_has_the_payload_that_the_model_had(kit: TestQueue) -> None:
    room = Room(kit, crashes=False)
    seen: list[Any] = []

    @room.on("charge")
    async def charge(order: Order, ctx: AsyncContext) -> None:
        seen.append(order)
        await retry_later(ctx, ["1h", "1h"], ... if len(seen) == 1 else {"cents": 7})

    room.say("charge", {"cents": 5})
    kit.advance("1d")
    assert seen == [Order(cents=5), Order(cents=5), Order(cents=7)]
    assert room.app.counts.dead == 0


def test_remind(room: Room) -> None:
    stopped: list[int] = []

    @room.on("placed")
    async def placed(event: Delivery, ctx: AsyncContext) -> None:
        await remind(ctx, "reminder", Event("reminder", event.payload), ["1d", "3d", "7d"])
        room.end(event)

    @room.on("paid")
    async def paid(event: Delivery, ctx: AsyncContext) -> None:
        stopped.append(await stop_reminding(ctx, "reminder", 3))
        room.end(event)

    @room.app.on("reminder")
    def reminder(event: Delivery) -> None:
        room.came.append((event.type, event.correlation["reminder"], event.at_ms - START_MS))

    room.say("placed", 42, key="order-42")
    room.say("placed", 43, key="order-43")
    room.kit.advance("4d")
    room.say("paid", key="order-42")
    room.kit.advance("30d")
    assert stopped == ([1, 0] if room.crashes else [1])
    assert [(n, at_ms // DAY) for _, n, at_ms in room.came] == [
        ("1", 1),
        ("1", 1),
        ("2", 3),
        ("2", 3),
        ("3", 7),
    ]


def test_a_sync_handler_runs_them_too(kit: TestQueue) -> None:
    room = Room(kit, crashes=False)

    @room.on("edit")
    def edit(event: Delivery, ctx: Context) -> None:
        ctx.run(debounce, "save", Event("save", event.payload), "2s", max_wait="5s")

    room.notes("save")
    room.say("edit", 1)
    room.say("edit", 2)
    kit.advance("1m")
    assert room.came == [("save", 2, 2 * SECOND)]


@pytest.mark.parametrize("count", [-1, True, "3"])
def test_how_many_to_stop_is_a_number(count: Any) -> None:
    nobody: Any = None
    with pytest.raises(InvalidSchedule, match="count"):
        asyncio.run(stop_reminding(nobody, "reminder", count))


def test_a_key_as_long_as_a_key_may_be_is_a_key_like_any_other(room: Room) -> None:
    keys = ["k" * 511 + end for end in "ab"]

    @room.on("said")
    async def said(event: Delivery, ctx: AsyncContext) -> None:
        await follow_up(ctx, keys[0], Event("due", "a"), "10m")
        await debounce(ctx, keys[1], Event("due", "b"), "20m")
        await watchdog(ctx, "w" * 512, Event("due", "c"), "30m")
        room.end(event)

    room.notes("due")
    room.say("said")
    room.kit.advance("30m")
    assert room.came == [("due", payload, n * 10 * MINUTE) for n, payload in enumerate("abc", 1)]
