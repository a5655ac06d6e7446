"""TestQueue on fakeredis: time, handlers, what it tells; tests/integration/test_kit.py has the same on real servers."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from timerq import Event, InvalidSchedule, Outcome, TimerqError
from timerq.link import Link
from timerq.tail import Published
from timerq.testing import Drained, ManualClock, TestQueue

EVENT = Event("t")
START_MS = 1_767_225_600_000
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


@pytest.fixture
def kit() -> Iterator[TestQueue]:
    with TestQueue() as kit:
        yield kit


def told(events: list[Published]) -> list[tuple[str, int]]:
    """Keys, and when each was published, from the clock's start (ms)."""
    return [(event.key, event.fired_ms - START_MS) for event in events]


# ---------------------------------------------------------------------------------------------------------- time


def test_nothing_is_early_and_each_has_its_own_instant(kit):
    kit.queue.upsert("a", EVENT, delay="1s")
    kit.queue.upsert("b", EVENT, delay="3s")
    kit.queue.upsert("c", EVENT, delay="2s")
    assert kit.advance(999) == []
    assert told(kit.advance(1)) == [("a", SECOND)]
    assert told(kit.advance("1h")) == [("c", 2 * SECOND), ("b", 3 * SECOND)]
    assert kit.clock.now_ms == START_MS + SECOND + HOUR


def test_what_is_due_now_is_fired_without_time_passing(kit):
    kit.queue.upsert("past", EVENT, at="2020-01-01T00:00:00Z")
    kit.queue.upsert("now", EVENT, delay=0)
    assert told(kit.advance()) == [("past", 0), ("now", 0)]
    assert kit.clock.now_ms == START_MS


def test_one_instant_is_one_batch(kit, monkeypatch):
    monkeypatch.setattr("timerq.testing.kit.MOST_ROUNDS", 2)
    seen: list[Published] = []
    kit.queue.upsert_many([{"key": f"{n:03}", "event": EVENT, "delay": "1m"} for n in range(450)])
    assert len(kit.advance("1m", {"t": seen.append})) == len(seen) == 450
    assert kit.queue.count() == 0


def test_thirty_days_of_a_cron_are_two_scripts_each(kit, monkeypatch):
    sent = []
    send = Link.send

    def counting(link: Link, commands: Any) -> Any:
        sent.extend(commands)
        return send(link, commands)

    kit.queue.upsert("digest", EVENT, cron="0 9 * * *", timezone="Europe/Paris")
    monkeypatch.setattr(Link, "send", counting)
    events = kit.advance("30d")
    assert told(events) == [("digest", day * DAY + 8 * HOUR) for day in range(30)]
    assert all(event.at_ms == event.fired_ms and event.missed == 0 for event in events)
    assert [event.n for event in events] == list(range(1, 31))
    assert len(sent) <= 2 * 30 + 3


def test_set_goes_to_an_instant_and_never_back(kit):
    kit.queue.upsert("a", EVENT, at="2026-01-02T00:00:00Z")
    assert told(kit.set("2026-01-02T00:00:00Z")) == [("a", DAY)]
    assert kit.now.isoformat() == "2026-01-02T00:00:00+00:00"
    with pytest.raises(InvalidSchedule, match=r"instant: .*not before the clock's, 2026-01-02 00:00:00"):
        kit.set("2026-01-01T23:59:59Z")
    with pytest.raises(InvalidSchedule, match="duration"):
        kit.advance("-1s")
    for advance in (kit.advance, kit.clock.advance):
        with pytest.raises(InvalidSchedule, match=r"duration: .* ends before the year 10000"):
            advance("500000w")
    assert kit.now.isoformat() == "2026-01-02T00:00:00+00:00"


def test_a_clock_moved_alone_is_a_time_without_dispatchers(kit):
    kit.queue.upsert("m", EVENT, every="1h")
    kit.clock.advance("5h30m")
    (event,) = kit.advance()
    assert (event.at_ms - START_MS, event.fired_ms - START_MS, event.missed) == (
        HOUR,
        5 * HOUR + 30 * MINUTE,
        4,
    )
    assert told(kit.advance("30m")) == [("m", 6 * HOUR)]


def test_a_clock_that_is_given_is_the_kits():
    clock = ManualClock("2030-06-01T00:00:00Z")
    with TestQueue(clock=clock) as kit:
        kit.advance("1d")
        assert clock.now.isoformat() == "2030-06-02T00:00:00+00:00"


def test_kits_see_nothing_of_each_other(kit):
    with TestQueue() as other:
        other.queue.upsert("a", EVENT, delay=0)
        assert kit.advance("1m") == []
        assert other.namespace.name != kit.namespace.name
        assert len(other.advance()) == 1


