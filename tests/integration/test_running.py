"""Dispatcher, consumer and schedules in one process: what starts, in which order it stops, and what it leaves alive."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.consumers import Seen
from tests.support.proxy import wait_for
from timerq import (
    Event,
    InvalidSchedule,
    NamespaceMismatch,
    QueueUnavailable,
    TimerQueue,
    schedule,
    tick_name,
)
from timerq.consumer import AsyncContext, Consumer
from timerq.dispatcher import Dispatcher
from timerq.embedded import EmbeddedRedis
from timerq.errors import Incomplete, TimerqError
from timerq.model import Delivery, Outcome
from timerq.running import Running, fire_now, lifespan, run, start

GROUP = "jobs"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def queue(any_url: str) -> Iterator[TimerQueue]:
    with TimerQueue.connect(any_url) as queue:
        queue.init(partitions=2)
        yield queue


def ticking(seen: Seen, every: str = "50ms") -> Any:
    @schedule(every=every)
    def tick(fired_at: datetime) -> None:
        seen.add(fired_at)

    return tick


async def until(true: Callable[[], object], timeout_s: float = 30) -> None:
    async with asyncio.timeout(timeout_s):
        while not true():
            await asyncio.sleep(0.01)


OURS = ("timerq-run", "timerq-fire", "timerq-listen", "timerq-keep", f"timerq-{GROUP}")


def no_threads_of_ours() -> bool:
    """Those that had a moment to end have ended."""
    for thread in threading.enumerate():
        if thread.name.startswith(OURS):
            thread.join(30)
            if thread.is_alive():
                return False
    return True


# ------------------------------------------------------------------------------------------------ together


def test_everything_runs_for_as_long_as_the_block(queue: TimerQueue) -> None:
    seen = Seen()
    app = Consumer(queue, group=GROUP)
    tick = ticking(seen)

    async def main() -> None:
        async with run(queue, app, [tick], by="me") as running:
            assert len(queue.stats().dispatchers) == 1
            await until(lambda: len(seen.all) >= 3)
            assert running.failing == {}
            assert running.applied
        assert queue.stats().dispatchers == []

    asyncio.run(main())
    stored = queue.get("tick")
    assert stored is not None
    assert (stored.label, stored.by) == (GROUP, "me")
    before = len(seen.all)
    queue.publish(Event("tick"), key="tick")
    assert len(seen.all) == before  # nobody reads, and what is stored stays
    assert no_threads_of_ours()


def test_an_app_without_a_place_gets_that_of_the_run(queue: TimerQueue) -> None:
    seen = Seen()
    app = Consumer(group=GROUP)
    place = app.place
    app.on("t")(seen.add)

    async def main() -> None:
        async with run(queue, app):
            queue.upsert("k", Event("t"), delay=0)
            await until(lambda: seen.all)

    asyncio.run(main())
    assert app.place == place


@pytest.mark.one_server
def test_it_stops_in_order_and_waits_for_what_is_in_hand(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        order: list[str] = []
        app = Consumer(queue, group=GROUP, concurrency=1)
        begun = asyncio.Event()

        @app.on("slow")
        async def slow(event: Delivery) -> None:
            begun.set()
            await until(lambda: stopping)
            await asyncio.sleep(0.3)
            order.append("handled")
            order.append(f"dispatchers {len(queue.stats().dispatchers)}")

        stopping: list[bool] = []

        async def main() -> None:
            async with run(queue, app) as running:
                for i in range(3):
                    queue.publish(Event("slow"), key=f"k{i}")
                await begun.wait()
                first = asyncio.create_task(running.stop())
                stopping.append(True)
                await running.stop()  # twice is once, and both wait
                await first
                order.append(f"dispatchers {len(queue.stats().dispatchers)}")

        asyncio.run(main())
        assert order == ["handled", "dispatchers 1", "dispatchers 0"]
        assert app.counts.handled == 1
        assert queue.stats().dispatchers == []


@pytest.mark.one_server
def test_a_handler_may_ask_for_the_end(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        app = Consumer(queue, group=GROUP)

        async def main() -> None:
            async with run(queue, app, keep_alive=True) as running:
                app.on("enough")(lambda event: running.request_stop())
                queue.publish(Event("enough"), key="k")

        asyncio.run(asyncio.wait_for(main(), 30))
        assert app.counts.handled == 1


@pytest.mark.one_server
def test_two_signals_at_once_are_one(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timerq.signals.SAME_S", 60.0)  # this process may stand still in between
    faults: list[dict[str, Any]] = []

    async def main(running: Running) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, fault: faults.append(fault))
        async with running:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    asyncio.run(asyncio.wait_for(main(run(redis_url, Consumer(group=GROUP), keep_alive=True)), 30))
    assert faults == []


@pytest.mark.one_server
def test_a_block_that_fails_stops_all(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        app = Consumer(queue, group=GROUP)

        async def main() -> None:
            async with run(queue, app, keep_alive=True) as running:
                running.request_stop()
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            asyncio.run(main())
        assert queue.stats().dispatchers == []
        assert no_threads_of_ours()


@pytest.mark.one_server
@pytest.mark.parametrize("how", ["request_stop", "signal", "cancel"])
def test_who_asks_for_the_end_while_it_starts_is_heard(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    starting, go_on = threading.Event(), threading.Event()
    real = Dispatcher.start

    def start(self: Dispatcher) -> None:
        starting.set()
        assert go_on.wait(30)
        real(self)

    monkeypatch.setattr(Dispatcher, "start", start)

    async def ask(running: Running, entering: asyncio.Task[None]) -> None:
        await asyncio.to_thread(starting.wait, 30)
        if how == "cancel":
            entering.cancel()
        elif how == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            running.request_stop()
        await until(running._asked.is_set)
        go_on.set()

    async def main(running: Running) -> None:
        async def enter() -> None:
            async with running:
                pass

        entering = asyncio.create_task(enter())
        await ask(running, entering)
        await asyncio.wait({entering}, timeout=30)
        assert entering.cancelled() == (how == "cancel")
        if how != "cancel":
            entering.result()
        assert running.app._service is None
        with pytest.raises(TimerqError, match="begun before"):
            await running.__aenter__()

    with TimerQueue.connect(redis_url) as queue:
        app = Consumer(queue, group=GROUP)
        asyncio.run(main(run(queue, app, keep_alive=how == "signal")))
        assert queue.stats().dispatchers == []
    assert no_threads_of_ours()


@pytest.mark.one_server
def test_a_run_that_cannot_begin_leaves_nothing_behind(redis_url: str) -> None:
    async def enter(running: Running) -> None:
        async with running:
            raise AssertionError("it began")

    tick = ticking(Seen())
    with pytest.raises(QueueUnavailable):
        asyncio.run(enter(run("redis://127.0.0.1:1/0", Consumer(group=GROUP))))
    with TimerQueue.connect(redis_url, namespace="tests") as queue:
        queue.init(clock="manual")
        with pytest.raises(NamespaceMismatch, match="manual"):
            asyncio.run(enter(run(queue, Consumer(queue, group=GROUP), [tick])))
        with pytest.raises(NamespaceMismatch, match="manual"):
            start(queue, Consumer(queue, group=GROUP))
    with TimerQueue.connect(redis_url) as queue:
        queue.apply_set("others", [tick.upsert])
        with pytest.raises(InvalidSchedule, match="others"):
            asyncio.run(enter(run(queue, Consumer(queue, group=GROUP), [tick])))
        busy = Consumer(queue, group=GROUP)
        with start(queue, busy), pytest.raises(TimerqError, match="runs already"):
            asyncio.run(enter(run(queue, busy)))
        assert queue.stats().dispatchers == []
    assert no_threads_of_ours()


@pytest.mark.one_server
def test_a_set_forgets_what_is_no_longer_declared_where_it_is_told_to(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:

        @schedule(every="1h")
        def old() -> None: ...

        @schedule(every="1h")
        def new() -> None: ...

        for schedules, prune, left in (
            ([old], False, {"old"}),
            ([new], False, {"new", "old"}),
            ([new], True, {"new"}),
        ):
            with start(queue, Consumer(queue, group=GROUP), schedules, prune=prune):
                assert {stored.key for stored in queue.list()} == left


@pytest.mark.one_server
def test_two_processes_share_their_schedules(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        seen = Seen()
        tick = ticking(seen)
        with (
            start(queue, Consumer(queue, group=GROUP), tick),
            start(queue, Consumer(queue, group=GROUP), tick),
        ):
            seen.wait(6)
        assert len(set(seen.all)) == len(seen.all)  # each tick once


# ------------------------------------------------------------------------------------------------ without a loop


def test_threads_beside_a_program(queue: TimerQueue) -> None:
    seen = Seen()
    app = Consumer(queue, group=GROUP)
    running = start(queue, app, [ticking(seen)])
    seen.wait(2)
    assert running.failing == {}
    running.stop()
    running.stop()
    assert queue.stats().dispatchers == []
    assert no_threads_of_ours()
    with pytest.raises(TimerqError, match="stopped"):
        running.fire_now("tick")


@pytest.mark.one_server
def test_an_outage_is_waited_out(make_redis: Callable[..., EmbeddedRedis], tmp_path: Path) -> None:
    server = make_redis(data_dir=tmp_path / "data", appendfsync="always")
    seen = Seen()
    with (
        TimerQueue.connect(server.url) as queue,
        start(queue, Consumer(queue, group=GROUP), [ticking(seen)]) as running,
    ):
        seen.wait(2)
        server.kill()
        wait_for(lambda: bool(running.failing), "it is unwell")
        before = len(seen.all)
        server.start()
        seen.wait(before + 2)


def test_all_find_the_embedded_redis_of_a_client() -> None:
    seen = Seen()
    with (
        TimerQueue.connect("embedded:") as queue,
        start(queue, Consumer(queue, group=GROUP), [ticking(seen)]),
    ):
        assert len(queue.stats().dispatchers) == 1
        seen.wait(1)
    with pytest.raises(InvalidSchedule, match="same one"):
        run("embedded:", Consumer(group=GROUP))


# ------------------------------------------------------------------------------------------------ a web server


class Web:
    """What an ASGI framework does with a lifespan, and no more."""

    def __init__(self, lifespan: Callable[[Any], AbstractAsyncContextManager[Any]]) -> None:
        self.lifespan = lifespan
        self.state: dict[str, Any] = {}

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        assert scope["type"] == "lifespan"
        assert (await receive())["type"] == "lifespan.startup"
        begun = False
        try:
            async with self.lifespan(self) as state:
                self.state = state
                begun = True
                await send({"type": "lifespan.startup.complete"})
                assert (await receive())["type"] == "lifespan.shutdown"
        except Exception as error:
            await send(
                {"type": f"lifespan.{'shutdown' if begun else 'startup'}.failed", "message": str(error)}
            )
        else:
            await send({"type": "lifespan.shutdown.complete"})


class Server:
    """The other side of it."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.asks: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def serve(self) -> None:
        await self.web({"type": "lifespan", "asgi": {"version": "3.0"}}, self.asks.get, self.said.put)

    async def ask(self, what: str) -> str:
        await self.asks.put({"type": f"lifespan.{what}"})
        return (await asyncio.wait_for(self.said.get(), 30))["type"]


