"""What went wrong in other timer queues, tried on consumers and owners; each test carries the number of its case.

The other half of each is in test_field_failures.py or test_verbs.py. Cases of consumers alone: B61, B91 and B93 in
test_consumer.py, B92 in test_consumer_process.py, the consumers of B42, B51 and B54 in test_consumer_places.py and
test_consumer.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.support.consumers import Running, Seen
from tests.support.proxy import wait_for
from timerq import Consumer, Delivery, Event, TimerQueue, Upsert, Which, keys
from timerq.dispatcher import Dispatcher
from timerq.embedded import EmbeddedRedis
from timerq.testing import TestQueue

MakeRedis = Callable[..., EmbeddedRedis]


@pytest.mark.one_server
def test_b53_redis_is_stopped_and_started_under_a_consumer(make_redis: MakeRedis, tmp_path: Path) -> None:
    seen = Seen()
    server = make_redis(tmp_path, appendfsync="always")
    app = Consumer(server.url, group="g")
    app.on("t")(lambda event: seen.add(event) and None)
    with TimerQueue.connect(server.url) as queue, Dispatcher(server.url), Running(app):
        queue.upsert("k", Event("t"), every=200)
        seen.wait(3)
        server.stop()
        wait_for(lambda: bool(app.failing), "it says that it is unwell")
        time.sleep(3)
        assert app.failing
        before = len(seen.all)
        server.start()
        seen.wait(before + 5)
        wait_for(lambda: not app.failing, "it is well")
        queue.cancel("k")
    handled: list[Delivery] = seen.all
    assert sorted({event.n for event in handled}) == list(range(1, handled[-1].n + 1))
    slots = [
        event.at_ms + i * 200 for event in {e.n: e for e in handled}.values() for i in range(event.missed + 1)
    ]
    assert sorted(slots) == [slots[0] + i * 200 for i in range(len(slots))]


@pytest.mark.one_server
def test_b85_nothing_is_left_of_what_was_handled(redis_url: str, redis_client: redis.Redis) -> None:
    with TestQueue(redis_url) as kit:
        app = Consumer(kit.aqueue, group="g")

        @app.on("good")
        def good(event: Delivery) -> None: ...

        @app.on("bad", attempts=2, backoff="1s")
        def bad(event: Delivery) -> None:
            raise ValueError("never")

        tag = kit.namespace.tags[0]

        def left() -> Counter[bytes]:
            """Keys by their kinds; what is known for a while of owners that are gone, and who asked, aside."""
            kinds = (key[len(tag) + 1 :].partition(b":")[0] for key in redis_client.scan_iter(tag + b":*"))
            return Counter(kind for kind in kinds if kind not in (b"floor", b"req"))

        def round_of(count: int) -> None:
            with kit.queue.owner("o") as timers:
                things = [
                    Upsert(f"k{i}", Event("bad" if i % 10 == 0 else "good"), delay=i) for i in range(count)
                ]
                timers.upsert_many(things)
                kit.queue.upsert_many(things)
                timers.start_fixed_delay("again", Event("good"), "1s", ack_group="g")
                kit.advance("10s", app)
                timers.upsert_many(things)
            assert kit.queue.dead_discard("g", Which()) == count // 10 * 2
            kit.advance("10s", app)

        round_of(10)
        before = left()
        round_of(200)
        assert left() == before
        assert redis_client.hlen(keys.hold(tag, b"events", b"g")) == 0
        assert kit.queue.count() == 0


@pytest.mark.parametrize("wall", ["u10", "u1:x", "u", None, "another tenant's"])
def test_b95_destroying_an_owner_touches_no_other(redis_url: str, wall: str | None) -> None:
    """Neither its timers, nor those of its events that nobody has handled yet."""
    seen = Seen()
    with TestQueue(redis_url) as kit:
        app = Consumer(kit.aqueue, group="g")
        app.on("t")(lambda event: seen.add((event.tenant, event.owner)) and None)
        stranger = wall == "another tenant's"
        other = "u1" if stranger else wall
        with kit.connect(tenant="b") if stranger else kit.connect() as theirs:
            for queue, owner in ((kit.queue, "u1"), (theirs, other)):
                queue.upsert("u1", Event("t"), delay=0, owner=owner)
                queue.upsert("later", Event("t"), delay="1s", owner=owner)
            assert len(kit.advance()) == 2
            assert kit.queue.owner("u1").destroy() == 1
            kit.advance("2s", app)
            assert seen.all == [(theirs.tenant, other)] * 2
            assert app.counts.stale == 1
