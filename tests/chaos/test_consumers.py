"""Consumers that die, stand still, lose their Redis or are told to go, at every step between read and ack."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis

from tests.support.arena import Arena
from tests.support.consumers import Running, Seen
from tests.support.proxy import Proxy, Words, wait_for
from timerq import Event
from timerq.consumer import Consumer
from timerq.keys import reader, stream
from timerq.lua import SCRIPTS
from timerq.model import Delivery

pytestmark = pytest.mark.one_server
GROUP = "g"


@pytest.fixture
def arena(redis_url: str) -> Any:
    with Arena(redis_url) as arena:
        yield arena


def arm_and_fire(arena: Arena, key: str, event: Event, **words: Any) -> None:
    """One event of a schedule, on its stream when this returns."""
    arena.queue.upsert(key, event, delay=0, **words)
    wait_for(lambda: arena.fire().published == 1, f"{key} has fired")


# ------------------------------------------------------------------------------------------------ what has gone


def _cancel(arena: Arena) -> None:
    assert not arena.queue.cancel("first", owner="o")  # it has fired; what is left behind is a floor


def _trim(arena: Arena) -> None:
    key = stream(arena.namespace.tags[0], b"events")
    arena.client.xdel(key, arena.client.xrange(key)[0][0])


def _rearm(arena: Arena) -> None:
    arena.queue.upsert("first", Event("t", "later"), delay="1h", owner="o")


@pytest.mark.parametrize("gone", [_cancel, _trim, _rearm])
def test_a_lane_goes_on_when_what_was_to_be_tried_again_has_gone(
    arena: Arena, gone: Callable[[Arena], None]
) -> None:
    arm_and_fire(arena, "first", Event("t", "first"), owner="o")
    arm_and_fire(arena, "second", Event("t", "second"), owner="o")
    seen = Seen()
    failed = threading.Event()
    app = Consumer(arena.url, group=GROUP, ordered=True, drop_superseded=gone is _rearm)

    @app.on("t", backoff="1s", max_backoff="1s")
    async def handle(event: Delivery) -> None:
        seen.add((event.payload, event.attempt))
        if event.payload == "first":
            failed.set()
            raise ValueError("not now")

    with Running(app):
        assert failed.wait(10)
        gone(arena)
        seen.wait(lambda all: ("second", 1) in all)
    assert seen.all == [("first", 1), ("second", 1)]
    assert app.counts.stale + app.counts.gone == 1
    assert pending(arena.client, arena) == 0


def pending(client: redis.Redis, arena: Arena, group: str = GROUP) -> int:
    """How many entries a group has read and not settled."""
    found = 0
    for tag in arena.namespace.tags:
        infos = {info["name"]: info for info in client.xinfo_groups(stream(tag, b"events"))}
        found += infos[group.encode()]["pending"]
    return found


# ------------------------------------------------------------------------------------------------ lost and late answers


def is_receive(words: Words, *, page: bool) -> bool:
    """Whether a command is receive.lua's: for what is held already, or for what is new."""
    return len(words) > 4 and words[1] == SCRIPTS["receive"].sha.encode() and (b"0-0" in words[-3:]) == page


def test_what_is_settled_while_it_is_told_as_held_is_not_begun_again(
    proxy: Proxy, arena: Arena, redis_client: redis.Redis
) -> None:
    seen = Seen()
    goes_on = threading.Event()
    app = Consumer(proxy.url, group=GROUP)

    @app.on("t")
    def handle(event: Delivery) -> None:
        seen.add((event.payload, event.attempt))
        if event.payload == 1:
            assert goes_on.wait(30)

    with Running(app):
        arena.queue.publish(Event("t", 1), key="k1")
        seen.wait(1)
        lost = proxy.swallow_reply(partial(is_receive, page=False))
        told = proxy.hold_reply(partial(is_receive, page=True))
        arena.queue.publish(Event("t", 2), key="k2")
        lost.wait()
        told.wait()  # it says that both are held
        goes_on.set()
        wait_for(lambda: pending(redis_client, arena) == 1, "the first is settled")
        wait_for(lambda: app.counts.handled == 1, "and it is known")
        told.release()
        wait_for(lambda: app.counts.handled == 2, "the second is settled too")
    assert sorted(seen.all) == [(1, 1), (2, 1)]
    assert app.counts.lost == 0


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_lane_stands_for_what_is_to_be_tried_again_also_where_the_lead_changes_meanwhile(
    proxy: Proxy, arena: Arena, redis_client: redis.Redis, is_answered: bool
) -> None:
    seen = Seen()
    app = Consumer(proxy.url, group=GROUP, ordered=True)

    @app.on("t", backoff="1s", max_backoff="1s")
    async def handle(event: Delivery) -> None:
        seen.add((event.payload, event.attempt))
        if event.payload == 1 and event.attempt == 1:
            raise ValueError("not now")

    tag = arena.namespace.tags[0]
    with Running(app):
        settled = proxy.hold_reply(lambda words: words[1:2] == [SCRIPTS["settle"].sha.encode()])
        arena.queue.publish(Event("t", 1), key="k")
        settled.wait()  # it is to be tried again, and its consumer does not know yet that this is known
        if is_answered:
            settled.release()
            wait_for(lambda: app.counts.retried == 1, "it knows")
        redis_client.delete(reader(tag, b"events", GROUP.encode()))  # its lead has ended: it leads anew
        arena.queue.publish(Event("t", 2), key="k")
        arena.queue.publish(Event("t", 3), key="another")
        seen.wait(lambda all: (3, 1) in all)
        settled.release()
        seen.wait(4)
    assert [one for one in seen.all if one[0] != 3] == [(1, 1), (1, 2), (2, 1)]