@pytest.mark.one_server
def test_it_is_the_lifespan_of_a_web_server(redis_url: str) -> None:
    seen = Seen()
    with TimerQueue.connect(redis_url) as queue:
        app = Consumer(queue, group=GROUP)
        web = Web(lifespan(queue, app, (tick for tick in [ticking(seen)])))

        async def main() -> None:
            for _ in range(2):
                server = Server(web)
                serving = asyncio.create_task(server.serve())
                assert await server.ask("startup") == "lifespan.startup.complete"
                assert isinstance(web.state["timerq"], Running)
                await asyncio.to_thread(seen.wait, len(seen.all) + 2)
                assert await server.ask("shutdown") == "lifespan.shutdown.complete"
                await serving
                assert queue.stats().dispatchers == []

        asyncio.run(main())


def test_a_web_server_is_not_kept_alive_by_a_run() -> None:
    with pytest.raises(InvalidSchedule, match="keep_alive"):
        lifespan("redis://127.0.0.1:1/0", Consumer(group=GROUP), keep_alive=True)


def test_a_web_server_is_told_that_redis_is_away() -> None:
    async def main() -> None:
        server = Server(Web(lifespan("redis://127.0.0.1:1/0", Consumer(group=GROUP))))
        serving = asyncio.create_task(server.serve())
        assert await server.ask("startup") == "lifespan.startup.failed"
        await serving

    asyncio.run(main())


