"""What it costs to destroy an owner, beside the bare deletes of the same records and index entries."""

from __future__ import annotations

import time

import redis

from scripts.benchmarks import bare
from scripts.benchmarks.firing import held, slow_log
from scripts.benchmarks.rig import NAMESPACE, Rig, take_turns
from scripts.benchmarks.table import Row, compare, ratio_at_most
from timerq import Owner, TimerQueue, keys

OWNER = b"session-7"
BARE_OWN = "bare:own"

FILL = """
for i = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  local id = string.format(ARGV[1], i)
  redis.call('HSET', ARGV[4] .. id, 's', ARGV[5], 'd', ARGV[6], 'p', ARGV[7], 'p1', ARGV[8])
  redis.call('ZADD', KEYS[1], ARGV[9], id)
  redis.call('ZADD', KEYS[2], 0, id)
  redis.call('ZADD', KEYS[3], 0, id)
end
return 'OK'
"""
"""Writes many owned records of one definition, with their index entries."""

DELETE = """
local ids = redis.call('ZRANGE', KEYS[3], 0, ARGV[1] - 1)
for i = 1, #ids do redis.call('DEL', ARGV[2] .. ids[i]) end
if #ids > 0 then
  redis.call('ZREM', KEYS[1], unpack(ids))
  redis.call('ZREM', KEYS[2], unpack(ids))
  redis.call('ZREM', KEYS[3], unpack(ids))
end
return #ids
"""
"""The bare deletes: as many at a time, the record and three index entries each."""


def destroy(rig: Rig) -> list[Row]:
    """An owner of 100,000 timers."""
    count = rig.choose(100_000, 20_000)
    longest: list[list[int]] = []
    with rig.redis() as (url, client), TimerQueue.connect(url, namespace=NAMESPACE) as queue:
        client.config_set("slowlog-max-len", 10_000)

        def armed() -> Owner:
            client.flushall()
            (tag,) = queue.init().tags
            timers = queue.owner(OWNER.decode()).open()
            version = timers.incarnation
            own = keys.owner_index(tag, bare.TENANT, OWNER)
            fill(
                client,
                [keys.due(tag, bare.TENANT), keys.index(tag), own],
                keys.record(tag, b""),
                count,
                version,
            )
            client.zadd(keys.heads(tag), {bare.TENANT: tomorrow()})
            return timers

        def ours() -> float:
            timers = armed()
            start = time.perf_counter()
            swept = timers.destroy()
            took = time.perf_counter() - start
            assert swept == count
            return took * 1000

        def theirs() -> float:
            client.flushall()
            fill(client, [bare.DUE, bare.INDEX, BARE_OWN], b"t:", count, None)
            sha = bare.load(client, DELETE)
            start = time.perf_counter()
            while client.evalsha(sha, 3, bare.DUE, bare.INDEX, BARE_OWN, bare.BATCH, "t:"):
                pass
            return (time.perf_counter() - start) * 1000

        for _ in range(rig.choose(5, 3)):  # on its own: the slow log costs time
            timers = armed()
            with slow_log(client) as took:
                timers.destroy()
            longest.append(took)
        found = take_turns(rig.choose(9, 5), {"ours": ours, "bare": theirs})
    what = f"destroy of an owner with {count:,} timers"
    return [
        compare(what, "ms", found["ours"], found["bare"], ratio_at_most(1.5)),
        held("destroy script, 200 timers: longest", longest),
    ]


def tomorrow() -> int:
    return int((time.time() + 86_400) * 1000)


def fill(
    client: redis.Redis, index: list[bytes] | list[str], record: bytes, count: int, version: int | None
) -> None:
    """Records as `bare.words` has them, of ids that are the same on both sides."""
    sha = bare.load(client, FILL)
    due_ms = tomorrow()
    name = keys.identity(bare.TENANT, b"k:%020d", OWNER)
    state = f"a {version or 1764494400000000} {due_ms} - 0"
    payload = bare.PAYLOAD_BYTES
    for start in range(0, count, 1000):
        client.evalsha(
            *(sha, 3, *index, name, start, min(start + 1000, count) - 1, record),
            *(state, f"o events m {bare.TYPE}", payload[:64], payload[64:], due_ms),
        )
