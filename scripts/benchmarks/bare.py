"""The bare scripts: the Redis work of a step and nothing else: no checks, versions, memory of requests or owners.

Both sides store the same: an id of 31 bytes (tenant, key and two separators), a payload of 100 bytes, and a record of
the same fields and lengths, so that what differs is what timerq adds.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgpack
import redis

from timerq import Event, Upsert, keys

TENANT = b"default"
TYPE = "order.reminder"
PAYLOAD = "x" * 98
"""Encoded, 100 bytes."""
PAYLOAD_BYTES: bytes = msgpack.packb(PAYLOAD)

UPSERT = """
for i = 1, #ARGV, 6 do
  redis.call('HSET', 't:' .. ARGV[i], 's', ARGV[i + 2], 'd', ARGV[i + 3], 'p', ARGV[i + 4], 'p1', ARGV[i + 5])
  redis.call('ZADD', KEYS[1], ARGV[i + 1], ARGV[i])
  redis.call('ZADD', KEYS[2], 0, ARGV[i])
end
return 'OK'
"""

POP = """
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for i = 1, #ids do
  local id = ids[i]
  local p = redis.call('HMGET', 't:' .. id, 'p', 'p1')
  redis.call('XADD', KEYS[3], '*', 'id', id, 'type', 'order.reminder', 'key', id, 'tenant', 'default', 'owner', '',
    'at', ARGV[1], 'fired_ms', ARGV[1], 'n', '1', 'version', '1764494400000000', 'missed', '0',
    'payload', p[1] .. (p[2] or ''), 'content_type', 'application/msgpack', 'correlation', '{}')
  redis.call('DEL', 't:' .. id)
end
if #ids > 0 then
  redis.call('ZREM', KEYS[1], unpack(ids))
  redis.call('ZREM', KEYS[2], unpack(ids))
end
return #ids
"""

FILL = """
local flat = redis.call('HGETALL', KEYS[1])
for i = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  local id = string.format(ARGV[1], i)
  redis.call('HSET', ARGV[4] .. id, unpack(flat))
  redis.call('ZADD', KEYS[2], 0, id)
  redis.call('ZADD', KEYS[3], ARGV[5], id)
end
return 'OK'
"""
"""Copies the record KEYS[1] many times, with its index entries: a namespace is filled faster than by its own verbs."""

DUE, INDEX, STREAM = "bare:due", "bare:keys", "bare:events"
BATCH = 200


def key(number: int) -> str:
    """22 bytes: with the tenant and the separators, an id of 31."""
    return f"k:{number:020d}"


def upsert(number: int, due_ms: int, owner: str | None = None) -> Upsert:
    """The schedule that timerq stores."""
    return Upsert(key(number), Event(TYPE, PAYLOAD), at=due_ms, owner=owner)


def words(
    numbers: Sequence[int] | range, due_ms: int, payload: bytes = PAYLOAD_BYTES
) -> list[bytes | str | int]:
    """The same schedules as arguments of `UPSERT`."""
    definition = f"o events m {TYPE}"
    # a value of more than 64 bytes makes a hash twice as large, so timerq cuts payloads of up to 256 bytes
    first, second = (payload[:64], payload[64:]) if len(payload) <= 128 else (payload, b"")
    found: list[bytes | str | int] = []
    for number in numbers:
        state = f"a 1764494400000000 {due_ms} - 0"
        found += (
            keys.identity(TENANT, key(number).encode(), b""),
            due_ms,
            state,
            definition,
            first,
            second,
        )
    return found


def load(client: redis.Redis, script: str) -> str:
    """The script's digest, loaded."""
    return str(client.script_load(script))


def fill(client: redis.Redis, count: int, due_ms: int, payload: bytes = PAYLOAD_BYTES) -> None:
    """A bare backlog."""
    sha = load(client, UPSERT)
    for start in range(0, count, BATCH):
        numbers = range(start, min(count, start + BATCH))
        client.evalsha(sha, 2, DUE, INDEX, *words(numbers, due_ms, payload))
