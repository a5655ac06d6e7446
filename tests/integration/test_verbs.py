"""The verbs, on both clients and every server: what they answer, and what they leave on the streams."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import redis

from tests.support.both import NOW, Both, Time
from tests.support.proxy import Proxy, wait_for
from tests.support.servers import Server
from timerq import (
    AsyncTimerQueue,
    Event,
    InvalidSchedule,
    NamespaceMismatch,
    Outcome,
    QueueUnavailable,
    TimerQueue,
    Upsert,
    keys,
)
from timerq.commands.command import MAX_ITEMS
from timerq.commands.dispatch import Advance
from timerq.embedded import EmbeddedRedis
from timerq.errors import DurabilityUnavailable
from timerq.model import Timing
from timerq.timing import MAX_INSTANT_MS

EVENT = Event("t", {"n": 1})
MakeRedis = Callable[..., EmbeddedRedis]


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def queue(kind: str, any_url: str, clock: Time) -> Iterator[Both]:
    """Three partitions, a manual clock; each server and the Cluster."""
    with Both(kind, any_url, clock=clock) as both:
        both.init(partitions=3, clock="manual")
        yield both


# ------------------------------------------------------------------------------------------------ outcomes


def calendar(queue: Both, key: str) -> None:
    """A schedule due now and every 50 ms, whose calendar must be asked."""
    assert queue.upsert(key, EVENT, every=50, start=NOW, misfire="skip").outcome == "CREATED"


def bring(queue: Both, clock: Time, state: str) -> int:
    if state == "claimed":
        calendar(queue, "k")
        clock.now += 50
        queue.fire()
    else:
        queue.upsert("k", Event("t", stream="wrong"), delay=50)
        if state == "paused":
            queue.pause("k")
        elif state == "held":
            for tag in queue.namespace.tags:
                queue.client.set(keys.stream(tag, b"wrong"), "not a stream")
            clock.now += 50
            queue.fire()
    found = queue.get("k")
    assert found.state == state
    version: int = found.version
    return version


@pytest.mark.parametrize("state", ["armed", "paused", "held", "claimed"])
@pytest.mark.parametrize("mode", ["replace", "keep", "earliest", "latest", "if_version", "wrong version"])
def test_what_an_upsert_makes_of_each_state(queue: Both, clock: Time, state: str, mode: Any) -> None:
    old = bring(queue, clock, state)
    words: dict[str, Any] = {"if_version": old + ("wrong" in mode)} if "version" in mode else {"mode": mode}
    if state == "claimed" and mode in ("earliest", "latest"):
        with pytest.raises(InvalidSchedule) as caught:
            queue.upsert("k", EVENT, at=NOW + 60, **words)
        assert caught.value.field == "mode"
        return
    handle = queue.upsert("k", EVENT, at=NOW + 60, **words)
    if mode == "wrong version":
        assert (handle.outcome, handle.version, handle.schedule) == (Outcome.VERSION_MISMATCH, old, None)
    elif mode in ("keep", "earliest"):
        assert (handle.outcome, handle.version, handle.state) == (Outcome.KEPT, old, state)
    else:
        assert (handle.outcome, handle.replaced_version) == (Outcome.REPLACED, old)
        assert handle.state == ("paused" if state == "paused" else "armed")
    assert handle.outcome == "VERSION_MISMATCH" or handle.schedule.version == queue.get("k").version


def test_what_was_stored_is_what_is_read(queue: Both) -> None:
    event = Event("order.due", {"a": [1, "é"]}, stream="orders", correlation={"trace": "1"}, codec="json")
    made = queue.upsert("k", event, owner="o", every="5s", until=NOW + 60_000, limit=7)
    stored = queue.get("k", owner="o")
    assert stored == made.schedule
    assert (stored.event, stored.key, stored.owner, stored.tenant) == (event, "k", "o", "default")
    assert stored.timing == Timing("every", every_ms=5000, until_ms=NOW + 60_000, limit=7)
    assert (stored.at_ms, stored.n, stored.fired_total) == (NOW + 5000, 0, 0)
    assert queue.get("k") is None
    assert queue.get("k", owner="p") is None


def test_an_idempotency_key_answers_the_same_also_after_the_firing(queue: Both) -> None:
    first = queue.upsert("k", EVENT, delay=0, idempotency_key="x")
    queue.fire()
    again = queue.upsert("k", EVENT, delay=0, idempotency_key="x")
    assert (again.outcome, again.version, again.at_ms) == (Outcome.DUPLICATE, first.version, first.at_ms)
    queue.fire()
    assert len(queue.events()) == 1
    with pytest.raises(InvalidSchedule, match="another body") as caught:
        queue.upsert("k", EVENT, delay=1, idempotency_key="x")
    assert (caught.value.field, caught.value.got) == ("idempotency_key", "x")


def test_a_debounce_is_not_pushed_beyond_its_bound(queue: Both, clock: Time) -> None:
    for _ in range(5):
        assert queue.upsert("k", EVENT, delay="100ms", max_wait="250ms").at_ms <= NOW + 250
        clock.now += 60
    assert queue.get("k").at_ms == NOW + 250


def test_the_handle_of_a_lost_race_cancels_nothing(queue: Both) -> None:
    winner = queue.upsert("k", EVENT, delay="1h")
    loser = queue.upsert("k", EVENT, delay="2h", if_version=0)
    assert (loser.outcome, loser.version) == (Outcome.VERSION_MISMATCH, winner.version)
    assert queue.wait(loser.cancel()) is False
    assert not loser.is_cancelled
    assert queue.get("k").version == winner.version


def test_a_handle_cancels_its_own_version_and_no_other(queue: Both) -> None:
    first = queue.upsert("k", EVENT, delay=50)
    second = queue.upsert("k", EVENT, delay=60)
    assert queue.wait(first.cancel()) is False
    assert (first.is_cancelled, second.is_cancelled) == (False, False)
    assert queue.wait(second.cancel()) is True
    assert second.is_cancelled
    assert queue.wait(second.cancel()) is False
    assert second.is_cancelled
    assert queue.get("k") is None
    fired = queue.upsert("k", EVENT, delay=0)
    queue.fire()
    assert queue.wait(fired.cancel()) is False
    assert not fired.is_cancelled


def test_pause_resume_trigger_publish(queue: Both, clock: Time) -> None:
    made = queue.upsert("k", EVENT, delay=10)
    assert queue.pause("k", if_version=made.version).outcome == "PAUSED"
    assert queue.pause("k").outcome == "UNCHANGED"
    triggered = queue.trigger("k")
    clock.now += 20
    queue.fire()
    assert [event["id"].decode() for event in queue.events()] == [triggered.event_id]
    assert queue.resume("k").outcome == "RESUMED"
    queue.fire()
    assert len(queue.events()) == 2
    for verb in (queue.pause, queue.resume, queue.trigger, queue.cancel):
        change = verb("k")
        assert (change.outcome, bool(change)) == (Outcome.NOT_PENDING, False)
        assert verb("k", if_version=5).outcome == "VERSION_MISMATCH"
    published = queue.publish(Event("by.hand"), key="k")
    assert published.outcome == "PUBLISHED"
    assert queue.events()[-1]["id"].decode() == published.event_id
    queue.upsert("k", EVENT, delay=10)
    assert queue.trigger("k", consume=True).outcome == "TRIGGERED"
    assert queue.get("k") is None
    queue.upsert("k", EVENT, every=10)
    with pytest.raises(InvalidSchedule) as caught:
        queue.trigger("k", consume=True)
    assert caught.value.field == "consume"


def test_a_stream_that_is_none_is_told_and_writes_nothing(queue: Both) -> None:
    for tag in queue.namespace.tags:
        queue.client.set(keys.stream(tag, b"wrong"), "not a stream")
    queue.upsert("k", Event("t", stream="wrong"), delay=10)
    for act in (
        lambda: queue.trigger("k"),
        lambda: queue.trigger("k", consume=True),
        lambda: queue.publish(Event("t", stream="wrong"), key="k"),
    ):
        with pytest.raises(QueueUnavailable, match="WRONGTYPE"):
            act()
    assert queue.get("k").state == "armed"


# ------------------------------------------------------------------------------------------------ many


def test_upsert_many_tells_each_its_own_and_in_order(queue: Both) -> None:
    queue.upsert("old", EVENT, every=5)
    items: list[Any] = [
        Upsert("a", EVENT, delay=5),
        {"key": "b", "event": {"type": "t", "payload": 1}, "every": "5s"},
        {"key": "bad", "event": {"type": "t"}, "delay": "soon"},
        {"key": "worse"},
        "worst",
        Upsert("old", EVENT, every=5),
        Upsert("old", EVENT, every=5, until=NOW + 1, restart=True),
        Upsert("a", EVENT, delay=6, mode="keep"),
        Upsert("", EVENT, delay=6),
        Upsert("c", EVENT, delay=6, owner="o", if_version=3),
    ]
    results = queue.upsert_many(iter(items))
    assert [getattr(r, "field", None) or str(r.outcome) for r in results] == [
        "CREATED", "CREATED", "delay", "event", "item", "UNCHANGED", "until", "KEPT", "key", "VERSION_MISMATCH",
    ]  # fmt: skip
    assert queue.count() == 3
    assert queue.wait(results[0].cancel()) is True
    assert queue.upsert_many([]) == []


def test_thousands_go_in_bounded_scripts_and_keep_their_order(queue: Both) -> None:
    count = 7 * MAX_ITEMS + 13
    results = queue.upsert_many({"key": f"k{i}", "event": EVENT, "delay": 1000 + i} for i in range(count))
    assert [(r.key, str(r.outcome), r.at_ms) for r in results] == [
        (f"k{i}", "CREATED", NOW + 1000 + i) for i in range(count)
    ]
    assert queue.count() == count
    changes = queue.cancel_many([f"k{i}" for i in range(-1, count)])
    assert [str(change.outcome) for change in changes] == ["NOT_PENDING", *["CANCELLED"] * count]
    assert [change.key for change in changes] == [f"k{i}" for i in range(-1, count)]
    assert queue.count() == 0


def test_large_ones_are_split_by_bytes(queue: Both) -> None:
    results = queue.upsert_many(Upsert(f"k{i}", Event("t", "x" * 60_000), delay=5) for i in range(40))
    assert {str(result.outcome) for result in results} == {"CREATED"}
    kept = queue.upsert_many(Upsert(f"k{i}", EVENT, delay=5, mode="keep") for i in range(40))
    assert [(str(r.outcome), len(r.schedule.event.payload)) for r in kept] == [("KEPT", 60_000)] * 40


def test_a_source_that_raises_is_heard_after_what_came_before_it(queue: Both) -> None:
    def source() -> Iterator[Upsert]:
        yield Upsert("a", EVENT, delay=5)
        raise RuntimeError("the file ends here")

    with pytest.raises(RuntimeError, match="the file ends here"):
        queue.upsert_many(source())


def test_sweeps_count_what_they_took(queue: Both) -> None:
    queue.upsert_many(Upsert(f"a{i}", EVENT, delay=5, owner=f"o{i % 2}") for i in range(450))
    queue.upsert_many(Upsert(f"b{i}", EVENT, delay=5) for i in range(450))
    assert queue.cancel_prefix("a1", owner="o1") == 56
    assert queue.cancel_owner("o1") == 169
    assert queue.cancel_prefix("b") == 450
    assert queue.cancel_prefix("") == 225
    assert queue.count() == 0


# ------------------------------------------------------------------------------------------------ listings


def test_b78_a_prefix_is_a_prefix_and_never_a_pattern(queue: Both) -> None:
    names = [
        "a*b",
        "axxb",
        "a[1]",
        "a1",
        "a?c",
        "abc",
        "a\\d",
        "ad",
        "tenant:1",
        "tenant:10",
        "a b",
        "é/🎉",
        "\n",
    ]
    queue.upsert_many(Upsert(name, EVENT, delay=5) for name in names)
    for prefix, expected in {
        "a*": ["a*b"], "a[1": ["a[1]"], "a?": ["a?c"], "a\\": ["a\\d"], "tenant:1": ["tenant:1", "tenant:10"],
        "tenant:10": ["tenant:10"], "a ": ["a b"], "é": ["é/🎉"], "\n": ["\n"], "*": [], "[": [],
    }.items():  # fmt: skip
        assert [schedule.key for schedule in queue.list(prefix)] == expected
        assert [schedule.key for schedule in queue.list_page(prefix).items] == expected
        assert queue.count(prefix) == len(expected)
        assert queue.cancel_prefix(prefix) == len(expected)
        queue.upsert_many(Upsert(name, EVENT, delay=5) for name in expected)


def test_b95_tenants_and_owners_are_walls(kind: str, any_url: str, clock: Time) -> None:
    with Both(kind, any_url, clock=clock, tenant="A") as a, Both(kind, any_url, clock=clock, tenant="B") as b:
        a.init(partitions=3, clock="manual")
        mine = a.upsert("k", Event("of.a"), delay=0)
        assert (b.get("k"), b.count(), b.list()) == (None, 0, [])
        assert b.cancel("k", if_version=mine.version).outcome == "VERSION_MISMATCH"
        assert (b.cancel("k").outcome, b.cancel_prefix("")) == ("NOT_PENDING", 0)
        assert b.trigger("k").outcome == "NOT_PENDING"
        b.upsert("k", Event("of.b"), delay=0)
        assert [schedule.event.type for schedule in b.list()] == ["of.b"]
        assert b.cancel("k").outcome == "CANCELLED"
        a.fire()
        assert [(event["tenant"], event["type"]) for event in a.events()] == [(b"A", b"of.a")]
        for owner in ("u1", "u10", "u1:x"):
            a.upsert("k", EVENT, owner=owner, delay=5)
            b.upsert("k", EVENT, owner=owner, delay=5)
        assert [schedule.owner for schedule in a.list(owner="u1")] == ["u1"]
        assert a.cancel_owner("u1") == 1
        assert [schedule.owner for schedule in a.list()] == ["u10", "u1:x"]
        assert b.count() == 3


def test_a_listing_by_due_time(queue: Both, clock: Time) -> None:
    queue.upsert_many(Upsert(f"k{i:03}", EVENT, at=NOW + i // 3) for i in range(450))
    queue.pause("k010")
    found = [schedule.key for schedule in queue.list(due_from=NOW + 2, due_to=NOW + 139)]
    assert found == [f"k{i:03}" for i in range(6, 420) if i != 10]
    assert [s.key for s in queue.list("k00", due_to=NOW + 100)] == [f"k00{i}" for i in range(10)]
    stats = queue.stats()
    assert (stats.schedules, stats.armed, stats.paused, stats.due, stats.lag_ms) == (450, 449, 1, 3, 0)
    clock.now += 5
    stats = queue.stats()
    assert (stats.due, stats.lag_ms) == (17, 5)
    queue.fire()
    stats = queue.stats()
    assert (stats.fired, stats.due, stats.streams) == (17, 0, {"events": 17})


# ------------------------------------------------------------------------------------------------ field failures


@pytest.mark.parametrize("codec", ["msgpack", "json"])
def test_b81_a_payload_is_deep_equal_every_time(queue: Both, clock: Time, codec: Any) -> None:
    payload = {"id": 130775545883395173, "l": [], "o": {}, "f": 1.0, "s": "a/b", "u": "é\u0000"}

    def same(value: Any) -> None:
        assert value == payload
        assert isinstance(value["f"], float)
        assert isinstance(value["l"], list)

    event = Event("t", payload, codec=codec)
    queue.upsert("k", Event("t", 5), delay=5)
    same(queue.upsert("k", event, delay=0).schedule.event.payload)  # replaced
    same(queue.get("k").event.payload)
    queue.fire()
    queue.upsert("k", event, every=10)
    for _ in range(2):
        clock.now += 10
        queue.fire()
        same(queue.get("k").event.payload)
    queue.trigger("k")
    raw = [event["payload"] for event in queue.events()]
    assert len(raw) == 4
    assert len(set(raw)) == 1
    if codec == "msgpack":
        same(msgpack.unpackb(raw[0]))
    else:
        assert raw[0].decode() == '{"id":130775545883395173,"l":[],"o":{},"f":1.0,"s":"a/b","u":"é\\u0000"}'


def test_b82_payloads_of_nothing_fire_once_and_stay_apart(queue: Both) -> None:
    payloads: dict[str, Any] = {"text": "", "map": {}, "list": [], "none": None, "bytes": b""}
    for name, payload in payloads.items():
        queue.upsert(name, Event("t", payload), delay=0)
    queue.upsert("missing", Event("t"), delay=0)
    for name, payload in {**payloads, "missing": None}.items():
        found = queue.get(name).event.payload
        assert found == payload
        assert type(found) is type(payload)
    queue.fire()
    events = {event["key"].decode(): event["payload"] for event in queue.events()}
    assert len(queue.events()) == len(events) == 6
    assert {name: msgpack.unpackb(data) for name, data in events.items()} == {**payloads, "missing": None}
    assert events["text"] != events["bytes"] != events["none"]


def test_b75_negative_ones_are_refused_and_zero_is_one_event(queue: Both) -> None:
    for words in ({"delay": -5}, {"at": "1969-12-31T23:59:59Z"}, {"at": -1}, {"every": 0}, {"every": -1}):
        with pytest.raises(InvalidSchedule):
            queue.upsert("k", EVENT, **words)
    assert queue.count() == 0
    assert queue.upsert("k", EVENT, delay=0).at_ms == NOW
    for _ in range(3):
        queue.fire()
    assert len(queue.events()) == 1
    assert queue.list() == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 1e999, True])
def test_b76_what_is_no_number_is_refused_and_nothing_is_stored(queue: Both, bad: Any) -> None:
    for words in ({"delay": bad}, {"every": bad}, {"at": bad}, {"every": 5, "initial_delay": bad}):
        with pytest.raises(InvalidSchedule) as caught:
            queue.upsert("k", EVENT, **words)
        assert caught.value.field in words
        (result,) = queue.upsert_many([{"key": "k", "event": EVENT, **words}])
        assert isinstance(result, InvalidSchedule)
    assert queue.count() == 0


def test_b34_the_last_second_of_9999_is_stored_exactly(queue: Both, clock: Time) -> None:
    made = queue.upsert("k", EVENT, at="9999-12-31T23:59:59Z")
    assert made.at_ms == queue.get("k").at_ms == 253_402_300_799_000
    assert made.schedule.at.isoformat() == "9999-12-31T23:59:59+00:00"
    queue.upsert("l", EVENT, at=MAX_INSTANT_MS)
    for words in ({"at": MAX_INSTANT_MS + 1}, {"delay": MAX_INSTANT_MS}, {"every": MAX_INSTANT_MS}):
        with pytest.raises(InvalidSchedule):
            queue.upsert("m", EVENT, **words)
    assert [schedule.key for schedule in queue.list(due_from=made.at_ms)] == ["k", "l"]
    clock.now = 253_402_300_799_000
    queue.fire()
    assert [event["at"] for event in queue.events()] == [b"253402300799000"]


def test_b85_nothing_is_left_of_what_has_gone(kind: str, redis_url: str, clock: Time) -> None:
    with Both(kind, redis_url, clock=clock) as queue:
        queue.init(clock="manual")

        def left() -> dict[str, int]:
            counts: dict[str, int] = {}
            for key in queue.client.scan_iter(count=1000):
                name = key.split(b":")[2].decode() if key.count(b":") > 1 else "meta"
                counts[name] = counts.get(name, 0) + 1
            for other in ("req", "s", "fired_new"):  # sessions, streams, and a list of what has fired
                counts.pop(other, None)
            return counts

        queue.upsert("warm", EVENT, delay=0)
        queue.fire()
        queue.upsert("warm", EVENT, delay=0)
        queue.cancel("warm")
        before = left()
        for owner in (None, "o"):
            queue.upsert_many(Upsert(f"k{i}", EVENT, delay=5, owner=owner) for i in range(1000))
            queue.cancel_many((f"k{i}" for i in range(1000)), owner=owner)
            queue.upsert_many(Upsert(f"k{i}", EVENT, delay=0, owner=owner) for i in range(1000))
            while any(fired.published for fired in queue.fire()):
                pass
            queue.upsert_many(Upsert(f"k{i}", EVENT, every=5, owner=owner) for i in range(10))
            assert queue.cancel_prefix("k", owner=owner) == 10
        # what tells that the events still on the stream are dead stays with them
        assert left() == before | {"floor": before["floor"] + 20}
        assert queue.stats().fired == 2001


def test_b55_scripts_that_redis_has_forgotten_surface_nowhere(queue: Both, clock: Time) -> None:
    def forget() -> None:
        cluster = isinstance(queue.client, redis.RedisCluster)
        nodes = (
            [node.redis_connection for node in queue.client.get_primaries()] if cluster else [queue.client]
        )
        for node in nodes:
            node.script_flush()

    queue.upsert("warm", EVENT, every=5)
    calendar(queue, "cal")
    many = [Upsert(f"m{i}", EVENT, delay=0) for i in range(9)]
    for act, expected in (
        (lambda: queue.upsert("k", EVENT, delay=0).outcome, "CREATED"),
        (lambda: [str(result.outcome) for result in queue.upsert_many(many)], ["CREATED"] * 9),
        (lambda: queue.get("k").key, "k"),
        (lambda: len(queue.list()), 12),
        (lambda: len(queue.list_page().items), 12),
        (lambda: len(queue.list(due_to=NOW)), 11),
        (lambda: queue.count(), 12),
        (lambda: queue.stats().schedules, 12),
        (lambda: queue.pause("k").outcome, "PAUSED"),
        (lambda: queue.resume("k").outcome, "RESUMED"),
        (lambda: queue.trigger("k").outcome, "TRIGGERED"),
        (lambda: queue.publish(EVENT, key="k").outcome, "PUBLISHED"),
        (lambda: queue.cancel("m1").outcome, "CANCELLED"),
        (lambda: [str(change.outcome) for change in queue.cancel_many(["m2", "m3"])], ["CANCELLED"] * 2),
        (lambda: queue.cancel_prefix("m4"), 1),
        (lambda: queue.init().partitions, 3),
    ):  # fmt: skip
        forget()
        assert act() == expected
    forget()
    fired = queue.fire()
    assert sum(each.published for each in fired) == 7
    (partition,) = [p for p, each in enumerate(fired) if each.handovers]
    forget()
    (handover,) = fired[partition].handovers
    assert queue.advance(partition, Advance(handover, NOW + 50, NOW + 100)) == ["ADVANCED"]


# ------------------------------------------------------------------------------------------------ namespaces


def test_the_first_to_open_a_namespace_makes_it(kind: str, any_url: str) -> None:
    with Both(kind, any_url) as queue:
        assert queue.real.namespace is None
        assert queue.upsert("k", EVENT, delay=1000).outcome == "CREATED"
        assert queue.namespace.partitions == 1
        with pytest.raises(NamespaceMismatch, match="1 partitions, not 3"):
            queue.init(partitions=3)
        with pytest.raises(NamespaceMismatch, match="another clock"):
            queue.init(clock="manual")


def test_a_manual_clock_is_refused_where_redis_tells_the_time(kind: str, any_url: str, clock: Time) -> None:
    with Both(kind, any_url) as queue, Both(kind, any_url, clock=clock) as other:
        queue.upsert("k", EVENT, delay=1000)
        with pytest.raises(NamespaceMismatch, match="nothing was written"):
            other.upsert("k", EVENT, delay=1)
        assert queue.get("k").at_ms > NOW


def test_an_emptied_redis_gets_its_namespace_back(kind: str, redis_url: str) -> None:
    with Both(kind, redis_url) as queue:
        queue.init(partitions=3, retention="1h")
        tags = queue.namespace.tags
        queue.client.flushall()
        results = queue.upsert_many(Upsert(f"k{i}", EVENT, delay=1000) for i in range(20))
        assert {str(result.outcome) for result in results} == {"CREATED"}
        assert queue.count() == 20
        assert queue.client.hget(tags[2] + b":meta", "retention_ms") == b"3600000"


# ------------------------------------------------------------------------------------------------ gathering


def script_calls(client: redis.Redis) -> int:
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


def test_calls_that_come_together_go_together_each_with_its_own_outcome(
    redis_url: str, redis_client: redis.Redis
) -> None:
    async def main() -> None:
        async with AsyncTimerQueue(redis_url) as queue:
            old = await queue.upsert("k7", EVENT, delay=60_000)
            before = script_calls(redis_client)

            async def one_of(i: int) -> str:
                try:
                    if i == 9:
                        return str((await queue.upsert("", EVENT, delay=1)).outcome)
                    if i == 8:
                        return str((await queue.upsert("k8", EVENT, every=5, until=6)).outcome)
                    words: dict[str, Any] = (
                        {"if_version": 5} if i == 3 else {"mode": "keep"} if i == 7 else {}
                    )
                    handle = await queue.upsert(f"k{i}", EVENT, delay=60_000, **words)
                    assert handle.key == f"k{i}"
                    return str(handle.outcome)
                except InvalidSchedule as error:
                    return error.field

            outcomes = await asyncio.gather(*map(one_of, range(64)))
            expected = ["CREATED"] * 64
            expected[3], expected[7], expected[8], expected[9] = "VERSION_MISMATCH", "KEPT", "until", "key"
            assert outcomes == expected
            assert script_calls(redis_client) - before <= 4
            assert (await queue.get("k7")).version == old.version
            kinds = [queue.pause(f"k{i}") if i % 2 else queue.cancel(f"k{i}") for i in range(10, 40)]
            said = [str(change.outcome) for change in await asyncio.gather(*kinds)]
            assert said == ["CANCELLED", "PAUSED"] * 15

    asyncio.run(main())


async def sent(proxy: Proxy) -> None:
    """Until a call has come to Redis; its answer does not come back before `Proxy.heal`."""
    async with asyncio.timeout(30):
        while not proxy.seen:
            await asyncio.sleep(0.005)


def test_who_gives_up_harms_no_other(proxy: Proxy) -> None:
    async def main() -> None:
        async with AsyncTimerQueue(proxy.url) as queue:
            await queue.init()
            proxy.cut("to_client")
            proxy.seen.clear()
            tasks = [asyncio.create_task(queue.upsert(f"k{i}", EVENT, delay=60_000)) for i in range(10)]
            await sent(proxy)
            for i in (0, 4, 9):
                tasks[i].cancel()
            await asyncio.sleep(0)
            proxy.heal()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            gone = [i for i, result in enumerate(results) if isinstance(result, asyncio.CancelledError)]
            assert gone == [0, 4, 9]
            assert {str(r.outcome) for r in results if not isinstance(r, BaseException)} == {"CREATED"}
            assert (await queue.upsert("k1", EVENT, delay=1)).outcome == "REPLACED"
            # what was given up was sent all the same: nobody said otherwise
            assert await queue.count() == 10

    asyncio.run(main())


def test_a_call_given_up_before_it_is_sent_is_not_made(proxy: Proxy) -> None:
    async def main() -> None:
        async with AsyncTimerQueue(proxy.url) as queue:
            await queue.init()
            proxy.cut("to_client")
            proxy.seen.clear()
            first = asyncio.create_task(queue.upsert("first", EVENT, delay=60_000))
            await sent(proxy)
            tasks = [asyncio.create_task(queue.upsert(f"k{i}", EVENT, delay=60_000)) for i in range(4)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            await asyncio.sleep(0)
            proxy.heal()
            results = await asyncio.gather(first, *tasks, return_exceptions=True)
            assert isinstance(results[2], asyncio.CancelledError)
            assert [schedule.key async for schedule in queue.list()] == ["first", "k0", "k2", "k3"]

    asyncio.run(main())


def test_who_is_told_to_stop_can_still_clean_up(proxy: Proxy) -> None:
    """asyncio.run cancels every task at its end: the one that sends too."""

    async def worker(queue: AsyncTimerQueue, key: str) -> str:
        try:
            await queue.upsert(key, EVENT, delay=60_000)
        except asyncio.CancelledError:
            pass
        return str((await queue.cancel("before")).outcome)

    async def main() -> None:
        async with AsyncTimerQueue(proxy.url) as queue:
            await queue.upsert("before", EVENT, delay=60_000)
            proxy.cut("to_client")
            proxy.seen.clear()
            workers = [asyncio.create_task(worker(queue, f"k{i}")) for i in range(8)]
            await sent(proxy)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)
            proxy.heal()
            said = await asyncio.wait_for(asyncio.gather(*workers), 30)
            assert sorted(said) == ["CANCELLED"] + ["NOT_PENDING"] * 7

    asyncio.run(main())


def test_a_fault_reaches_all_that_went_together_and_the_next_goes_on(make_redis: MakeRedis) -> None:
    server = make_redis(port=0)

    async def main() -> None:
        async with AsyncTimerQueue(server.url, retry=None) as queue:
            await queue.init()
            server.kill()
            results = await asyncio.gather(
                *[queue.upsert(f"k{i}", EVENT, delay=60_000) for i in range(8)], return_exceptions=True
            )
            assert {type(result) for result in results} == {QueueUnavailable}
            assert all(result.__cause__ is not None for result in results if isinstance(result, Exception))
            server.start()
            assert (await queue.upsert("k", EVENT, delay=60_000)).outcome == "CREATED"

    asyncio.run(main())


def test_a_wait_that_outlasts_the_connection_is_refused_before_anything_is_written(
    kind: str, redis_url: str
) -> None:
    with Both(kind, redis_url, socket_timeout=3) as queue:
        with pytest.raises(DurabilityUnavailable, match="socket_timeout"):
            queue.upsert("k", EVENT, delay=60_000, durable="replicas=1,timeout=4s")
        assert queue.count() == 0
        handle = queue.upsert("k", EVENT, delay=60_000, durable="replicas=1,timeout=50ms")
        assert (handle.outcome, handle.durable) == (Outcome.CREATED, "accepted")


@pytest.mark.parametrize("client", [TimerQueue, AsyncTimerQueue])
def test_replies_stay_bytes(client: Any) -> None:
    with pytest.raises(InvalidSchedule, match="decode_responses"):
        client.connect("redis://localhost:1", decode_responses=True)


def test_an_interrupted_caller_is_told_no_other_calls_answer(redis_url: str) -> None:
    """An exception from a signal's handler, at whatever instant: in a process of its own, for it could end it."""
    program = """
        import random, signal, sys, time
        from timerq import Event, Outcome, TimerQueue, Upsert
        class Interrupt(BaseException): pass
        def interrupt(*_): raise Interrupt
        signal.signal(signal.SIGALRM, interrupt)
        queue = TimerQueue(sys.argv[1])
        queue.init()
        event, n, interrupts, end = Event("t"), 0, 0, time.monotonic() + 1.5
        while time.monotonic() < end or interrupts <= 50:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.003))
                for _ in range(100):  # Python swallows one that is raised in a __del__
                    n += 1
                    if n % 3:
                        handles = [queue.upsert(f"k{n}", event, delay=60_000)]
                    else:
                        items = [Upsert(f"k{n}:{i}", event, delay=60_000, if_version=0) for i in range(30)]
                        handles = queue.upsert_many(items)
                    assert {h.outcome for h in handles} == {Outcome.CREATED}, handles
                    assert handles[0].key.split(":")[0] == f"k{n}"
            except Interrupt:
                interrupts += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        print("well")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), redis_url],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr[-2000:]


# ------------------------------------------------------------------------------------------------ forks


def test_a_forked_child_has_sessions_of_its_own(redis_url: str, redis_client: redis.Redis) -> None:
    program = """
        import os, sys
        from timerq import Event, TimerQueue
        queue = TimerQueue(sys.argv[1])
        queue.upsert("before", Event("t"), delay=60_000)
        child = os.fork()
        who = "child" if child == 0 else "parent"
        said = [str(queue.upsert(f"{who}{i}", Event("t"), delay=60_000).outcome) for i in range(200)]
        assert said == ["CREATED"] * 200, said
        if child == 0:
            queue.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert queue.count("child") == queue.count("parent") == 200
        print("fine")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), redis_url],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("fine\n", "", 0)
    sessions = [key for key in redis_client.scan_iter() if b":req:" in key]
    assert len(sessions) == 2


