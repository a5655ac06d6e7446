-- Tells the scripts what only a calendar knows: the instants that follow.
--
-- KEYS meta    hash   – the partition
-- KEYS heads   zset   – the tenants by their earliest instant
-- KEYS held    zset   – ids that could not be fired
-- KEYS wake    stream – for the sleeping dispatchers
-- KEYS log     stream – the exceptions
-- KEYS never   none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- KEYS item*   hash   – the records
-- ARGV layout  text   – what the dispatcher believes
-- ARGV schema  text   – what the dispatcher believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV item*          – each item's word, version, n, at, following (0: none), missed, reason
--
-- word: refill – set `following` behind `at`; claimed – count `missed`, set `at` and `following`, arm; hold – set aside
--
-- RETURN a line an item:
--   ADVANCED
--   STALE          – version, n or state are no longer those that were handed over; nothing was done
--   BROKEN reason  – the stored record cannot be touched
--
-- Version and n fence it, so a dispatcher that wakes up late, or a command sent twice, changes nothing.

local before = earliest()
local lines = {head_line}
local prefix = #PREFIX + 5
local touched = {}

local function advance(record, id, word, version, n, at, following, missed, why)
  local state, old_version, old_at, old_following, old_n = parse_state(redis.call('HGET', record, 's') or '')
  if old_version ~= version or old_n ~= n then return 'STALE' end
  if word == 'refill' then
    if old_at ~= at or old_following ~= '-' then return 'STALE' end
    redis.call('HSET', record, 's', state_text(state, version, at, following, n))
    return 'ADVANCED'
  end
  if state ~= 'c' then return 'STALE' end
  local tenant = string.match(id, '^[^%z]*')
  local due = PREFIX .. 'due:' .. tenant
  touched[tenant] = due
  if word == 'hold' then
    local tries = redis.call('ZINCRBY', k_held, 1, id)
    redis.call('HSET', record, 's', state_text('h', version, old_at, old_following, n), 'e', string.sub(why, 1, 60))
    redis.call('ZADD', due, int(now_ms + math.min(1000 * 2 ^ math.min(tonumber(tries) - 1, 10), 32000)), id)
    log('held', id, version, why)
    return 'ADVANCED'
  end
  redis.call('HSET', record, 's', state_text('a', version, at, following, n), 'm', missed)
  if redis.call('ZREM', k_held, id) == 1 then redis.call('HDEL', record, 'e') end
  redis.call('ZADD', due, at, id)
  return 'ADVANCED'
end

local k = first_item_key
for a = first_item_arg, #ARGV, 7 do
  local record = KEYS[k]
  k = k + 1
  local fine, said = pcall(advance, record, string.sub(record, prefix), unpack(ARGV, a, a + 6))
  lines[#lines + 1] = fine and said or 'BROKEN ' .. reason(said)
end

for tenant, due in pairs(touched) do settle(tenant, due) end
wake_if_earlier(before)
return {table.concat(lines, '\n')}
