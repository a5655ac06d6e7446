"""Owners, on both clients and every server: their verbs, what dies with them, and what a gone handle is told."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from tests.support.both import Both
from tests.support.events import Events
from tests.support.proxy import Proxy, wait_for
from tests.support.worker import Worker
from timerq import (
    AsyncTimerQueue,
    Event,
    InvalidSchedule,
    Outcome,
    QueueUnavailable,
    TimerQueue,
    Upsert,
    keys,
)
from timerq.commands import owner as owning
from timerq.dispatcher import undertaker as undertaking
from timerq.dispatcher.undertaker import CALM_S, UNSWEPT_S, Undertaker
from timerq.testing import ManualClock

EVENT = Event("t", {"n": 1})
HOLDER = """
import os, sys, time
from timerq import Event, TimerQueue

queue = TimerQueue.connect(os.environ["TIMERQ_REDIS_URL"])
timers = queue.owner("session-7", ttl="3s")
timers.start_fixed_rate("beat", Event("beat"), "100ms")
timers.start_single("later", Event("later"), "1h")
print("holds its timers", file=sys.stderr, flush=True)
said = None
while True:
    time.sleep(0.05)
    if timers.is_gone and said is None:
        said = timers.start_single("late", Event("late"), 0).outcome
        print("comes late:", said, file=sys.stderr, flush=True)