# ------------------------------------------------------------------------------------------------ one tick, now


def test_fire_now_runs_one_tick_and_waits(queue: TimerQueue) -> None:
    seen: list[Any] = []
    app = Consumer(queue, group=GROUP)

    @schedule("0 9 * * MON", name="report", payload=[1, 2])
    async def report(fired_at: datetime, event: Delivery) -> None:
        await asyncio.sleep(0)
        seen.append((fired_at, event.id, event.payload, await app.once(event)))

    at = datetime(2026, 10, 5, 9, tzinfo=UTC)

    async def main() -> None:
        assert await fire_now(app, report, fired_at=at)
        assert not await fire_now(app, report, fired_at=at)  # a tick is run once
        assert await fire_now(app, report, fired_at="2026-10-05T09:00:01.5Z")
        assert await fire_now(app, report)

    asyncio.run(main())
    assert seen[0] == (at, tick_name("report", 1791190800000), [1, 2], True)
    assert [one[0].microsecond for one in seen] == [0, 0, 0]
    assert queue.get("report") is None  # it need not be stored
    assert app.counts.handled == 0


def test_fire_now_of_a_key_as_long_as_a_key_may_be(queue: TimerQueue) -> None:
    app, seen = Consumer(queue, group=GROUP, declares=["later"]), []
    keys = ["k" * 511 + end for end in "ab"]

    @app.on("tick")
    async def tick(event: Delivery, ctx: AsyncContext) -> None:
        armed = await ctx.schedule("later", delay="1h")
        seen.append((event.key, await ctx.once(), armed.outcome))

    for key in keys:
        queue.upsert(key, Event("tick"), every="1h")

    async def main() -> list[bool]:
        at = "2026-10-05T09:00:00Z"
        return [await fire_now(app, key, fired_at=at) for key in (*keys, *keys)]

    assert asyncio.run(main()) == [True, True, False, False]
    assert seen == [(key, True, Outcome.CREATED) for key in keys]