def test_partitions_and_tenants_are_one_time(kit):
    with TestQueue(partitions=8, tenant="acme") as kit:
        other = kit.connect("globex")
        for n in range(40):
            (kit.queue if n % 2 else other).upsert(f"k{n}", EVENT, delay=(40 - n) * SECOND)
        events = kit.advance("1m")
    assert [event.key for event in events] == [f"k{n}" for n in reversed(range(40))]
    assert len({event.partition for event in events}) > 4
    assert {event.tenant for event in events} == {"acme", "globex"}


def test_what_was_triggered_or_published_is_returned_once(kit):
    kit.queue.upsert("a", EVENT, delay="1h")
    kit.queue.trigger("a")
    kit.queue.publish(Event("p"), key="p")
    assert [event.origin for event in kit.advance("1h")] == ["triggered", "published", "timing"]
    assert kit.advance("1h") == []


def test_all_streams_are_read_but_errors_is_apart(kit):
    kit.queue.upsert("a", Event("t", stream="audit"), delay="1m")
    kit.queue.upsert("b", EVENT, every="1m", overlap="skip")
    assert [(event.key, event.stream) for event in kit.advance("3m30s")] == [("a", "audit"), ("b", "events")]
    assert [event.key for event in kit.events(stream="audit")] == ["a"]
    reports = kit.events(stream="errors")
    assert [(report.type, report.stream) for report in reports] == [("schedule.skipped", "errors")] * 2
    assert [event.key for event in kit.events()] == ["a", "b"]


# ------------------------------------------------------------------------------------------------------ handlers


def test_what_a_handler_arms_is_due_in_its_turn(kit):
    def step(event: Published) -> None:
        if event.payload < 3:
            kit.queue.upsert("chain", Event("step", event.payload + 1), delay="1m")
        kit.queue.upsert(f"at once {event.payload}", Event("at.once"), delay=0)

    kit.queue.upsert("chain", Event("step", 1), delay="1m")
    kit.queue.upsert("later", EVENT, delay="2m30s")
    assert told(kit.advance("1h", {"step": step})) == [
        ("chain", MINUTE),
        ("at once 1", MINUTE),
        ("chain", 2 * MINUTE),
        ("at once 2", 2 * MINUTE),
        ("later", 2 * MINUTE + 30 * SECOND),
        ("chain", 3 * MINUTE),
        ("at once 3", 3 * MINUTE),
    ]


def test_a_handler_sees_the_clock_at_its_instant(kit):
    seen: list[int] = []
    kit.handlers = {"t": lambda event: seen.append(kit.clock.now_ms - event.at_ms)}
    kit.queue.upsert("a", EVENT, every="1h")
    kit.advance("3h")
    assert seen == [0, 0, 0]


def test_a_handler_that_cancels_is_obeyed(kit):
    kit.queue.upsert("a", Event("stop"), delay="1m")
    kit.queue.upsert("b", EVENT, delay="1m1s")
    assert told(kit.advance("1h", {"stop": lambda event: kit.queue.cancel("b")})) == [("a", MINUTE)]


def test_a_failure_is_raised_where_it_happened_and_the_next_call_goes_on(kit):
    def handler(event: Published) -> None:
        handled.append(event.key)
        if event.key == "bad":
            raise ZeroDivisionError("never")

    handled: list[str] = []
    for key, delay in (("first", "1m"), ("bad", "2m"), ("last", "3m")):
        kit.queue.upsert(key, EVENT, delay=delay)
    with pytest.raises(ZeroDivisionError, match="never"):
        kit.advance("1h", {"t": handler})
    assert kit.clock.now_ms == START_MS + 2 * MINUTE
    assert told(kit.advance("1h", {"t": handler})) == [
        ("first", MINUTE),
        ("bad", 2 * MINUTE),
        ("last", 3 * MINUTE),
    ]
    assert handled == ["first", "bad", "last"]


def test_failures_count(kit):
    def handler(event: Published) -> None:
        raise ValueError("no")

    kit.queue.upsert("a", EVENT, every="1m", pause_after=2)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            kit.advance("1h", {"t": handler})
    (schedule,) = kit.pending()
    assert (schedule.state, schedule.failures) == ("paused", 2)
    assert kit.advance("1h", {"t": handler}) != []
    assert [event.type for event in kit.events(stream="errors")] == ["schedule.paused"]


def test_a_success_closes_the_occurrence(kit):
    kit.queue.upsert("a", EVENT, every="1m", overlap="skip")
    assert len(kit.advance("5m", {"t": lambda event: None})) == 5
    assert len(kit.advance("5m")) == 1  # nobody handles it: the other four are left out
    assert len(kit.events(stream="errors")) == 4