# ------------------------------------------------------------------------------------------------ durability


def changing_verbs(queue: Both, durable: str) -> list[str]:
    """Every changing verb once; what each says was reached."""
    said = [queue.upsert("k", EVENT, delay=60_000, durable=durable)]
    said += queue.upsert_many(
        [Upsert("a", EVENT, delay=60_000), Upsert("b", EVENT, delay=60_000)], durable=durable
    )
    said += [
        queue.pause("k", durable=durable),
        queue.resume("k", durable=durable),
        queue.trigger("k", durable=durable),
        queue.publish(EVENT, key="k", durable=durable),
        queue.cancel("k", durable=durable),
    ]
    said += queue.cancel_many(["a"], durable=durable)
    swept = [queue.cancel_prefix("b", durable=durable), queue.cancel_owner("o", durable=durable)]
    assert swept == [1, 0]
    said += swept
    return [each.durable for each in said]


def test_without_replicas_a_write_is_accepted_and_no_more(kind: str, redis_url: str) -> None:
    with Both(kind, redis_url) as queue:
        assert queue.upsert("k", EVENT, delay=60_000).durable == "accepted"
        assert queue.upsert("k", EVENT, delay=60_000, durable="replicas=1,timeout=1ms").durable == "accepted"
        assert set(changing_verbs(queue, "replicas=2,timeout=1ms")) == {"accepted"}