"""


class OwnerOf:
    """A handle whose verbs block, whichever client it is of."""

    def __init__(self, queue: Both, real: Any) -> None:
        self.queue = queue
        self.real = real

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.real, name)
        return (lambda *args, **words: self.queue.wait(verb(*args, **words))) if callable(verb) else verb

    def __enter__(self) -> OwnerOf:
        enter = "__enter__" if self.queue.kind == "sync" else "__aenter__"
        self.queue.wait(getattr(self.real, enter)())
        return self

    def __exit__(self, *why: Any) -> None:
        leave = "__exit__" if self.queue.kind == "sync" else "__aexit__"
        self.queue.wait(getattr(self.real, leave)(*why))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(kind: str, any_url: str, clock: ManualClock) -> Iterator[Both]:
    with Both(kind, any_url, tenant="acme", clock=clock) as queue:
        queue.init(partitions=3, clock="manual")
        yield queue


def of(queue: Both, name: str = "session-7", ttl: Any = None) -> OwnerOf:
    return OwnerOf(queue, queue.real.owner(name, ttl))


def fired(queue: Both) -> list[str]:
    """The keys of what is published, all that is due."""
    while any(answer.wait_us == 0 for answer in queue.fire()):
        pass
    return [event["key"].decode() for event in queue.events()]


# ------------------------------------------------------------------------------------------------ verbs


def test_timers_are_started_replaced_and_cancelled(queue: Both, clock: ManualClock) -> None:
    timers = of(queue)
    assert timers.incarnation is None
    first = timers.start_single("idle", EVENT, "10m")
    assert (first.outcome, first.owner, first.at_ms) == (Outcome.CREATED, "session-7", clock.now_ms + 600_000)
    assert timers.incarnation < first.version
    clock.advance("5m")
    again = timers.start_single("idle", EVENT, "10m")
    assert (again.outcome, again.replaced_version) == (Outcome.REPLACED, first.version)
    assert not queue.wait(first.cancel())
    assert timers.is_active("idle")
    assert not timers.is_active("other")
    rate = timers.start_fixed_rate("rate", EVENT, "1m", initial_delay=0)
    assert rate.at_ms == clock.now_ms
    assert timers.start_fixed_delay("delay", EVENT, {"seconds": 30}).at_ms == clock.now_ms + 30_000
    assert timers.active_keys() == ["delay", "idle", "rate"]
    assert timers.active_keys("i") == ["idle"]
    assert timers.cancel("idle") is True
    assert timers.cancel("idle") is False
    assert timers.cancel_all() == 2
    assert timers.active_keys() == []
    assert timers.start_single("idle", EVENT, 5).outcome is Outcome.CREATED  # it lives on


@pytest.mark.parametrize("start", ["start_fixed_rate", "start_fixed_delay"])
def test_starting_again_begins_anew(queue: Both, clock: ManualClock, start: str) -> None:
    timers = of(queue)
    getattr(timers, start)("k", EVENT, "1m")
    clock.advance("50s")
    again = getattr(timers, start)("k", EVENT, "1m")  # reset on activity
    assert (again.outcome, again.at_ms) == (Outcome.REPLACED, clock.now_ms + 60_000)
    timers.pause("k")
    assert getattr(timers, start)("k", EVENT, "1m").state == "armed"
    assert timers.start_single("k", EVENT, "1m").outcome is Outcome.REPLACED  # whatever it was
    assert timers.get("k").timing.kind == "once"


def test_a_fixed_delay_counts_from_the_firing_or_from_the_handling(queue: Both, clock: ManualClock) -> None:
    timers = of(queue)
    timers.start_fixed_delay("plain", EVENT, "1m")
    timers.start_fixed_delay("handled", EVENT, "1m", initial_delay="1m", ack_group="workers")
    clock.advance("90s")
    assert sorted(fired(queue)) == ["handled", "plain"]
    assert timers.get("plain").at_ms == clock.now_ms + 60_000
    clock.advance("10m")
    (event_id,) = (event["id"].decode() for event in queue.events() if event["key"] == b"handled")
    assert queue.done(event_id).outcome is Outcome.DONE
    assert timers.get("handled").at_ms == clock.now_ms + 60_000


def test_every_verb_of_a_queue_is_there_for_the_owner_alone(queue: Both, clock: ManualClock) -> None:
    timers = of(queue)
    queue.upsert("k1", EVENT, delay=5, owner="session-8")
    queue.upsert("k1", EVENT, delay=5)
    handle = timers.upsert("k1", Event("t", correlation={"request": "r"}), at=clock.now_ms + 5, by="ann")
    assert handle.owner == "session-7"
    timers.upsert("k2", EVENT, cron="0 9 * * *", timezone="Europe/Paris", idempotency_key="once")
    assert timers.upsert("k2", EVENT, cron="0 9 * * *", timezone="Europe/Paris").outcome is Outcome.UNCHANGED
    many = timers.upsert_many(
        [Upsert("l1", EVENT, delay=7), {"key": "l2", "event": {"type": "t"}, "every": 9}]
    )
    assert [(each.owner, each.outcome) for each in many] == [("session-7", Outcome.CREATED)] * 2
    assert timers.get("k1").event.correlation == {"request": "r"}
    assert [schedule.key for schedule in timers.list()] == ["k1", "k2", "l1", "l2"]
    assert [schedule.key for schedule in timers.list("k")] == ["k1", "k2"]
    soon = timers.list(due_from=0, due_to=clock.now_ms + 9)
    assert [(schedule.key, schedule.owner) for schedule in soon] == [
        (key, "session-7") for key in ("k1", "l1", "l2")
    ]
    page = timers.list_page(limit=3)
    assert [schedule.key for schedule in timers.list_page(after=page.cursor).items] == ["l2"]
    assert (timers.count(), timers.count("l")) == (4, 2)
    assert timers.pause("k1", note="why", by="ann").outcome is Outcome.PAUSED
    assert timers.get("k1").paused_note == "why"
    assert timers.resume("k1").outcome is Outcome.RESUMED
    assert [instant.hour for instant in timers.next("k2", 3)] == [8, 8, 8]
    assert timers.trigger("k2", if_version=5).outcome is Outcome.VERSION_MISMATCH
    assert timers.trigger("l1", consume=True, by="ann").outcome is Outcome.TRIGGERED
    assert [entry.what for entry in timers.why("l1").entries] == ["triggered"]
    published = timers.publish(EVENT, key="hello")
    assert (published.outcome, published.owner) == (Outcome.PUBLISHED, "session-7")
    assert timers.cancel("k1", if_version=5) is False
    assert [bool(change) for change in timers.cancel_many(["k1", "none"])] == [True, False]
    assert timers.cancel_prefix("l") == 1
    timers.upsert("grid", EVENT, every="1m", start="2025-12-31T00:00:00Z", paused=True)
    clock.advance("1h")
    told = timers.backfill("grid", "2025-12-31T00:00:00Z", "2025-12-31T00:04:00Z", by="ann")
    assert (told.outcome, told.published) == (Outcome.PUBLISHED, 5)
    assert timers.resume("grid", from_now=True).outcome is Outcome.RESUMED
    assert timers.get("grid").at_ms == clock.now_ms + 60_000
    assert {event["owner"] for event in queue.events()} == {b"session-7"}
    assert queue.get("k1", owner="session-8") is not None
    assert queue.get("k1") is not None


def test_what_is_wrong_is_refused_before_anything_is_sent(queue: Both) -> None:
    for name in ("", "a\0b", "x" * 513, 5):
        with pytest.raises(InvalidSchedule) as refused:
            of(queue, name)  # type: ignore[arg-type]
        assert refused.value.field == "owner"
    for ttl in (0, 99, "99ms", -5, "soon"):
        with pytest.raises(InvalidSchedule) as refused:
            of(queue, ttl=ttl)
        assert refused.value.field == "ttl"
    timers = of(queue)
    for bad in ({"delay": 5, "every": 5}, {}, {"cron": "soon"}):
        with pytest.raises(InvalidSchedule):
            timers.upsert("k", EVENT, **bad)
    with pytest.raises(TypeError):
        timers.upsert("k", EVENT, delay=5, owner="session-8")
    mine, others, bad = timers.upsert_many(
        [Upsert("k", EVENT, delay=5, owner="session-7"), Upsert("k", EVENT, delay=5, owner="x"), {"key": "k"}]
    )
    assert mine.outcome is Outcome.CREATED
    assert (others.field, bad.field) == ("owner", "event")


# ------------------------------------------------------------------------------------------------ incarnations


def test_all_dies_with_the_block_and_nothing_else(queue: Both, clock: ManualClock) -> None:
    queue.upsert("k", EVENT, delay=5)
    with of(queue) as timers, of(queue, "session-8") as others:
        assert timers.incarnation is not None
        timers.start_single("a", EVENT, 5)
        others.start_single("b", EVENT, 5)
        third = of(queue, "session-9")
        with pytest.raises(InvalidSchedule), third:  # noqa: PT012
            third.start_single("c", EVENT, 5)
            third.start_single("c", EVENT, "soon")
        timers.destroy()
        clock.advance(10)
        assert sorted(fired(queue)) == ["b", "k"]
    assert [entry.what for entry in timers.why("a").entries] == ["destroyed"]
    assert timers.why("a").schedule is None


def test_a_handle_that_is_gone_is_told_so_by_every_verb(queue: Both, clock: ManualClock) -> None:
    old, other = of(queue), of(queue)
    old.start_single("k", EVENT, 5)
    other.open()
    assert of(queue).destroy() == 1  # by whoever
    new = of(queue)
    assert new.start_fixed_rate("k", EVENT, 5).outcome is Outcome.CREATED
    for timers in (old, other):
        assert not timers.is_gone  # it has not heard
        for _ in range(2):  # told by Redis, then by itself
            dead = timers.start_single("k", EVENT, 5)
            assert (dead.outcome, dead.at_ms, dead.schedule) == (Outcome.OWNER_GONE, None, None)
            assert not queue.wait(dead.cancel())
            assert dead.version < new.incarnation
            changes = [
                timers.pause("k"),
                timers.resume("k"),
                timers.resume("k", from_now=True),
                timers.trigger("k"),
            ]
            changes += [timers.publish(EVENT, key="k"), *timers.cancel_many(["k"])]
            assert {(change.outcome, change.version, bool(change)) for change in changes} == {
                (Outcome.OWNER_GONE, dead.version, False)
            }
            gone, refused = timers.upsert_many(
                [Upsert("k", EVENT, delay=5), Upsert("k", EVENT, 5, owner="x")]
            )
            assert gone.outcome is Outcome.OWNER_GONE
            assert refused.field == "owner"
            assert timers.backfill("k", 0, 5).outcome is Outcome.OWNER_GONE
            assert (timers.get("k"), timers.list(), timers.list(due_from=0), timers.count()) == (
                None,
                [],
                [],
                0,
            )
            assert (timers.is_active("k"), timers.active_keys(), timers.next("k")) == (False, [], [])
            assert timers.list_page().items == []
            assert timers.cancel("k") is False
            assert timers.cancel_prefix("") == timers.cancel_all() == timers.destroy() == 0
            assert timers.is_gone
    assert new.get("k") is not None
    assert not new.is_gone
    assert queue.events() == []


@pytest.mark.parametrize("verb", ["get", "count", "active_keys", "is_active", "list", "next", "cancel_all"])
def test_a_look_alone_finds_out(queue: Both, verb: str) -> None:
    old = of(queue).real
    old = OwnerOf(queue, queue.wait(old.open()))
    old.start_single("k", EVENT, 5)
    of(queue).destroy()
    of(queue).start_single("k", EVENT, 5)
    assert not getattr(old, verb)(*(["k"] if verb in ("get", "is_active", "next") else []))
    assert old.is_gone
    assert of(queue).count() == 1


def test_a_restart_starts_clean_and_outlives_the_others(queue: Both, clock: ManualClock) -> None:
    old, timers = of(queue), of(queue)
    old.start_single("a", EVENT, 5)
    timers.start_single("b", EVENT, 5)
    before = timers.incarnation
    assert timers.restart() == 2
    assert timers.incarnation > before
    assert timers.active_keys() == []
    assert timers.start_single("b", EVENT, 7).outcome is Outcome.CREATED
    assert old.start_single("a", EVENT, 5).outcome is Outcome.OWNER_GONE
    assert old.destroy() == 0
    assert timers.is_active("b")
    assert old.restart() == 1  # who says so takes over
    assert old.start_single("a", EVENT, 5).outcome is Outcome.CREATED
    clock.advance(10)
    assert fired(queue) == ["a"]
    assert timers.cancel_all() == 0
    assert timers.is_gone


def test_a_handle_that_was_only_used_to_destroy_is_gone_too(queue: Both) -> None:
    of(queue).start_single("k", EVENT, 5)
    timers = of(queue)
    assert timers.get("k") is not None  # a look takes no incarnation
    assert timers.incarnation is None
    assert timers.destroy() == 1
    assert timers.destroy() == 0
    assert timers.start_single("k", EVENT, 5).outcome is Outcome.OWNER_GONE


def test_many_timers_are_listed_cancelled_and_destroyed(queue: Both) -> None:
    timers = of(queue)
    timers.upsert_many([Upsert(f"k{i:03}", EVENT, delay=5) for i in range(450)])
    keys = [f"k{i:03}" for i in range(450)]
    assert timers.active_keys() == [schedule.key for schedule in timers.list()] == keys
    assert timers.cancel_prefix("k1") == 100
    assert timers.destroy() == 350
    assert queue.count() == 0


def test_a_durable_destroy_says_what_it_reached(queue: Both) -> None:
    timers = of(queue)
    timers.start_single("k", EVENT, 5)
    swept = timers.destroy(durable="replicas=1,timeout=10ms")
    assert (swept, swept.durable) == (1, "accepted")  # there is no replica


def test_handles_that_are_made_at_once_take_one_incarnation_each(queue: Both) -> None:
    timers = of(queue)
    if queue.kind == "sync":
        threads = [
            threading.Thread(target=timers.real.start_single, args=(f"k{i}", EVENT, 5)) for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:

        async def together() -> None:
            await asyncio.gather(*(timers.real.start_single(f"k{i}", EVENT, 5) for i in range(8)))

        queue.wait(together())
    first = timers.incarnation
    assert timers.count() == 8
    assert timers.incarnation == first


# ------------------------------------------------------------------------------------------------ heartbeats


def link_of(queue: Any) -> Any:
    return queue.real._link if isinstance(queue, Both) else queue._link


def beating() -> list[threading.Thread]:
    """The threads of heartbeats."""
    return [thread for thread in threading.enumerate() if thread.name == "timerq-owner"]


def owners(queue: Any) -> dict[bytes, float]:
    """Those that have a heartbeat, and until when it holds (ms)."""
    link = queue._link if isinstance(queue, TimerQueue) else queue.link
    namespace = queue.namespace
    found: dict[bytes, float] = {}
    for tag in namespace.tags:
        if link.connections.open().type(tag + b":owners") == b"zset":
            found |= dict(link.connections.open().zrange(tag + b":owners", 0, -1, withscores=True))
    return found


def until(queue: Both, true: Callable[[], bool], what: str) -> None:
    """As `wait_for`; the beats of an asynchronous queue go on meanwhile."""
    if queue.kind == "sync":
        wait_for(true, what)
        return

    async def wait() -> None:
        while not true():
            await asyncio.sleep(0.02)

    queue.wait(asyncio.wait_for(wait(), 30))


@pytest.mark.one_server
def test_a_heartbeat_goes_on_until_the_owner_is_destroyed(queue: Both) -> None:
    with of(queue, ttl=300) as timers:
        first = owners(queue)[b"acme\0session-7"]
        until(queue, lambda: owners(queue)[b"acme\0session-7"] > first + 200, "it is heard")
        timers.restart()
        assert b"acme\0session-7" in owners(queue)
    assert owners(queue) == {}
    assert all(settled(thread) for thread in beating())


@pytest.mark.one_server
def test_restarts_at_once_leave_one_heartbeat(queue: Both) -> None:
    timers = of(queue, ttl="30s")
    began: list[Any] = []
    start = link_of(queue).beats.start

    def begin(*words: Any) -> Any:
        began.append(start(*words))
        return began[-1]

    link_of(queue).beats.start = begin
    if queue.kind == "sync":
        threads = [threading.Thread(target=timers.real.restart) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:

        async def together() -> None:
            await asyncio.gather(*(timers.real.restart() for _ in range(8)))

        queue.wait(together())
    assert len(began) == 8
    assert [beat for beat in began if beat.is_wanted] == [timers.real._heartbeat]
    timers.destroy()
    assert not any(beat.is_wanted for beat in began)


@pytest.mark.one_server
def test_a_destroy_ends_also_what_is_just_being_taken(queue: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    real, began = owning.begin, threading.Event()
    timers = of(queue, ttl="30s")

    def begin(scope: Any, *args: Any) -> Any:
        taken = yield from real(scope, *args)
        began.set()
        for _ in range(20):  # it takes its time
            yield [owning.live(scope.namespace, timers.real._life.owned(scope))]
        return taken

    monkeypatch.setattr(owning, "begin", begin)
    if queue.kind == "sync":
        opening = threading.Thread(target=timers.real.open)
        opening.start()
        assert began.wait(30)
        timers.destroy()
        opening.join()
    else:

        async def together() -> None:
            opening = asyncio.create_task(timers.real.open())
            while not began.is_set():
                await asyncio.sleep(0)
            await timers.real.destroy()
            await opening

        queue.wait(together())
    assert timers.is_gone
    assert timers.real._heartbeat is None
    assert owners(queue) == {}


def settled(thread: threading.Thread) -> bool:
    thread.join(30)
    return not thread.is_alive()


@pytest.mark.one_server
def test_a_heartbeat_ends_with_the_handle_and_with_its_queue(redis_url: str) -> None:
    queue = TimerQueue.connect(redis_url)
    timers = queue.owner("a", ttl="30s").open()
    other = queue.owner("b", ttl="30s").open()
    (first,) = beating()
    del timers
    gc.collect()
    wait_for(lambda: queue._link.beats._pulses[None]._news.empty(), "it has taken note of that")
    assert first.is_alive()
    del other
    gc.collect()
    assert settled(first)
    kept = queue.owner("c", ttl=150).open()
    (second,) = beating()
    queue.close()
    assert settled(second)
    assert not kept.is_gone


@pytest.mark.one_server
def test_an_async_heartbeat_ends_with_the_handle_and_with_its_queue(redis_url: str) -> None:
    async def main() -> None:
        queue = AsyncTimerQueue.connect(redis_url)
        timers = await queue.owner("a", ttl=150).open()
        other = await queue.owner("b", ttl=150).open()
        first = queue._link.beats._task
        del timers
        gc.collect()
        await asyncio.sleep(0.2)
        assert not first.done()
        del other
        gc.collect()
        await asyncio.wait_for(first, 30)
        kept = await queue.owner("c", ttl=150).open()
        second = queue._link.beats._task
        await queue.close()
        await asyncio.wait_for(second, 30)
        assert not kept.is_gone

    asyncio.run(main())


@pytest.mark.one_server
def test_many_handles_share_a_thread_and_are_heard_together(queue: Both) -> None:
    handles = [of(queue, f"session-{n}", ttl=1500) for n in range(300)]
    for handle in handles:
        handle.open()
    link = link_of(queue)
    real = link.send

    def send(commands: Any) -> Any:
        sizes.extend((len(command.words) - 6) // 4 for command in commands if command.script.name == "hear")
        return real(commands)

    sizes: list[int] = []
    if queue.kind == "sync":
        threads, pulses = beating(), link.beats._pulses
        nodes = 3 if isinstance(queue.client, redis.RedisCluster) else 1
        assert len(threads) == len(pulses) <= nodes
        for pulse in pulses.values():
            pulse._send = send
        first = owners(queue)
        assert len(first) == 300
        wait_for(lambda: all(owners(queue)[name] > first[name] for name in first), "all are heard")
        assert beating() == threads
    else:
        link.beats._send = send
        first = owners(queue)

        async def heard() -> None:
            while not all(now[name] > first[name] for now in [owners(queue)] for name in first):
                await asyncio.sleep(0.02)
            tasks = [task for task in asyncio.all_tasks() if task.get_name() == "timerq-owner"]
            assert tasks == [link.beats._task]

        queue.wait(asyncio.wait_for(heard(), 30))
    assert sum(sizes) >= 300
    assert len(sizes) <= 30  # a few calls of each of the 3 partitions, whatever the number of handles
    assert not any(handle.is_gone for handle in handles)
    handles[7].destroy()
    handles[8].restart()
    other = of(queue, "session-9")
    other.destroy()
    until(queue, lambda: handles[9].is_gone, "it is told")
    assert [n for n, handle in enumerate(handles) if handle.is_gone] == [7, 9]
    assert handles[9].start_single("k", EVENT, 5).outcome is Outcome.OWNER_GONE


@pytest.mark.one_server
def test_what_is_wrong_with_one_partition_is_no_fault_of_the_others(
    queue: Both, caplog: pytest.LogCaptureFixture
) -> None:
    handles = [of(queue, f"session-{n}", ttl=300) for n in range(20)]
    for handle in handles:
        handle.open()
    namespace = queue.namespace
    place = [owning.locate_owner(handle.real._queue._scope, handle.name).partition for handle in handles]
    beside = [n for n in range(20) if place[n] != place[0]]
    key = keys.owners(namespace.tags[place[0]])
    queue.client.delete(key)
    queue.client.set(key, "not a zset")
    assert beside
    before = owners(queue)

    def rest() -> bool:
        now = owners(queue)
        return all(now[b"acme\0session-%d" % n] > before[b"acme\0session-%d" % n] + 300 for n in beside)

    until(queue, rest, "they are heard")
    until(queue, lambda: "not heard" in caplog.text, "the others are told of")
    assert not any(handle.is_gone for handle in handles)
    queue.client.delete(key)


@pytest.mark.one_server
def test_a_forked_child_has_a_heartbeat_of_its_own(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        queue.owner("of-the-parent", ttl="30s").open()
        kept = queue.owner("kept", ttl="30s").open()
        program = os.fork()
        if program == 0:
            code = 1
            try:
                with queue.owner("of-the-child", ttl=300).open() as timers:
                    first = owners(queue)[b"default\0of-the-child"]
                    wait_for(lambda: owners(queue)[b"default\0of-the-child"] > first, "it is heard")
                    code = 0 if len(beating()) == 1 and not timers.is_gone else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]) == 0
        assert len(beating()) == 1
        assert not kept.is_gone


@pytest.mark.one_server
def test_a_heartbeat_outlasts_a_redis_that_is_away(
    proxy: Proxy, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with TimerQueue.connect(proxy.url, retries=0) as queue, TimerQueue.connect(redis_url) as beside:
        beside.init()
        timers = queue.owner("session-7", ttl=600).open()
        proxy.refuse()
        wait_for(lambda: "was not heard" in caplog.text, "it is told")
        with pytest.raises(QueueUnavailable):
            timers.start_single("k", EVENT, 5)
        proxy.accept()
        told = len(caplog.records)
        before = owners(beside)[b"default\0session-7"]
        wait_for(lambda: owners(beside)[b"default\0session-7"] > before, "it is heard again")
        assert not timers.is_gone
        assert told
        timers.destroy()


@pytest.mark.one_server
def test_a_process_that_is_killed_takes_its_timers_with_it(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue, Worker(redis_url) as worker:
        queue.init()
        started = time.monotonic()
        holder = Worker(redis_url, program=HOLDER).start(wait=False)
        try:
            holder.wait_for_line("holds its timers")
            with Events(redis_url, queue.namespace) as events:
                events.wait(5)
                # nobody is destroyed before the dispatcher has heard Redis for a while
                wait_for(lambda: time.monotonic() - started > CALM_S + 3, "the dispatcher listens", 30)
                assert queue.count(owner="session-7") == 2
                holder.kill()
                worker.wait_for_line("its heartbeat stopped: destroyed owner session-7")
            assert queue.count(owner="session-7") == 0
            assert owners(queue) == {}
            assert queue.why("later", owner="session-7").entries[-1].note == "its heartbeat stopped"
        finally:
            if holder.alive:
                holder.kill()


@pytest.mark.one_server
def test_a_process_that_comes_back_late_is_told(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        namespace = queue.init()
        holder = Worker(redis_url, program=HOLDER).start(wait=False)
        try:
            holder.wait_for_line("holds its timers")
            holder.freeze()
            undertaker = listening(queue)
            wait_for(lambda: undertaker_done(undertaker, queue), "its time is up")
            with queue.owner("session-7") as successor:
                successor.start_single("mine", EVENT, "1h")
                holder.thaw()
                holder.wait_for_line("comes late: OWNER_GONE")
                holder.wait_for_line("owner session-7 is gone")
                assert successor.active_keys() == ["mine"]
                assert owners(queue) == {}
        finally:
            holder.kill()
        assert namespace.partitions == 1


def listening(queue: TimerQueue) -> Undertaker:
    """A dispatcher's part, that has heard Redis for a long while."""
    undertaker = Undertaker(queue._link, queue.namespace)
    undertaker._calm_since_s -= CALM_S
    return undertaker


