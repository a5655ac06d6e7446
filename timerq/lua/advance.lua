-- Tells the scripts what only a calendar knows: what becomes of an occurrence, and the instants that follow.
--
-- KEYS meta    hash   – the partition
-- KEYS heads   zset   – the tenants by their earliest instant
-- KEYS keys    zset   – every id
-- KEYS held    zset   – ids that could not be fired
-- KEYS streams zset   – the names of the streams
-- KEYS wake    stream – for the sleeping dispatchers
-- KEYS log     stream – the exceptions
-- KEYS fired_new list – of which ids events may be out, and no record tells
-- KEYS never   none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- KEYS item*   hash   – the records
-- ARGV layout  text   – what the dispatcher believes
-- ARGV schema  text   – what the dispatcher believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV item*          – each item's word, version, n, at, new at, following (0: none), missed, skipped, why
--
-- word: refill – set `following` behind `at`; claimed – leave out `skipped` occurrences, count `missed`, set the new at (0:
-- it has ended) and `following`, arm; hold – set aside
--
-- RETURN a line an item:
--   ADVANCED
--   STALE          – version, n, at or state are no longer those that were handed over; nothing was done
--   BROKEN reason  – the stored record cannot be touched
--
-- Version, n and at fence it, so a dispatcher that wakes up late, or a command sent twice, changes nothing.

local before = earliest()
local lines = {head_line}
local prefix = #PREFIX + 5
local touched = {}
local skipped_count = 0

local function hold(record, id, due, version, at, following, n, why)
  local tries = redis.call('ZINCRBY', k_held, 1, id)
  redis.call('HSET', record, 's', state_text('h', version, at, following, n), 'e', string.sub(why, 1, 200))
  redis.call('ZADD', due, try_again_at(tonumber(tries)), id)
  log('held', id, version, why)
  if tonumber(tries) == 1 then report('schedule.held', id, version, 'h' .. int(now_ms), at, n, why) end
end

local function advance(record, id, word, version, n, at, new_at, following, missed, skipped, why)
  local state, old_version, old_at, old_following, old_n = parse_state(redis.call('HGET', record, 's') or '')
  if old_version ~= version or old_n ~= n or old_at ~= at then return 'STALE' end
  if word == 'refill' then
    -- nor is one that was set aside armed by this: it is looked at before its time, and then asked about
    if old_following ~= '-' or state == 'h' then return 'STALE' end
    redis.call('HSET', record, 's', state_text(state, version, at, following, n))
    return 'ADVANCED'
  end
  -- one that cannot be asked is set aside at once, not only when it is due: somebody may mend it in time
  local open = state == 'c' or (word == 'hold' and state == 'a' and old_following == '-')
  if not open then return 'STALE' end
  local tenant = string.match(id, '^[^%z]*')
  local due = PREFIX .. 'due:' .. tenant
  touched[tenant] = due
  if word == 'hold' then
    hold(record, id, due, version, at, old_following, n, why)
    return 'ADVANCED'
  end
  if skipped ~= '0' then
    log('skipped', id, version, skipped .. ' ' .. why)
    skipped_count = skipped_count + tonumber(skipped)
    local total, total_missed, total_skipped = read_totals(redis.call('HGET', record, 't'))
    redis.call('HSET', record, 't', int(total) .. ' ' .. int(total_missed) .. ' ' .. int(total_skipped + tonumber(skipped)))
  end
  if new_at == '0' then
    local kept = redis.call('HMGET', record, 't', 'w')
    note_fired({id})
    forget(id, due)
    local why = string.find(kept[2] or '', '^%d') and 'until ' or 'last '
    log('ended', id, version, why .. read_totals(kept[1] or nil))
    return 'ADVANCED'
  end
  redis.call('HSET', record, 's', state_text('a', version, new_at, following, n))
  -- one that is still to come is asked about again should it be late too
  if tonumber(new_at) <= now_ms then
    redis.call('HSET', record, 'm', missed)
  else
    redis.call('HDEL', record, 'm')
  end
  if redis.call('ZREM', k_held, id) == 1 then redis.call('HDEL', record, 'e') end
  redis.call('ZADD', due, new_at, id)
  return 'ADVANCED'
end

local k = first_item_key
for a = first_item_arg, #ARGV, 9 do
  local record = KEYS[k]
  k = k + 1
  local fine, said = pcall(advance, record, string.sub(record, prefix), unpack(ARGV, a, a + 8))
  lines[#lines + 1] = fine and said or 'BROKEN ' .. reason(said)
end

if skipped_count > 0 then redis.call('HINCRBY', k_meta, 'skipped', skipped_count) end
for tenant, due in pairs(touched) do settle(tenant, due) end
wake_if_earlier(before)
return {table.concat(lines, '\n')}
