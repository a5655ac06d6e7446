"""Redis runs a command and its answer is lost, or the command never arrives: the caller hears the first outcome, and
what is stored has changed once.

A walk through every verb is taken twice, on a clean connection and through the proxy; answers and the whole of what is
stored must be the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Literal

import pytest
import redis

from tests.support.dead import give_up
from tests.support.events import Events
from tests.support.proxy import Fault, Proxy, Words, wait_for
from tests.support.state import check_structure, dump
from timerq import AsyncTimerQueue, DeadLetter, DeadPage, Event, Outcome, TimerQueue, Upsert, Which
from timerq.commands.dispatch import fire_all
from timerq.commands.history import History
from timerq.commands.planned import Applied, SetPlan
from timerq.dispatcher import Dispatcher
from timerq.lua import SCRIPTS
from timerq.model import Backfilled, Bound, Change, Page, Schedule, Stats
from timerq.testing import ManualClock

EVENT = Event("t", {"n": 1})
VALUES = (Change, Schedule, Page, Stats, Bound, Backfilled, History, SetPlan, datetime, int)
SET = [Upsert(f"s{n}", EVENT, cron=f"{n} 9 * * MON-FRI") for n in range(3)]
LISTS = ("list", "dead_list")
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
    ("upsert", ("job", EVENT), {"cron": "* * * * * *", "timezone": "Europe/Paris", "by": "ann"}),
    ("upsert", ("job", EVENT), {"cron": "*/5 * * * * *", "misfire": "catch_up", "max_catch_up": 2}),
    ("upsert", ("job", EVENT), {"cron": "*/5 * * * * *", "misfire": "catch_up", "max_catch_up": 2}),
    ("upsert", ("beat", EVENT), {"every": "2s", "misfire": "skip", "grace": 0, "jitter": "300ms"}),
    ("upsert", ("run", EVENT), {"every": "2s", "overlap": "queue", "pause_after": 2}),
    ("upsert", ("after", EVENT), {"every": "2s", "fixed_delay": True, "ack_group": "g"}),
    ("upsert_many", ([Upsert(f"c{n}", EVENT, cron=f"{n} * * * * *") for n in range(60)],), {}),
    ("wait", ("6s",), {}),
    ("done", ("run",), {"error": "boom"}),
    ("wait", ("2s",), {}),
    ("done", ("run",), {"error": "boom again"}),
    ("done", ("after",), {}),
    ("resume", ("run",), {}),
    ("trigger", ("job",), {"by": "bob"}),
    ("trigger", ("job",), {}),
    ("pause", ("job",), {"note": "deploy", "by": "bob"}),
    ("pause", ("tick",), {}),
    ("wait", ("11s",), {}),
    ("resume", ("job",), {"from_now": True, "by": "bob"}),
    ("resume", ("tick",), {"from_now": True}),
    ("backfill", ("job", "2025-12-31T23:59:00Z", "2025-12-31T23:59:30Z"), {"by": "bob"}),
    ("backfill", ("run", "2025-12-31T23:50:00Z", "2025-12-31T23:59:30Z"), {}),
    ("next", ("job",), {"n": 3}),
    ("why", ("job",), {}),
    ("plan_set", ("jobs", SET), {}),
    ("apply_set", ("jobs", SET), {}),
    ("apply_set", ("jobs", SET[1:]), {"prune": True}),
    ("cancel", ("once",), {}),
    ("cancel", ("once",), {}),
    ("cancel", ("tick",), {"if_version": 7}),
    ("cancel_many", ([f"m{n}" for n in range(250)],), {}),
    ("cancel_owner", ("o",), {}),
    ("cancel_prefix", ("m",), {}),
    ("publish", (Event("mail"),), {"key": "d1"}),
    ("publish", (Event("mail"),), {"key": "d2", "owner": "o"}),
    ("give_up", ("mails",), {}),
    ("dead_list", ("mails",), {}),
    ("dead_list_page", ("mails", Which(type="mail")), {"limit": 1}),
    ("dead_count", ("mails",), {}),
    ("dead_show", ("mails", "0-1-1"), {}),
    ("dead_replay", ("mails", Which(type="mail")), {}),
    ("dead_discard", ("mails", Which()), {}),
    ("dead_count", ("mails",), {}),
    ("bound", ("events",), {"group": "g", "limit": 3, "lane_limit": 1}),
    ("upsert", ("waits", EVENT), {"delay": 0}),
    ("wait", (0,), {}),
    ("bound", ("events",), {"group": "g", "limit": 3, "rule": "drop_newest"}),
    ("publish", (EVENT,), {"key": "q"}),
    ("stats", (), {}),
    ("unbound", ("events",), {}),
    ("unbound", ("events",), {}),
]


LOST = {
    "resume": ("edit",),
    "backfill": ("backfill",),
    "apply_set": ("enlist", "upsert", "prune"),
    "dead_replay": ("revive",),
    "dead_discard": ("revive",),
}
"""Of verbs that read before they write: the scripts whose replies are lost, each once."""


def plain(result: Any) -> Any:
    """An answer as values that can be compared."""
    if isinstance(result, Applied):
        return result.outcome, result.generation, plain([*result.items]), result.removed
    if isinstance(result, DeadLetter):  # its places are the server's time
        return result.id, result.error, result.attempts, result.last_failed_ms, dict(result.fields)
    if isinstance(result, DeadPage):
        return plain(result.letters), result.after is None
    if isinstance(result, VALUES) or result is None:
        return result
    if isinstance(result, list):
        return [plain(each) for each in result]
    if isinstance(result, Exception):
        return type(result), str(result)
    return result.outcome, result.key, result.version, result.at_ms, result.state, result.replaced_version


def event_of(schedule: Schedule | None) -> str:
    """The event whose handling its schedule waits for."""
    assert schedule is not None
    assert schedule.running is not None
    return schedule.running


def walk(url: str, before: Callable[[str], None], **options: Any) -> list[Any]:
    clock = ManualClock()
    with TimerQueue.connect(url, clock=clock, **options) as queue:
        before("init")
        namespace = queue.init(clock="manual", partitions=3)
        said = []
        for verb, arguments, words in WALK:
            clock.advance(10)
            if verb == "wait":
                clock.advance(*arguments)
                queue.run(fire_all(namespace))
                continue
            if verb == "give_up":
                assert queue.run(give_up(namespace, *arguments)) > 2
                continue
            if verb == "done":
                arguments = (event_of(queue.get(*arguments)),)
            before(verb)
            result = getattr(queue, verb)(*arguments, **words)
            said.append((verb, plain(list(result) if verb in LISTS else result)))
        return said


def walk_async(url: str, before: Callable[[str], None], **options: Any) -> list[Any]:
    async def go() -> list[Any]:
        clock = ManualClock()
        async with AsyncTimerQueue.connect(url, clock=clock, **options) as queue:
            before("init")
            namespace = await queue.init(clock="manual", partitions=3)
            said = []
            for verb, arguments, words in WALK:
                clock.advance(10)
                if verb == "wait":
                    clock.advance(*arguments)
                    await queue.run(fire_all(namespace))
                    continue
                if verb == "give_up":
                    assert await queue.run(give_up(namespace, *arguments)) > 2
                    continue
                if verb == "done":
                    arguments = (event_of(await queue.get(*arguments)),)
                before(verb)
                if verb in LISTS:
                    result: Any = [item async for item in getattr(queue, verb)(*arguments, **words)]
                else:
                    result = await getattr(queue, verb)(*arguments, **words)
                said.append((verb, plain(result)))
            return said

    return asyncio.run(go())


def stored(client: redis.Redis) -> dict[bytes, Any]:
    """Everything but what is random: the names of sessions, and entry ids, which are the server's time."""
    state = dump(client)
    return {name: unmarked(name, value) for name, value in state.items() if b":req:" not in name}