def undertaker_done(undertaker: Undertaker, queue: TimerQueue) -> bool:
    undertaker.look([0], time.monotonic() + 5)
    return queue.count(owner="session-7") == 0


@pytest.mark.one_server
def test_silence_means_nothing_while_redis_was_away(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        timers = queue.owner("session-7", ttl="1h")
        timers.start_single("k", EVENT, "1h")
        tag = queue.namespace.tags[0]
        queue._link.connections.open().zadd(tag + b":owners", {b"default\0session-7": 5})
        undertaker = listening(queue)
        undertaker.look([], time.monotonic() + 5)  # it leads nothing
        undertaker.redis_failed()
        undertaker.look([0], time.monotonic() + 5)
        assert timers.is_active("k")
        undertaker._calm_since_s -= CALM_S
        undertaker.look([0], time.monotonic() - 1)  # no time is left
        assert timers.is_active("k")
        undertaker.look([0], time.monotonic() + 5)
        assert not timers.is_active("k")
        assert timers.is_gone


@pytest.mark.one_server
def test_a_large_owner_is_swept_as_far_as_time_allows(
    redis_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "timerq.owner")
    with TimerQueue.connect(redis_url) as queue:
        timers = queue.owner("session-7", ttl="1h").open()
        timers.upsert_many([Upsert(f"k{i}", EVENT, delay="1h") for i in range(1000)])
        tag = queue.namespace.tags[0]
        queue._link.connections.open().zadd(tag + b":owners", {b"default\0session-7": 5})
        undertaker = listening(queue)
        readings = iter([0.0, 0.0, *[9.0] * 9])  # the time is up behind the first piece
        undertaker._calm_since_s = -CALM_S
        with monkeypatch.context() as patch:
            patch.setattr(undertaking, "time", SimpleNamespace(monotonic=lambda: next(readings)))
            undertaker.look([0], 1.0)
        assert "200 timers so far" in caplog.text
        assert queue.count() == 800
        undertaker.look([0], time.monotonic() + 5)  # its own it goes on with at once
        assert queue.count() == 0
        assert "went on with the sweep of owner session-7 of tenant default: 800 timers" in caplog.text


@pytest.mark.one_server
def test_a_sweep_that_nobody_goes_on_with_is_ended_by_a_dispatcher(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        timers = queue.owner("session-7").open()
        timers.upsert_many([Upsert(f"k{i}", EVENT, delay="1h") for i in range(1000)])
        steps = owning.destroy(queue._open(), owning.locate_owner(queue._open(), "session-7"))
        queue._link.send(next(steps))  # and then its process was killed
        undertaker = listening(queue)
        undertaker.look([0], time.monotonic() + 5)
        assert queue.count() == 800  # whoever began it may still be at it
        undertaker._begun = {found: since - UNSWEPT_S for found, since in undertaker._begun.items()}
        undertaker.look([0], time.monotonic() + 5)
        assert queue.count() == 0
        assert owners(queue) == {}
