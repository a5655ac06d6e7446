"""Redis runs a command and its answer is lost, or the command never arrives: the caller hears the first outcome, and
what is stored has changed once.

A walk through every verb is taken twice, on a clean connection and through the proxy; answers and the whole of what is
stored must be the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Literal

import pytest
import redis

from tests.support.events import Events
from tests.support.proxy import Fault, Proxy, Words, wait_for
from tests.support.state import check_structure, dump
from timerq import AsyncTimerQueue, Event, Outcome, TimerQueue, Upsert
from timerq.dispatcher import Dispatcher
from timerq.lua import SCRIPTS
from timerq.model import Change, Page, Schedule, Stats
from timerq.testing import ManualClock

EVENT = Event("t", {"n": 1})
Step = tuple[str, tuple[Any, ...], dict[str, Any]]

WALK: list[Step] = [
    ("upsert", ("a", EVENT), {"delay": "1m"}),
    ("upsert", ("a", Event("u")), {"delay": "2m"}),
    ("upsert", ("a", EVENT), {"delay": "3m", "mode": "earliest"}),
    ("upsert", ("a", EVENT), {"delay": "1m", "mode": "earliest"}),
    ("upsert", ("a", EVENT), {"delay": "9m", "mode": "keep"}),
    ("upsert", ("a", EVENT), {"delay": "9m", "if_version": 1}),
    ("upsert", ("once", EVENT), {"delay": "1m", "idempotency_key": "token"}),
    ("upsert", ("once", EVENT), {"delay": "1m", "idempotency_key": "token"}),
    ("upsert", ("tick", EVENT), {"every": "5s", "limit": 7}),
    ("upsert", ("tick", EVENT), {"every": "5s", "limit": 7}),
    ("upsert", ("owned", EVENT), {"delay": "1m", "owner": "o"}),
    ("upsert", ("pushed", EVENT), {"delay": "1m", "max_wait": "90s"}),
    (
        "upsert_many",
        ([Upsert(f"m{n}", EVENT, delay=n, owner="o" if n % 3 else None) for n in range(500)],),
        {},
    ),
    ("get", ("a",), {}),
    ("list", ("m1",), {}),
    ("list", (), {"due_to": "2026-01-01T00:00:01Z"}),
    ("list_page", ("m",), {"limit": 7}),
    ("count", ("m",), {}),
    ("stats", (), {}),
    ("pause", ("a",), {}),
    ("pause", ("a",), {}),
    ("resume", ("a",), {}),
    ("trigger", ("tick",), {}),
    ("trigger", ("a",), {"consume": True}),
    ("publish", (EVENT,), {"key": "p"}),
    ("cancel", ("once",), {}),
    ("cancel", ("once",), {}),
    ("cancel", ("tick",), {"if_version": 7}),
    ("cancel_many", ([f"m{n}" for n in range(250)],), {}),
    ("cancel_owner", ("o",), {}),
    ("cancel_prefix", ("m",), {}),
    ("stats", (), {}),
]


def plain(result: Any) -> Any:
    """An answer as values that can be compared."""
    if isinstance(result, (Change, Schedule, Page, Stats, int)) or result is None:
        return result
    if isinstance(result, list):
        return [plain(each) for each in result]
    if isinstance(result, Exception):
        return type(result), str(result)
    return result.outcome, result.key, result.version, result.at_ms, result.state, result.replaced_version


def walk(url: str, before: Callable[[str], None], **options: Any) -> list[Any]:
    clock = ManualClock()
    with TimerQueue.connect(url, clock=clock, **options) as queue:
        before("init")
        queue.init(clock="manual", partitions=3)
        said = []
        for verb, arguments, words in WALK:
            clock.advance(10)
            before(verb)
            result = getattr(queue, verb)(*arguments, **words)
            said.append((verb, plain(list(result) if verb == "list" else result)))
        return said


def walk_async(url: str, before: Callable[[str], None], **options: Any) -> list[Any]:
    async def go() -> list[Any]:
        clock = ManualClock()
        async with AsyncTimerQueue.connect(url, clock=clock, **options) as queue:
            before("init")
            await queue.init(clock="manual", partitions=3)
            said = []
            for verb, arguments, words in WALK:
                clock.advance(10)
                before(verb)
                if verb == "list":
                    result: Any = [schedule async for schedule in queue.list(*arguments, **words)]
                else:
                    result = await getattr(queue, verb)(*arguments, **words)
                said.append((verb, plain(result)))
            return said

    return asyncio.run(go())


def stored(client: redis.Redis) -> dict[bytes, Any]:
    """Everything but what is random: the names of sessions, and entry ids, which are the server's time."""
    state = dump(client)
    return {
        name: [fields for _, fields in value] if isinstance(value, list) else value
        for name, value in state.items()
        if b":req:" not in name
    }


@pytest.mark.parametrize("walker", [walk, walk_async])
def test_every_verb_tells_the_first_outcome(
    redis_client: redis.Redis, proxy: Proxy, walker: Callable[..., list[Any]]
) -> None:
    compare(redis_client, proxy, walker, "swallow", "close", 1)