def test_what_no_handler_wants_counts_as_handled(kit):
    kit.queue.upsert("a", EVENT, every="1m", overlap="skip")
    assert len(kit.advance("5m", {"other": lambda event: None})) == 5


def test_what_came_before_is_handled_first(kit):
    seen: list[str] = []
    kit.queue.upsert("a", EVENT, delay="1m")
    kit.advance("1m")
    kit.queue.upsert("b", EVENT, delay="1m")
    assert [event.key for event in kit.advance("1m", {"t": lambda event: seen.append(event.key)})] == ["b"]
    assert seen == ["a", "b"]


def test_handlers_that_arm_each_other_for_ever_are_found_out(kit, monkeypatch):
    monkeypatch.setattr("timerq.testing.kit.MOST_ROUNDS", 50)
    kit.queue.upsert("a", EVENT, delay="1m")
    with pytest.raises(TimerqError, match=r"50 times over at 2026-01-01 00:01:00Z, and there is more"):
        kit.advance("1h", {"t": lambda event: kit.queue.upsert("a", EVENT, delay=0)})


def test_a_handler_that_moves_the_clock_faster_than_it_handles_is_found_out(kit, monkeypatch):
    monkeypatch.setattr("timerq.testing.kit.MOST_ROUNDS", 50)
    kit.queue.upsert("a", EVENT, every="1m")
    with pytest.raises(TimerqError, match=r"50 times over at .* there is more"):
        kit.advance("5m", {"t": lambda event: kit.clock.advance("90s")})


def test_a_handler_cannot_advance_time(kit):
    kit.queue.upsert("a", EVENT, delay="1m")
    with pytest.raises(TimerqError, match="a handler cannot advance it"):
        kit.advance("1h", {"t": lambda event: kit.advance("1m")})
    assert kit.clock.now_ms == START_MS + MINUTE
    assert len(kit.advance("1h")) == 1


def test_async_handlers_in_a_test_that_is_not(kit):
    loops = set()

    async def handler(event: Published) -> None:
        loops.add(id(asyncio.get_running_loop()))
        if event.key == "bad":
            raise ZeroDivisionError
        await kit.aqueue.upsert(f"after {event.key}", Event("end"), delay="1s")

    kit.queue.upsert("a", EVENT, delay="1m")
    kit.queue.upsert("b", EVENT, delay="2m")
    assert [event.key for event in kit.advance("1h", {"t": handler})] == ["a", "after a", "b", "after b"]
    kit.queue.upsert("bad", EVENT, delay="2m")
    with pytest.raises(ZeroDivisionError):
        kit.advance("1h", {"t": handler})
    assert len(loops) == 1


def test_async_handlers_in_a_test_that_is():
    async def scenario() -> None:
        mine = asyncio.get_running_loop()
        own = TestQueue()

        async def handler(event: Published) -> None:
            assert asyncio.get_running_loop() is mine
            if event.key == "bad":
                raise ZeroDivisionError
            await own.aqueue.upsert("next", Event("end"), delay="1s")

        own.handlers = {"t": handler, "end": lambda event: None}
        async with own:
            await own.aqueue.upsert("a", EVENT, delay="1m")
            assert [event.key for event in await own.aset("2026-01-01T01:00:00Z")] == ["a", "next"]
            await own.aconnect("globex").upsert("bad", EVENT, delay="1m")
            with pytest.raises(ZeroDivisionError):
                await own.aadvance("1h")
            assert (await own.aqueue.count()) == 0
            own.queue.upsert("a", EVENT, delay="1m")
            with pytest.raises(TimerqError, match="aadvance"):
                own.advance("1h")

    asyncio.run(scenario())


class Slow:
    """A consumer that fails once with each event, and tries again after a minute."""

    def __init__(self) -> None:
        self.waiting: dict[str, int] = {}
        self.done: list[tuple[str, int]] = []
        self._seen = 0

    def drain(self, kit: TestQueue) -> Drained:
        now_ms, handled = kit.clock.now_ms, 0
        for event in kit.events()[self._seen :]:
            self._seen += 1
            self.waiting[event.key] = now_ms + MINUTE
            handled += 1
        for key, at_ms in list(self.waiting.items()):
            if at_ms <= now_ms:
                del self.waiting[key]
                self.done.append((key, at_ms - START_MS))
                handled += 1
        return Drained(handled, min(self.waiting.values(), default=None))


def test_a_consumer_has_times_of_its_own(kit):
    slow = Slow()
    kit.queue.upsert("a", EVENT, delay="10m")
    kit.queue.upsert("b", EVENT, delay="10m30s")
    assert told(kit.advance("1h", slow)) == [("a", 10 * MINUTE), ("b", 10 * MINUTE + 30 * SECOND)]
    assert slow.done == [("a", 11 * MINUTE), ("b", 11 * MINUTE + 30 * SECOND)]