def unmarked(name: bytes, value: Any) -> Any:
    """What is stored without the server's time in it."""
    if name.endswith(b":floors"):
        return sorted(value)
    if isinstance(value, list) and not name.endswith(b":fired_new"):  # a stream
        return [fields for _, fields in value]
    return value


def test_the_walk_takes_every_verb(redis_url: str) -> None:
    public = {name for name, thing in vars(TimerQueue).items() if callable(thing) and name[0] != "_"}
    # owner sends nothing, and the calls are upserts
    others = {"init", "run", "close", "owner", "call_later", "call_every"}
    assert public - others <= {verb for verb, *_ in WALK}
    said = walk(redis_url, lambda verb: None)
    outcomes = {
        verb: [str(answer.outcome) for of, answer in said if of == verb]
        for verb in ("done", "resume", "backfill", "trigger")
    }
    dead = {verb: answer for verb, answer in said if verb in ("dead_replay", "dead_discard")}
    assert dead["dead_replay"] == 2
    assert dead["dead_discard"] > 0
    assert outcomes == {
        "done": ["DONE", "PAUSED", "DONE"],
        "resume": ["RESUMED"] * 4,
        "backfill": ["PUBLISHED"] * 2,
        "trigger": ["TRIGGERED"] * 3 + ["DUPLICATE"],
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

    order = proxy.swallow_reply if kind == "swallow" else proxy.drop_command
    faults: list[tuple[str, list[Fault]]] = []
    names = {script.sha.encode(): name for name, script in SCRIPTS.items()}

    def faulty(verb: str) -> None:
        for fault in faults[-1][1] if faults else ():
            fault.cancel()
        matches: list[Callable[[Words], bool]] = [lambda words: words[0] in (b"EVALSHA", b"EVAL")]
        if verb in LOST:
            matches = [partial(runs, name) for name in LOST[verb]]
        faults.append((verb, [order(match, then=then, times=times) for match in matches]))

    def runs(name: str, words: Words) -> bool:
        return words[0] == b"EVALSHA" and names[words[1]] == name

    said = walker(proxy.url, faulty, **options)
    assert [verb for verb, ordered in faults if not any(fault.struck for fault in ordered)] == []
    for verb, scripts in LOST.items():
        lost = [ordered for of, ordered in faults if of == verb]
        assert all(sum(fault.struck for fault in script) for script in zip(*lost, strict=True)), (
            verb,
            scripts,
        )
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
        queue.upsert("calendar", EVENT, every=20, misfire="catch_up", max_catch_up=1000)
        faults = [proxy.swallow_reply("EVALSHA", times=2), proxy.drop_command("EVALSHA", times=2)]
        with Dispatcher(proxy.url) as dispatcher:
            wait_for(lambda: all(fault.struck == 2 for fault in faults), "they have struck")
            events.wait(lambda seen: len({event.key for event in seen}) == 1002)
            wait_for(lambda: not dispatcher.health.failing, "it is well again")
            events.wait(len(events.of("tick")) + 5, key="tick")
            queue.cancel("tick")
            events.wait(len(events.of("calendar")) + 5, key="calendar")
            queue.cancel("calendar")
        events.check()
        assert len([event for event in events.all if event.key[0] == "k"]) == 1000
        slots = [event.at_ms + i * 20 for event in events.of("tick") for i in range(event.missed + 1)]
        assert slots == [slots[0] + i * 20 for i in range(len(slots))]
        each = [(event.at_ms, event.missed) for event in events.of("calendar")]
        assert each == [(each[0][0] + i * 20, 0) for i in range(len(each))]
