-- Pauses, resumes or triggers schedules of one tenant.
--
-- KEYS meta    hash   – the partition
-- KEYS req     string – the session's last request
-- KEYS heads   zset   – the tenants by their earliest instant
-- KEYS keys    zset   – every id
-- KEYS held    zset   – ids that could not be fired
-- KEYS streams zset   – the names of the streams
-- KEYS wake    stream – for the sleeping dispatchers
-- KEYS log     stream – the exceptions
-- KEYS due     zset   – the tenant's pending ids
-- KEYS never    none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- KEYS item*          – each item's record; where it has an owner, the owner's index
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV seq     number – this request's number in its session
-- ARGV tenant  text
-- ARGV item*          – each item's verb (pause, resume, trigger, consume) and if_version, or empty for any
--
-- RETURN a line an item:
--   PAUSED version at
--   RESUMED version at
--   UNCHANGED version at            – it was so already
--   TRIGGERED version event_id
--   NOT_PENDING
--   VERSION_MISMATCH version
--   INVALID consume                 – only a one-shot can be consumed
--   BROKEN reason                   – the record cannot be read, or the stream refuses
--   LATER                           – not looked at: too many bytes were published; ask again

local before = earliest()
local lines = {head_line}
local prefix = #PREFIX + 5
local published = 0
local request = nil

-- The error leaves pcall as text, so that one bad record is one bad line.
local function trigger(id, key, version, consume)
  local r = read_record(redis.call('HGETALL', PREFIX .. 'sch:' .. id))
  if consume and r.kind ~= 'o' then return 'INVALID consume' end
  request = (request or reserve_versions(#ARGV) - 1) + 1
  local event_id = meta[5] .. '-' .. version .. '-t' .. int(request)
  emit(r.stream, event_id, r.type, a_tenant, key, owner_of(id), int(now_ms), r.n, version, '0', r.p, r.content, r.c)
  published = published + #r.p + #(r.c or '')
  if consume then forget(id, k_due) end
  return 'TRIGGERED ' .. version .. ' ' .. event_id
end

local function edit(id, record, verb, if_version)
  local old = redis.call('HGET', record, 's')
  if not old and redis.call('EXISTS', record) == 0 then
    if if_version ~= '' and if_version ~= '0' then return 'VERSION_MISMATCH 0' end
    return 'NOT_PENDING'
  end
  local state, version, at = parse_state(old or '')
  if not state then error('unreadable record', 0) end
  if if_version ~= '' and if_version ~= version then return 'VERSION_MISMATCH ' .. version end
  if verb == 'trigger' or verb == 'consume' then
    return trigger(id, string.match(id, '%z([^%z]*)%z'), version, verb == 'consume')
  end
  if (verb == 'pause') == (state == 'p') then return 'UNCHANGED ' .. version .. ' ' .. at end
  redis.call('HSET', record, 's', (verb == 'pause' and 'p' or 'a') .. string.sub(old, 2))
  if verb == 'pause' then
    redis.call('HDEL', record, 'e')
    redis.call('ZREM', k_held, id)
    redis.call('ZREM', k_due, id)
    log('paused', id, version)
    return 'PAUSED ' .. version .. ' ' .. at
  end
  redis.call('ZADD', k_due, at, id)
  log('resumed', id, version)
  return 'RESUMED ' .. version .. ' ' .. at
end

local k = first_item_key
for a = first_item_arg, #ARGV, 2 do
  local record = KEYS[k]
  local id = string.sub(record, prefix)
  k = k + (string.byte(id, -1) == 0 and 1 or 2)
  local line = 'LATER'
  if published <= BYTES then
    local fine, said = pcall(edit, id, record, ARGV[a], ARGV[a + 1])
    line = fine and said or 'BROKEN ' .. reason(said)
  end
  lines[#lines + 1] = line
end

settle(a_tenant, k_due)
wake_if_earlier(before)
return remember({table.concat(lines, '\n')})
