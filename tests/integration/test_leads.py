"""Which process leads which partition of an ordered group, and how leads go from one to another."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tests.support.consumers import Running, Seen
from timerq import Event, TimerQueue
from timerq.consumer import Consumer
from timerq.consumer.bell import Bell
from timerq.keys import reader

pytestmark = pytest.mark.one_server
GROUP = "g"


def leads(client: redis.Redis, queue: TimerQueue) -> list[str | None]:
    """Who leads each partition."""
    assert queue.namespace is not None
    found: Any = client.mget([reader(tag, b"events", GROUP.encode()) for tag in queue.namespace.tags])
    return [None if each is None else each.decode().split(" ")[0] for each in found]


def test_who_stops_gives_up_its_lead_before_it_closes_its_bell(
    queue: TimerQueue, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is slow to close holds nobody up."""
    close, led, seen = Bell.close, [], Seen()

    async def closing(bell: Bell) -> None:
        led.append(leads(redis_client, queue))
        await close(bell)

    monkeypatch.setattr(Bell, "close", closing)
    app = Consumer(queue, group=GROUP, ordered=True)
    app.on("t")(lambda event: seen.add(event.payload) and None)
    queue.publish(Event("t", 1), key="k")
    with Running(app):
        seen.wait(1)
        assert leads(redis_client, queue) != [None]
    assert led == [[None]]
