"""What has come is taken the moment the bell rings: nothing of it is lost, whatever becomes of the answer."""

from __future__ import annotations

import pytest
import redis

from tests.support.consumers import Running, Seen
from tests.support.proxy import Proxy, wait_for
from timerq import Event, TimerQueue
from timerq.consumer import Consumer

pytestmark = pytest.mark.one_server

GROUP = "g"


def handled_by(app: Consumer) -> Seen:
    seen = Seen()
    app.on("t")(lambda event: seen.add(event.payload) and None)
    return seen


def wait_for_the_bell(client: redis.Redis) -> None:
    """Until a read stands open, the call that takes what comes behind it."""

    def stands() -> bool:
        return any(one["cmd"] == "xread" and int(one["qbuf"]) > 0 for one in client.client_list())

    wait_for(stands, "the bell's read stands open")


@pytest.mark.usefixtures("only_signals")
def test_a_handler_begins_with_nothing_more_to_ask(
    queue: TimerQueue, proxy: Proxy, redis_client: redis.Redis
) -> None:
    app = Consumer(proxy.url, group=GROUP)
    seen = handled_by(app)
    queue.init()
    with Running(app):
        wait_for_the_bell(redis_client)
        proxy.cut("to_server")
        queue.publish(Event("t", 1), key="k")
        seen.wait(1)
        proxy.heal()
        wait_for(lambda: app.counts.handled == 1, "it is acknowledged")
        queue.publish(Event("t", 2), key="k")
        seen.wait(2)
    assert seen.all == [1, 2]


def test_what_was_taken_and_did_not_arrive_is_asked_for(
    queue: TimerQueue, proxy: Proxy, redis_client: redis.Redis
) -> None:
    app = Consumer(proxy.url, group=GROUP)
    seen = handled_by(app)
    queue.init()
    lost = proxy.swallow_reply("XREAD")
    with Running(app):
        wait_for_the_bell(redis_client)
        queue.publish(Event("t", 1), key="k")
        seen.wait(1, timeout_s=25)  # not a lease of 30 s
        wait_for(lambda: app.counts.handled == 1, "it is acknowledged")
    assert lost.struck
    assert seen.all == [1]


def test_what_was_taken_while_it_stops_is_handed_back(
    queue: TimerQueue, proxy: Proxy, redis_client: redis.Redis
) -> None:
    first, second = Consumer(proxy.url, group=GROUP), Consumer(queue, group=GROUP)
    mine, others = handled_by(first), handled_by(second)
    queue.init()
    held = proxy.hold_reply("XREAD")
    with Running(first):
        wait_for_the_bell(redis_client)
        queue.publish(Event("t", 1), key="k")
        held.wait()
        first.request_stop()
    held.release()
    with Running(second):
        others.wait(1, timeout_s=25)  # not a lease of 30 s
        wait_for(lambda: second.counts.handled == 1, "it is acknowledged")
    assert (mine.all, others.all) == ([], [1])
    assert first.counts.handed_back == 1


def test_a_script_that_redis_has_forgotten_costs_a_round_trip_and_no_more(
    queue: TimerQueue, redis_client: redis.Redis
) -> None:
    app = Consumer(queue, group=GROUP)
    seen = handled_by(app)
    queue.init()
    with Running(app):
        wait_for_the_bell(redis_client)
        redis_client.script_flush()
        queue.publish(Event("t", 1), key="k")
        seen.wait(1)
        wait_for(lambda: app.counts.handled == 1, "it is acknowledged")
    assert seen.all == [1]
