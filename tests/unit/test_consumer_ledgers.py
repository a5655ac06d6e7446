"""The ledgers of one run: places, the outbox, threads, and how handlers are run."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.test_consumer_rooms import EVENT
from timerq.commands.consume import Settlement
from timerq.consumer.handlers import make_handler
from timerq.consumer.health import Health
from timerq.consumer.outbox import Outbox
from timerq.consumer.runner import Runner
from timerq.consumer.slots import Slots
from timerq.consumer.threads import Threads
from timerq.errors import QueueUnavailable


def run(what: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(what, 20))


# ------------------------------------------------------------------------------------------------ places


def test_places_go_to_those_who_wait_in_turn() -> None:
    async def play() -> None:
        slots = Slots(3)
        assert await slots.take(2) == 2
        assert await slots.take(5) == 1
        first = asyncio.create_task(slots.take(2))
        second = asyncio.create_task(slots.take(2))
        await asyncio.sleep(0)
        slots.give(1)
        assert await first == 1
        slots.give(3)
        assert await second == 2
        assert slots.free == 1

    run(play())


def test_whoever_is_woken_for_nothing_keeps_its_turn() -> None:
    async def play() -> None:
        slots = Slots(1)
        assert slots.take_now(1) == 1
        first, second = asyncio.create_task(slots.take(1)), asyncio.create_task(slots.take(1))
        await asyncio.sleep(0)
        slots.give(1)
        assert slots.take_now(1) == 1  # quicker than the one who was woken
        await asyncio.sleep(0)
        slots.give(1)
        assert await first == 1
        assert not second.done()
        slots.close()
        assert await second == 0
        assert await slots.take(1) == 0

    run(play())


def test_one_who_no_longer_waits_takes_no_turn() -> None:
    async def play() -> None:
        slots = Slots(1)
        slots.take_now(1)
        gone, stays = asyncio.create_task(slots.take(1)), asyncio.create_task(slots.take(1))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait({gone})
        slots.give(1)
        assert await stays == 1

    run(play())


def test_who_watches_is_told_of_free_places() -> None:
    slots, told = Slots(2), []
    slots.watch(lambda: told.append(slots.free))
    slots.take_now(2)
    slots.give(1)
    slots.give(0)
    assert told == [1]


# ------------------------------------------------------------------------------------------------ the outbox


def ack(n: int) -> Settlement:
    return Settlement(b"%d-0" % n, 1, "ack")


def test_what_gathers_goes_together_and_in_order() -> None:
    sent: list[list[bytes]] = []
    told: list[tuple[int, str, str, bool]] = []

    async def send(items: Sequence[Settlement]) -> list[str]:
        sent.append([item.entry for item in items])
        await asyncio.sleep(0)
        return ["SETTLED"] * len(items)

    async def play() -> None:
        outbox: Outbox[int] = Outbox(send, lambda *what: told.append(what))
        for n in range(450):
            outbox.put(ack(n), n, "ack")
        outbox.put(Settlement(b"x", 1, "extend"))
        await outbox.flush()
        assert len(outbox) == 0

    run(play())
    assert [len(batch) for batch in sent] == [200, 200, 51]
    assert [who for who, *_ in told] == list(range(450))
    assert {what[1:] for what in told} == {("ack", "SETTLED", False)}


@pytest.mark.parametrize("weight", [{"traceback": "x" * 6_000}, {"copied_bytes": 6_000}])
def test_large_ones_go_in_smaller_batches(weight: dict[str, Any]) -> None:
    sent: list[int] = []

    async def send(items: Sequence[Settlement]) -> list[str]:
        sent.append(len(items))
        return ["SETTLED"] * len(items)

    async def play() -> None:
        outbox: Outbox[int] = Outbox(send, lambda *what: None)
        for n in range(100):
            outbox.put(Settlement(b"%d-0" % n, 1, "reject", **weight))
        await outbox.flush()

    run(play())
    assert sum(sent) == 100
    assert max(sent) * 6_000 < 262_144


def test_while_redis_is_away_they_wait_and_are_sent_again() -> None:
    sent: list[list[bytes]] = []
    told: list[tuple[int, str, str, bool]] = []

    async def send(items: Sequence[Settlement]) -> list[str]:
        sent.append([item.entry for item in items])
        if len(sent) < 3:
            raise QueueUnavailable
        return ["SETTLED"] * len(items)

    async def play() -> None:
        outbox: Outbox[int] = Outbox(send, lambda *what: told.append(what))
        outbox.put(ack(1), 1, "ack")
        outbox.put(Settlement(b"2-0", 1, "extend"))
        await asyncio.sleep(0)
        outbox.put(ack(3), 3, "ack")
        await outbox.flush()

    run(play())
    assert sent == [[b"1-0", b"2-0"], [b"1-0", b"3-0"], [b"1-0", b"3-0"]]  # an old extend is of no use
    assert told == [(1, "ack", "SETTLED", True), (3, "ack", "SETTLED", True)]


def test_a_fault_of_our_own_ends_no_outbox(caplog: pytest.LogCaptureFixture) -> None:
    async def send(items: Sequence[Settlement]) -> list[str]:
        if items[0].entry == b"1-0":
            raise ZeroDivisionError
        return ["SETTLED"] * len(items)

    told: list[int] = []

    async def play() -> None:
        outbox: Outbox[int] = Outbox(send, lambda who, *_: told.append(who))
        outbox.put(ack(1), 1)
        await outbox.flush()
        outbox.put(ack(2), 2)
        await outbox.flush()

    run(play())
    assert told == [2]
    assert "fault of timerq's own" in caplog.text


# ------------------------------------------------------------------------------------------------ threads


def test_threads_are_kept_and_as_many_as_are_needed_at_once() -> None:
    async def play() -> None:
        threads = Threads("test")
        names = [await threads.call(lambda: threading.current_thread().name) for _ in range(5)]
        assert set(names) == {"test-1"}
        gate = threading.Barrier(3)
        await asyncio.gather(*[threads.call(lambda: gate.wait(10)) for _ in range(3)])
        threads.close()

    run(play())


def test_what_a_thread_raises_comes_back() -> None:
    def exits() -> None:
        raise SystemExit(3)

    async def play() -> None:
        threads = Threads("test")
        with pytest.raises(ZeroDivisionError):
            await threads.call(lambda: 1 / 0)
        with pytest.raises(RuntimeError, match="SystemExit"):
            await threads.call(exits)
        left = threads.call(lambda: "still works")
        assert await left == "still works"
        threads.close()

    run(play())


def test_a_thread_s_context_is_empty() -> None:
    word: contextvars.ContextVar[str] = contextvars.ContextVar("word")

    async def play() -> None:
        threads = Threads("test")
        word.set("of the loop")
        assert await threads.call(lambda: word.get("nothing")) == "nothing"
        threads.close()

    run(play())


# ------------------------------------------------------------------------------------------------ running


def test_a_cancelled_handling_is_no_failure_of_its_handler() -> None:
    async def forever(event: Any) -> None:
        await asyncio.sleep(60)

    async def play() -> None:
        runner = Runner(Threads("test"), lambda event: None)
        task = asyncio.create_task(runner.run(make_handler("t", forever), EVENT))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(play())


def test_a_time_out_lets_a_thread_go_on_and_says_which() -> None:
    gate = threading.Event()

    async def play() -> None:
        threads = Threads("test")
        runner = Runner(threads, lambda event: None)

        def wait(event: Any) -> bool:
            return gate.wait(10)

        verdict, error, thread = await runner.run(make_handler("t", wait, timeout=20), EVENT)
        assert (verdict.verb, type(error)) == ("retry", TimeoutError)
        assert thread is not None
        gate.set()
        assert await thread is True
        last, _, _ = await runner.run(
            make_handler("t", wait, timeout=20_000, attempts=2), replace(EVENT, attempt=2)
        )
        assert last.verb == "ack"  # the gate is open: it is quick
        threads.close()

    run(play())


def test_health_says_the_first_and_the_last(caplog: pytest.LogCaptureFixture) -> None:
    health = Health()
    with caplog.at_level("INFO", logger="timerq.consumer"):
        for n in range(5):
            health.failed(f"part {n % 2}", OSError("gone"))
        health.works("part 0")
        assert health.failing == {"part 1": "gone"}
        health.works("part 1")
        health.works("part 1")
    assert len(caplog.records) == 2
    assert not health.failing


def test_a_place_that_comes_free_for_one_who_has_given_up_goes_to_the_next() -> None:
    async def scenario() -> None:
        slots = Slots(1)
        assert not slots.is_wanted
        assert await slots.take(1) == 1
        first, second = (asyncio.create_task(slots.take(1)) for _ in range(2))
        await asyncio.sleep(0)
        assert slots.is_wanted
        slots.give(1)
        first.cancel()  # it was just about to get it
        assert await asyncio.wait_for(second, 5) == 1
        assert first.cancelled()

    asyncio.run(scenario())