def test_fire_now_by_key_and_from_a_run(queue: TimerQueue) -> None:
    seen = Seen()
    app = Consumer(queue, group=GROUP)
    app.on("report")(seen.add)
    stored = queue.upsert("weekly", Event("report", {"n": 1}, correlation={"trace": "x"}), cron="0 9 * * MON")
    with start(queue, app) as running:
        assert running.fire_now("weekly", fired_at="2026-10-05T09:00:00Z")
        with pytest.raises(InvalidSchedule, match="there is none"):
            running.fire_now("missing")
        queue.upsert("other", Event("unheard"), every="1h")
        with pytest.raises(InvalidSchedule, match="nobody handles"):
            running.fire_now("other")
        with pytest.raises(InvalidSchedule, match="or a key"):
            running.fire_now(7)  # type: ignore[arg-type]
    (event,) = seen.all
    assert (event.key, event.type, event.payload, event.correlation) == (
        "weekly",
        "report",
        {"n": 1},
        {"trace": "x"},
    )
    assert (event.version, event.attempt, event.tenant) == (stored.version, 1, "default")
    after = queue.get("weekly")
    assert after is not None
    assert (after.version, after.at_ms, after.n) == (stored.version, stored.at_ms, 0)


@pytest.mark.one_server
def test_an_async_handler_is_told_not_to_wait_for_itself(redis_url: str) -> None:
    seen = Seen()
    with TimerQueue.connect(redis_url) as queue:
        app = Consumer(queue, group=GROUP)
        running = start(queue, app)

        @app.on("ask")
        async def ask(event: Delivery) -> None:
            try:
                running.fire_now("another")
            except TimerqError as error:
                seen.add(str(error))

        queue.publish(Event("ask"), key="k")
        (said,) = seen.wait(1)
        running.stop()
    assert "want await timerq.fire_now" in said


