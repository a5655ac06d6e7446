"""What a consumer costs: a backlog through one process, the order of lanes, and how late a handler starts."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from functools import partial

import redis

from scripts.benchmarks import bare
from scripts.benchmarks.firing import at, stream_of
from scripts.benchmarks.rig import NAMESPACE, Rig, answer, beside, dispatchers, take_turns, wait_until
from scripts.benchmarks.table import Row, compare, ratio_at_least, ratio_at_most
from timerq import TimerQueue, keys

PUBLISH = """
for i = 2, #ARGV do
  redis.call('XADD', KEYS[1], '*', 'id', ARGV[1] .. '-1764494400000000-' .. i - 1, 'type', 'order.reminder',
    'key', ARGV[i], 'tenant', 'default', 'owner', '', 'at', '1764494400000', 'fired_ms', '1764494400000',
    'n', '1', 'version', '1764494400000000', 'missed', '0', 'payload', KEYS[2], 'content_type', 'application/msgpack',
    'correlation', '{}')
end
return 'OK'
"""
"""Events as fire.lua publishes them."""


def publish(client: redis.Redis, queue: TimerQueue, count: int, lanes: int) -> None:
    """An unread backlog, the lanes in turns."""
    client.flushall()
    namespace = queue.init()
    sha = bare.load(client, PUBLISH)
    parted: list[list[bytes]] = [[] for _ in namespace.tags]
    for number in range(count):
        lane = bare.key(number % lanes).encode()
        parted[namespace.partition_of(bare.TENANT, lane)].append(lane)
    for partition, (tag, found) in enumerate(zip(namespace.tags, parted, strict=True)):
        stream = keys.stream(tag, b"events")
        for start in range(0, len(found), 1000):
            client.evalsha(sha, 2, stream, bare.PAYLOAD_BYTES, partition, *found[start : start + 1000])


def consume(rig: Rig) -> list[Row]:
    """A backlog that waits, then the reader: the rate between 5 % and 95 % of it."""
    count = rig.choose(60_000, 20_000)
    with rig.redis() as (url, client), TimerQueue.connect(url, namespace=NAMESPACE) as queue:
        stream = stream_of(queue).decode()

        def of(name: str, *more: object) -> float:
            publish(client, queue, count, count)
            with beside(name, url, count, *more) as child:
                return float(answer(child))

        sides = {"ours": partial(of, "handle", ""), "bare": partial(of, "ack", stream)}
        found = take_turns(rig.choose(9, 3), sides)
    what = f"handling {count:,} in one consumer (bare: reads 100, acks 100)"
    return [compare(what, "/s", found["ours"], found["bare"], ratio_at_least(0.35))]


def ordered(rig: Rig) -> list[Row]:
    """The same with four partitions and a thousand lanes, ordered and not."""
    count = rig.choose(60_000, 20_000)
    with rig.redis() as (url, client), TimerQueue.connect(url, namespace=NAMESPACE) as queue:

        def of(how: str) -> float:
            client.flushall()
            queue.init(partitions=4)
            publish(client, queue, count, 1000)
            with beside("handle", url, count, how) as child:
                return float(answer(child))

        found = take_turns(rig.choose(9, 3), {"ours": partial(of, "ordered"), "bare": partial(of, "")})
    what = "handling in order, 4 partitions, 1,000 lanes (beside: in no order)"
    return [compare(what, "/s", found["ours"], found["bare"], ratio_at_least(0.75))]


def start(rig: Rig) -> list[Row]:
    """A dispatcher and a consumer; instants of timerq and of the bare loops alternate."""
    count = rig.choose(1000, 150)
    with ExitStack() as stack:
        url, client = stack.enter_context(rig.redis())
        queue = stack.enter_context(TimerQueue.connect(url, namespace=NAMESPACE))
        stream_of(queue)
        stack.enter_context(dispatchers(url))
        wait_until(lambda: len(queue.stats().dispatchers) == 1, "a dispatcher")
        client.xgroup_create(bare.STREAM, "bench", id="0", mkstream=True)
        consumer = stack.enter_context(beside("begin", url, count))
        blocked = stack.enter_context(beside("block", url, count))
        answer(consumer)
        answer(blocked)
        chance = random.Random(7)
        instants = [int(time.time() * 1000) + 2000]
        while len(instants) < 2 * count:
            instants.append(instants[-1] + chance.randint(6, 24))
        bell = stack.enter_context(beside("ring", url, given=instants[1::2]))
        answer(bell)
        queue.upsert_many(bare.upsert(number, due_ms) for number, due_ms in enumerate(instants[::2]))
        if time.time() * 1000 > instants[0]:
            raise RuntimeError("the machine is too slow to arm the instants in time")
        ours, theirs = answer(consumer), answer(blocked)
    what = "due to handler"
    return [at(what, share, ours, theirs, "quiet", ratio_at_most(2)) for share in (0.5, 0.99)]