def test_a_replica_is_counted(kind: str, make_redis: MakeRedis) -> None:
    master = make_redis(port=0, config={"repl-diskless-sync-delay": "0"})
    replica = make_redis(port=0, config={"replicaof": f"127.0.0.1 {master.port}"})
    with redis.Redis.from_url(replica.url) as client:
        wait_for(
            lambda: client.info("replication").get("master_link_status") == "up", "the replica is in step"
        )
    with Both(kind, master.url) as queue:
        assert set(changing_verbs(queue, "replicas=1,timeout=4s")) == {"replicas=1"}
        assert (
            queue.upsert("k", EVENT, delay=60_000, durable="replicas=2,timeout=50ms").durable == "replicas=1"
        )
        with redis.Redis.from_url(replica.url) as client:
            assert client.hget(queue.namespace.tags[0] + b":sch:default\0k\0", "s") is not None


def test_fsync_is_told_or_refused_clearly(
    kind: str, make_redis: MakeRedis, redis_spec: Server, tmp_path: Path
) -> None:
    with Both(kind, make_redis(data_dir=tmp_path / "everysec").url) as queue:
        queue.init()
        if redis_spec.version >= (7, 2, 0):
            # such a server syncs once a second
            assert queue.upsert("k", EVENT, delay=60_000, durable="fsync,timeout=4s").durable == "fsync"
            assert queue.cancel("k", durable="fsync,timeout=1ms").durable in ("accepted", "fsync")
        else:
            with pytest.raises(DurabilityUnavailable, match=r"7\.2 or newer"):
                queue.upsert("k", EVENT, delay=60_000, durable="fsync")
            assert queue.count() == 0
    with Both(kind, make_redis(data_dir=tmp_path / "always", appendfsync="always").url) as queue:
        assert set(changing_verbs(queue, "fsync,timeout=4s")) == {"fsync"}


def test_fsync_without_a_file_is_refused_and_nothing_is_written(kind: str, redis_url: str) -> None:
    with Both(kind, redis_url) as queue:
        queue.upsert("k", EVENT, delay=60_000)
        for act in (
            lambda: queue.upsert("l", EVENT, delay=60_000, durable="fsync"),
            lambda: queue.upsert_many([Upsert("l", EVENT, delay=60_000)], durable="fsync"),
            lambda: queue.cancel("k", durable="fsync"),
            lambda: queue.publish(EVENT, key="k", durable="fsync"),
        ):
            with pytest.raises(DurabilityUnavailable, match="appendonly yes; nothing was written"):
                act()
        assert [schedule.key for schedule in queue.list()] == ["k"]
        assert queue.events() == []


# ------------------------------------------------------------------------------------------------ threads


def test_threads_share_one_queue(redis_url: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with TimerQueue(redis_url) as queue, ThreadPoolExecutor(8) as pool:
        queue.init(partitions=3)
        outcomes = list(pool.map(lambda i: queue.upsert(f"k{i}", EVENT, delay=60_000).outcome, range(400)))
        assert set(outcomes) == {Outcome.CREATED}
        assert queue.count() == 400