@pytest.mark.one_server
def test_a_run_that_fails_is_told_and_may_be_tried_again(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        app = Consumer(queue, group=GROUP)
        tries: list[Any] = [ValueError("no"), Incomplete("awaiting approval"), "slow", "armed"]
        raised: list[str] = []

        @app.on("report", attempts=9, timeout="1s")
        async def report(event: Delivery, ctx: AsyncContext) -> object:
            what = tries.pop(0)
            if isinstance(what, ValueError):
                raise what
            if what == "slow":
                await asyncio.sleep(60)
            if what == "armed":
                await ctx.schedule("report", delay="1h", name="later")
            return what

        queue.upsert("weekly", Event("report"), cron="0 9 * * MON")

        async def main() -> None:
            for kind in (ValueError, Incomplete, TimeoutError):
                with pytest.raises(kind) as error:
                    await fire_now(app, "weekly", fired_at="2026-10-05T09:00:00Z")
                raised.append(str(error.value))
            assert await fire_now(app, "weekly", fired_at="2026-10-05T09:00:00Z")

        asyncio.run(main())
        assert raised[:2] == ["no", "awaiting approval"]
        (armed,) = queue.list(prefix="later@")
        assert armed.event.type == "report"


def test_fire_now_says_that_redis_is_away() -> None:
    app = Consumer("redis://127.0.0.1:1/0", group=GROUP)
    with pytest.raises(QueueUnavailable):
        asyncio.run(fire_now(app, ticking(Seen())))


# ------------------------------------------------------------------------------------------------ calls by name


def test_functions_are_called_later_and_again_and_again(queue: TimerQueue) -> None:
    seen = Seen()
    app = Consumer(queue, group=GROUP)

    @app.task
    def note(*words: object) -> None:
        seen.add(words)

    @app.task(name="poll", attempts=1)
    async def poll(name: str) -> None:
        seen.add(name)

    with start(queue, app):
        first = queue.call_later("10ms", note, "a", 1, {"b": 2})
        second = queue.call_later("10ms", note)
        assert first.key != second.key
        seen.wait(2)
        assert sorted(seen.all, key=len) == [(), ("a", 1, {"b": 2})]
        third = queue.call_later("1h", note, "never", key="mine")
        assert queue.cancel("mine")
        assert third.key == "mine"
        every = queue.call_every("50ms", poll, "x")
        assert queue.call_every("50ms", poll, "x").key == every.key
        seen.wait(lambda all: list(all).count("x") >= 3)


def test_the_asynchronous_client_calls_too(any_url: str) -> None:
    from timerq import AsyncTimerQueue

    seen = Seen()

    async def main() -> None:
        async with AsyncTimerQueue.connect(any_url) as queue:
            app = Consumer(queue, group=GROUP)
            task = app.task(seen.add, name="add")
            async with run(queue, app):
                await queue.call_later(0, task, 1)
                await queue.call_every("50ms", task, 2)
                await until(lambda: {1, 2} <= set(seen.all))

    asyncio.run(main())


# ------------------------------------------------------------------------------------------------ processes


SCRIPT = """\
import asyncio, os, threading, time
import timerq
from timerq.running import run, start
from timerq import TimerQueue, Event
from timerq.consumer import Consumer

queue = TimerQueue.connect({url!r})
app = Consumer(queue, group="jobs")
begun = threading.Event()

def say(word):
    os.write(1, word.encode() + b"\\n")

@app.on("slow")
{kind}

@timerq.schedule(every="50ms")
def tick():
    say("tick")
"""
SYNC_SLOW = "def slow(event):\n    begun.set()\n    time.sleep(60)"
THREAD_SLOW = "async def slow(event):\n    begun.set()\n    await asyncio.to_thread(time.sleep, 60)"


def script(url: str, text: str, slow: str = SYNC_SLOW) -> subprocess.Popen[str]:
    program = SCRIPT.format(url=url, kind=slow) + text
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines_until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == word:
            return
    raise AssertionError(f"{word!r} was never said: {process.stderr and process.stderr.read()}")


@pytest.mark.one_server
@pytest.mark.parametrize("slow", [SYNC_SLOW, THREAD_SLOW])
def test_a_script_ends_by_itself_also_while_handlers_run(redis_url: str, slow: str) -> None:
    text = 'running = start(queue, app, [tick])\nqueue.publish(Event("slow"), key="k")\nbegun.wait()\n'
    with script(redis_url, text, slow) as process:
        code = process.wait(60)
        assert process.stderr is not None
        assert (code, process.stderr.read()) == (0, "")


@pytest.mark.one_server
def test_a_script_of_an_event_loop_ends_by_itself(redis_url: str) -> None:
    text = """
async def main():
    async with run(queue, app, [tick]):
        await asyncio.sleep(0.2)

asyncio.run(main())
"""
    with script(redis_url, text) as process:
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


KEPT = {
    "bare": """
start(queue, app, [tick], keep_alive=True)
say("end")
""",
    "block": """
with start(queue, app, [tick], keep_alive=True):
    say("end")
""",
    "loop": """
async def main():
    async with run(queue, app, [tick], keep_alive=True):
        say("end")

asyncio.run(main())
""",
}


TWICE = """
def twice():
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)  # what the first one has asked for is under way
"""
TOLD_TWICE = {
    "start": """
with start(queue, app, [tick], keep_alive=True):
    twice()
""",
    "run": """
async def main():
    async with run(queue, app, [tick], keep_alive=True) as running:
        signal.raise_signal(signal.SIGTERM)
        await running.wait()
        signal.raise_signal(signal.SIGTERM)

asyncio.run(main())
""",
    "consumer": """
@app.on("two")
async def two(event):
    signal.raise_signal(signal.SIGTERM)
    while not app._stop_asked:
        await asyncio.sleep(0)
    signal.raise_signal(signal.SIGTERM)

queue.publish(Event("two"), key="k")
app.run()
""",
    "commands": """
from timerq.cli.run import stop_on_signals

with stop_on_signals() as stop:
    twice()
    assert stop.wait(0)
""",
}


@pytest.mark.one_server
@pytest.mark.parametrize("how", TOLD_TWICE)
def test_who_is_told_twice_at_once_stops_in_order(redis_url: str, how: str) -> None:
    """As by timeout(1), which tells a process and then its whole group; the process may stand still in between."""
    patient = "import signal, timerq.signals\ntimerq.signals.SAME_S = 60\n"
    with script(redis_url, f"{patient}{TWICE}{TOLD_TWICE[how]}say('ended')\n") as process:
        lines_until(process, "ended")
        assert process.wait(60) == 0
    with TimerQueue.connect(redis_url) as queue:
        assert queue.stats().dispatchers == []


@pytest.mark.one_server
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("how", KEPT)
def test_a_script_is_kept_alive_until_a_signal(redis_url: str, how: str, number: int) -> None:
    with script(redis_url, KEPT[how]) as process:
        lines_until(process, "end")
        for _ in range(5):  # long after it has come to its end
            lines_until(process, "tick")
        process.send_signal(number)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    with TimerQueue.connect(redis_url) as queue:
        assert queue.stats().dispatchers == []