@pytest.mark.one_server
@pytest.mark.parametrize("walker", [walk, walk_async])
@pytest.mark.parametrize(("kind", "times"), [("swallow", 2), ("drop", 1)])
def test_also_where_it_happens_twice_or_on_the_way_there(
    redis_client: redis.Redis, proxy: Proxy, walker: Callable[..., list[Any]], kind: str, times: int
) -> None:
    compare(redis_client, proxy, walker, kind, "close", times)


@pytest.mark.one_server
@pytest.mark.parametrize("walker", [walk, walk_async])
def test_also_where_nothing_is_heard_any_more(
    redis_client: redis.Redis, proxy: Proxy, walker: Callable[..., list[Any]]
) -> None:
    compare(redis_client, proxy, walker, "swallow", "silence", 1, socket_timeout=0.15, retries=20)


def compare(
    redis_client: redis.Redis,
    proxy: Proxy,
    walker: Callable[..., list[Any]],
    kind: str,
    then: Literal["close", "silence"],
    times: int,
    **options: Any,
) -> None:
    def clean(verb: str) -> None:
        pass

    right = walker(proxy.url, clean)
    state = stored(redis_client)
    tags = tuple(b"{%b}" % tag for tag in state[b"{timerq}:meta"][b"tags"].split(b" "))
    assert all(tag + b":meta" in state for tag in tags)
    redis_client.flushall()

    faults: list[tuple[str, Fault]] = []

    def faulty(verb: str) -> None:
        order = proxy.swallow_reply if kind == "swallow" else proxy.drop_command
        faults.append((verb, order(lambda words: words[0] in (b"EVALSHA", b"EVAL"), then=then, times=times)))

    said = walker(proxy.url, faulty, **options)
    assert [verb for verb, fault in faults if not fault.struck] == []
    assert said == right
    assert stored(redis_client) == state
    check_structure(dump(redis_client), tags)


def test_commands_that_travel_at_once_each_have_their_own(redis_client: redis.Redis, proxy: Proxy) -> None:
    """64 tasks share a connection's script; its answer is lost; each is told what became of its own."""

    async def go() -> list[Any]:
        async with AsyncTimerQueue.connect(proxy.url) as queue:
            await queue.init(partitions=2)
            await queue.upsert_many([Upsert(f"k{n}", EVENT, delay="1h") for n in range(0, 64, 2)])
            fault = proxy.swallow_reply("EVALSHA", times=3)
            handles = await asyncio.gather(*[queue.upsert(f"k{n}", EVENT, delay="2h") for n in range(64)])
            assert fault.struck == 3
            assert await queue.count() == 64
            return list(handles)

    handles = asyncio.run(go())
    assert [handle.outcome for handle in handles] == [Outcome.REPLACED, Outcome.CREATED] * 32
    assert len({handle.version for handle in handles}) == 64


def test_threads_that_share_a_queue_each_have_their_own(redis_client: redis.Redis, proxy: Proxy) -> None:
    with TimerQueue.connect(proxy.url) as queue:
        queue.init(partitions=2)
        outcomes: dict[int, list[Outcome]] = {}

        def work(mine: int) -> None:
            said = outcomes[mine] = []
            for turn in range(30):
                key = f"{mine}:{turn}"
                said.append(queue.upsert(key, EVENT, delay="1h").outcome)
                said.append(queue.upsert(key, EVENT, delay="2h").outcome)
                said.append(queue.cancel(key).outcome)
                said.append(queue.cancel(key).outcome)

        seen: set[int] = set()

        def a_third_of_the_new_ones(words: Words) -> bool:
            """What is sent again is the same to the last byte."""
            call = hash(tuple(words))
            if call in seen:
                return False
            seen.add(call)
            return words[0] == b"EVALSHA" and call % 3 == 0

        threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
        fault = proxy.swallow_reply(a_third_of_the_new_ones, times=100_000)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert fault.struck > 200
    want = [Outcome.CREATED, Outcome.REPLACED, Outcome.CANCELLED, Outcome.NOT_PENDING] * 30
    assert all(said == want for said in outcomes.values())
    assert len(outcomes) == 16


def test_a_dispatcher_whose_answers_are_lost(redis_url: str, proxy: Proxy, redis_client: redis.Redis) -> None:
    redis_client.script_load(SCRIPTS["fire"].text)  # or the answer would be that it is not there
    with TimerQueue.connect(redis_url) as queue, Events(redis_url, queue.init()) as events:
        queue.upsert_many([Upsert(f"k{n}", EVENT, at=1) for n in range(1000)])
        queue.upsert("tick", EVENT, every=20)
        faults = [proxy.swallow_reply("EVALSHA", times=2), proxy.drop_command("EVALSHA", times=2)]
        with Dispatcher(proxy.url) as dispatcher:
            wait_for(lambda: all(fault.struck == 2 for fault in faults), "they have struck")
            events.wait(lambda seen: len({event.key for event in seen}) == 1001)
            wait_for(lambda: not dispatcher.health.failing, "it is well again")
            events.wait(len(events.of("tick")) + 5, key="tick")
            queue.cancel("tick")
        events.check()
        assert len([event for event in events.all if event.key != "tick"]) == 1000
        slots = [event.at_ms + i * 20 for event in events.of("tick") for i in range(event.missed + 1)]
        assert slots == [slots[0] + i * 20 for i in range(len(slots))]
