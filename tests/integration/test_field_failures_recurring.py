"""What went wrong in other schedulers' calendars, tried here; each test carries the number of its case.

See test_field_failures.py.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import redis

from tests.support.events import Events, Stopwatch, server_ms
from tests.support.proxy import wait_for
from tests.support.worker import Worker
from timerq import Event, State, TimerQueue, keys

EVENT = Event("t")


def record_of(queue: TimerQueue, key: str) -> bytes:
    assert queue.namespace is not None
    return queue.namespace.tags[0] + b":sch:default\0" + key.encode() + b"\0"


def make_due(client: redis.Redis, queue: TimerQueue, key: str) -> int:
    """The schedule of ``key`` is due now, by hand, and what follows is not known; the instant, epoch ms."""
    assert queue.namespace is not None
    tag, now_ms = queue.namespace.tags[0], server_ms(client)
    record = record_of(queue, key)
    stored: Any = client.hget(record, "s")
    state, version, _, _, n = stored.split(b" ")
    client.hset(record, "s", b" ".join([state, version, b"%d" % now_ms, b"-", n]))
    client.zadd(tag + b":due:default", {b"default\0" + key.encode() + b"\0": now_ms})
    client.zadd(tag + b":heads", {"default": now_ms}, lt=True)
    return now_ms


def tries(queue: TimerQueue, client: redis.Redis, key: str) -> int:
    """How often the log says that ``key`` was set aside."""
    assert queue.namespace is not None
    entries = client.xrange(queue.namespace.tags[0] + b":log")
    id = b"default\0" + key.encode() + b"\0"
    return sum(fields[b"id"] == id and fields[b"what"] == b"held" for _, fields in entries)


def since(events: Events, instant_ms: int, seconds: int) -> int:
    """How many occurrences of the good one were due in the ``seconds`` after an instant, once they have come."""
    end_ms = instant_ms + seconds * 1000
    found = events.wait(lambda seen: any(event.at_ms > end_ms for event in seen), key="g")
    return sum(1 + event.missed for event in found if instant_ms < event.at_ms <= end_ms)


SPOILT = {
    "b12": (b"x", b'{"cron":"0 9 * * *","tz":"UTC+3"}', "timezone"),
    "b30": (b"x", b'{"cron":"0 0 31 2 *"}', "cron"),
    "no definition": (b"x", b"rubbish", "unreadable definition"),
    "no policy": (b"o", b"rubbish", "unreadable policy"),
}
"""Field, what is written there by hand, and what the error says."""


@pytest.mark.one_server
def test_b12_b30_calendars_spoilt_by_hand_are_set_aside_and_the_others_go_on(
    redis_url: str, queue: TimerQueue, events: Events, redis_client: redis.Redis
) -> None:
    for key in SPOILT:
        queue.upsert(key, EVENT, cron="0 9 * * *", timezone="Europe/Paris")
    queue.upsert("g", EVENT, every="1s", anchor="clock")
    with Events(redis_url, queue.namespace, "errors") as errors, Worker(redis_url) as worker:
        events.wait(1, key="g")
        cpu_s = worker.cpu_s
        spoilt_ms = {}
        with Stopwatch() as watch:
            for key, (field, value, _) in SPOILT.items():
                redis_client.hset(record_of(queue, key), field, value)
                spoilt_ms[key] = make_due(redis_client, queue, key)
            assert since(events, spoilt_ms["b12"], 6) == 6
        assert worker.alive
        assert worker.cpu_s - cpu_s < 0.2 * watch.seconds
        assert {event.key for event in events.all} == {"g"}
        assert (queue.stats().held, queue.stats().schedules) == (4, 5)
        reports = {event.key: event for event in errors.wait(len(SPOILT))}
        assert len(errors.all) == len(reports)  # each is told once
        for key, (_, _, reason) in SPOILT.items():
            assert 2 <= tries(queue, redis_client, key) <= 4  # again after 1 s, 2 s and 4 s
            assert reports[key].type == "schedule.held"
            assert reason in reports[key].payload["reason"]
            assert reason in " ".join(entry.note for entry in queue.why(key).entries)
        for key in ("b12", "b30"):
            stored = queue.get(key)
            assert stored is not None
            assert (stored.state, (stored.held or "")[:15]) == (State.HELD, "InvalidSchedule")
        # mended by hand they go on
        for key in SPOILT:
            redis_client.hdel(record_of(queue, key), "o")
            redis_client.hset(record_of(queue, key), "x", '{"cron":"0 9 * * *","tz":"Europe/Paris"}')
        wait_for(lambda: queue.stats().held == 0, "they go on")
        for key in SPOILT:
            assert [event.at_ms for event in events.wait(1, key=key)] == [spoilt_ms[key]]
        assert len(errors.all) == len(SPOILT)
        assert worker.terminate() == 0
    events.check()


@pytest.mark.one_server
def test_b30_an_expression_spoilt_between_two_fires_publishes_what_was_known(
    redis_url: str, queue: TimerQueue, events: Events, redis_client: redis.Redis
) -> None:
    queue.upsert("x", EVENT, cron="* * * * * *")
    with Worker(redis_url) as worker:
        events.wait(2, key="x")
        redis_client.hset(record_of(queue, "x"), "x", '{"cron":"0 0 31 2 *"}')
        wait_for(lambda: queue.stats().held == 1, "it is held")
        stream = keys.stream(queue.init().tags[0], b"events")
        before = redis_client.xlen(stream)
        with contextlib.suppress(TimeoutError):
            events.wait(before + 2, timeout_s=3)
        assert redis_client.xlen(stream) <= before + 1
        assert queue.upsert("x", EVENT, cron="* * * * * *").outcome == "REPLACED"
        events.wait(before + 3, key="x")
        assert worker.alive
    events.check()