def test_a_consumer_may_be_asynchronous(kit):
    class Async(Slow):
        async def drain(self, kit: TestQueue) -> Drained:  # type: ignore[override]
            await asyncio.sleep(0)
            return super().drain(kit)

    kit.handlers = consumer = Async()
    kit.queue.upsert("a", EVENT, delay="10m")
    kit.advance("10m")
    assert consumer.done == []
    kit.advance("1m")
    assert consumer.done == [("a", 11 * MINUTE)]


def yielding(event):
    yield event


async def yielding_async(event):
    yield event


class Yielding:
    def __call__(self, event):
        yield event


@pytest.mark.parametrize("handler", [yielding, yielding_async, Yielding(), partial(yielding)])
def test_a_handler_that_yields_would_never_run_and_is_refused(kit, handler):
    for give in (lambda: TestQueue(handlers={"t": handler}), lambda: kit.advance("1h", {"t": handler})):
        with pytest.raises(InvalidSchedule, match="not ones that yield"):
            give()


@pytest.mark.parametrize("handlers", [{"t": 1}, {1: print}, [print], "t", [{"t": print}]])
def test_other_handlers_are_refused(kit, handlers):
    with pytest.raises(InvalidSchedule, match="handlers"):
        TestQueue(handlers=handlers)
    with pytest.raises(InvalidSchedule, match="handlers"):
        kit.advance("1h", handlers)


def test_a_drain_must_say_what_it_did(kit):
    class Mute:
        def drain(self, kit: TestQueue) -> None: ...

    with pytest.raises(InvalidSchedule, match="Drained"):
        kit.advance("1h", Mute())


# ------------------------------------------------------------------------------------------------------- looking


def test_events_are_told_by_type_key_and_owner(kit):
    kit.queue.upsert("a", Event("x"), delay="1m", owner="o")
    kit.queue.upsert("b", Event("y"), delay="2m")
    assert kit.events() == []
    both = kit.advance("2m")
    assert kit.events() == both
    assert kit.events("x") == kit.events(key="a") == kit.events(owner="o") == both[:1]
    assert kit.events("x", key="b") == []


def test_what_events_has_shown_is_returned_all_the_same(kit):
    kit.queue.publish(EVENT, key="p")
    assert len(kit.events()) == 1
    assert [event.key for event in kit.advance("1m")] == ["p"]


def test_what_is_no_event_is_kept_apart(kit):
    kit.queue.publish(EVENT, key="p")
    stream = kit.namespace.tags[0] + b":s:events"
    kit._clients.connections.open().xadd(stream, {"what": "ever"})
    assert len(kit.advance("1m")) == 1
    (broken,) = kit.unreadable
    assert broken.why == "it has no field 'id'"


def test_pending_is_in_the_order_of_time(kit):
    kit.queue.upsert("r:late", EVENT, delay="2h")
    kit.queue.upsert("r:soon", EVENT, delay="1h", owner="o")
    kit.queue.upsert("other", EVENT, delay="1m")
    kit.queue.pause("r:late")
    assert [schedule.key for schedule in kit.pending()] == ["other", "r:soon", "r:late"]
    assert [schedule.key for schedule in kit.pending("r:")] == ["r:soon", "r:late"]
    assert [schedule.key for schedule in kit.pending(owner="o")] == ["r:soon"]


def test_its_clients_are_real_ones(kit):
    assert kit.queue.cancel("a").outcome is Outcome.NOT_PENDING
    assert kit.url is None
    assert repr(kit) == "<TestQueue on fakeredis: 2026-01-01 00:00:00Z, 0 events>"
    with pytest.raises(InvalidSchedule, match="tenant"):
        TestQueue(tenant="a b")
    with pytest.raises(InvalidSchedule, match="partitions"):
        TestQueue(partitions=0)


def test_an_async_client_that_nobody_closed_is_quiet():
    with TestQueue() as kit:
        asyncio.run(use(kit))
    kit.close()  # twice is once
    del kit
    gc.collect()  # a warning would fail this test


def test_in_a_closed_kit_no_time_passes():
    with TestQueue() as kit:
        kit.queue.upsert("a", EVENT, delay="1m")
    with pytest.raises(TimerqError, match="closed"):
        kit.advance("1m")


async def use(kit: TestQueue) -> None:
    assert kit.aqueue is kit.aqueue
    await kit.aqueue.upsert("a", EVENT, delay="1m")
    assert len(await kit.aadvance("1m")) == 1
