"""Following a stream over every partition, on each server and on the Cluster."""

from __future__ import annotations

import threading
from itertools import islice
from typing import Any

import pytest

from timerq import Event, InvalidSchedule, QueueUnavailable, TimerQueue
from timerq.codec import MSGPACK
from timerq.commands.entries import read_entries
from timerq.tail import Published, Tail, Unreadable, read_event

FIELDS = {
    b"id": b"0-7-1",
    b"type": "fällig".encode(),
    b"key": b"k",
    b"tenant": b"default",
    b"owner": b"",
    b"at": b"1900000000000",
    b"fired_ms": b"1900000000001",
    b"n": b"1",
    b"version": b"7",
    b"missed": b"0",
    b"payload": b"\xc4\x02\x00\xff",
    b"content_type": MSGPACK.encode(),
    b"correlation": b'{"a":"b"}',
}


def test_an_entry_is_read_as_an_event() -> None:
    event = read_event(3, b"5-0", FIELDS, 9)
    assert isinstance(event, Published)
    assert (event.partition, event.entry, event.type, event.owner, event.payload) == (
        3,
        "5-0",
        "fällig",
        None,
        b"\x00\xff",
    )
    assert (event.at_ms, event.fired_ms, event.read_us, event.correlation) == (
        1900000000000,
        1900000000001,
        9,
        {"a": "b"},
    )


@pytest.mark.parametrize(
    ("id", "n", "more", "origin"),
    [
        (b"0-7-1", b"1", {}, "timing"),
        (b"0-7-t5", b"0", {}, "triggered"),
        (b"0-7-0", b"0", {}, "published"),
        (b"0-7-b1900000000000", b"0", {b"backfill": b"1"}, "backfilled"),
        (b"0-7-s1900000000000", b"0", {}, "report"),
        (b"0-7-h1900000000000", b"3", {}, "report"),
        (b"0-7-p1900000000000", b"3", {}, "report"),
        (b"0-7-f1900000000000", b"3", {}, "report"),
        (b"odd", b"0", {}, "timing"),
    ],
)
def test_an_event_tells_how_it_came(id: bytes, n: bytes, more: dict[bytes, bytes], origin: str) -> None:
    event = read_event(0, b"1-1", {**FIELDS, b"id": id, b"n": n, **more})
    assert isinstance(event, Published)
    assert (event.origin, event.backfill) == (origin, origin == "backfilled")


@pytest.mark.parametrize(
    "damage",
    [
        {b"id": None},
        {b"at": b"soon"},
        {b"key": b"\xff"},
        {b"payload": b"\xc1"},
        {b"payload": None},
        {b"content_type": b"text/plain"},
        {b"correlation": b"[]"},
    ],
)
def test_what_is_no_event_is_said_and_not_raised(damage: dict[bytes, bytes | None]) -> None:
    fields = {name: value for name, value in {**FIELDS, **damage}.items() if value is not None}
    event = read_event(0, b"1-1", fields)
    assert isinstance(event, Unreadable)
    assert event.why


@pytest.mark.parametrize(
    "reply",
    [
        [[b"s", [(b"1-0", {b"a": b"b"}), (b"2-0", {})]]],  # RESP2
        {b"s": [[(b"1-0", {b"a": b"b"}), (b"2-0", {})]]},  # RESP3, as redis-py nests it
        {b"s": [(b"1-0", {b"a": b"b"}), (b"2-0", None)]},
    ],
)
def test_replies_of_both_protocols(reply: Any) -> None:
    assert read_entries(reply) == [(b"s", [(b"1-0", {b"a": b"b"}), (b"2-0", {})])]


@pytest.mark.parametrize("reply", [None, [], {}])
def test_a_time_out_is_no_entries(reply: Any) -> None:
    assert read_entries(reply) == []


@pytest.mark.parametrize("protocol", [2, 3])
def test_everything_is_read_once_and_lanes_in_order(any_url: str, protocol: int) -> None:
    with TimerQueue.connect(any_url) as queue:
        namespace = queue.init(partitions=5)
        queue.publish(Event("t", "before"), key="k")
        with Tail(any_url, namespace, protocol=protocol) as tail:
            for i in range(200):
                queue.publish(Event("t", i), key=f"k{i % 20}")
            events = [event for event in islice(tail, 200) if isinstance(event, Published)]
        assert sorted(event.payload for event in events) == list(range(200))
        for lane in range(20):
            seen = [event.payload for event in events if event.key == f"k{lane}"]
            assert seen == sorted(seen)
        with Tail(any_url, namespace, from_start=True, follow=False, protocol=protocol) as tail:
            assert len(list(tail)) == 201
        with Tail(any_url, namespace, "other", follow=False) as tail:
            assert list(tail) == []


def test_closing_lets_go_of_who_waits(any_url: str) -> None:
    with TimerQueue.connect(any_url) as queue:
        tail = Tail(any_url, queue.init(partitions=2))
    seen: list[object] = []
    reader = threading.Thread(target=lambda: seen.extend(tail))
    reader.start()
    tail.close()
    reader.join(timeout=30)
    assert not reader.is_alive()
    assert seen == []


@pytest.mark.one_server
def test_a_redis_that_is_away_at_the_start_is_an_error(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        namespace = queue.init()
    with pytest.raises(QueueUnavailable):
        Tail("redis://127.0.0.1:1", namespace)
    with pytest.raises(InvalidSchedule, match="stream"):
        Tail(redis_url, namespace, "a b")
