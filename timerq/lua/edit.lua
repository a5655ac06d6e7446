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
-- KEYS fired_new list – of which ids events may be out, and no record tells
-- KEYS due     zset   – the tenant's pending ids
-- KEYS never   none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- KEYS item*          – each item's record; where it has an owner, the owner's index and floor
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV seq     number – this request's number in its session
-- ARGV tenant  text
-- ARGV item*          – each item's verb, if_version (empty for any), by, note, at, new at, following, skipped, and the owner
--                       handle's incarnation (or empty)
--
-- verb: pause; resume; skip – resume at the new at, the `skipped` occurrences from `at` on left out; trigger; consume
--
-- RETURN a line an item:
--   PAUSED version at
--   RESUMED version at
--   UNCHANGED version at            – it was so already
--   TRIGGERED version event_id
--   DROPPED version event_id        – the stream is full, and its rule drops what comes then; nothing else was done
--   FULL why                        – the stream is full, and its rule holds back what comes then: nothing was done
--   DUPLICATE version event_id      – it was triggered in this very second: this is the event
--   NOT_PENDING
--   OWNER_GONE floor                – the handle's owner was destroyed
--   VERSION_MISMATCH version        – or, of skip, the version is right and `at` is another by now
--   INVALID consume                 – only a one-shot can be consumed
--   BROKEN reason                   – the record cannot be read, or the stream refuses
--   LATER                           – not looked at: too many bytes were published; ask again

local before = earliest()
local lines = {head_line}
local prefix = #PREFIX + 5
local published = 0
local request = nil
local second = int(math.floor(now_ms / 1000))

-- The error leaves pcall as text, so that one bad record is one bad line.
local function trigger(record, id, version, consume, by)
  local r = read_record(redis.call('HGETALL', record))
  if consume and r.kind ~= 'o' then return 'INVALID consume' end
  local last, last_id = string.match(r.g or '', '^(%d+) (%S+)$')
  if last == second then
    if consume then
      note_fired({id})
      forget(id, k_due)
    end
    return 'DUPLICATE ' .. version .. ' ' .. last_id
  end
  request = (request or reserve_versions(#ARGV) - 1) + 1
  local event_id = meta[5] .. '-' .. version .. '-t' .. int(request)
  local key = string.match(id, '%z([^%z]*)%z')
  local refused, why = offer(r.stream, event_id, r.type, a_tenant, key, owner_of(id), now_text, '0', version, '0', r.p,
    r.content, r.c)
  if refused then return refused == 'FULL' and 'FULL ' .. reason(why) or 'DROPPED ' .. version .. ' ' .. event_id end
  published = published + #r.p + #(r.c or '')
  log('triggered', id, version, event_id, by)
  if consume then
    note_fired({id})
    forget(id, k_due)
  else
    redis.call('HSET', record, 'g', second .. ' ' .. event_id)
  end
  return 'TRIGGERED ' .. version .. ' ' .. event_id
end

local function pause(record, id, old, version, at, by, note)
  redis.call('HSET', record, 's', 'p' .. string.sub(old, 2))
  redis.call('HSET', record, 'z', pause_note(by, note))
  redis.call('HDEL', record, 'e')
  redis.call('ZREM', k_held, id)
  redis.call('ZREM', k_due, id)
  log('paused', id, version, note, by)
  return 'PAUSED ' .. version .. ' ' .. at
end

local function resume(record, id, old, version, at, by, new_at, following, skipped)
  local note = ''
  if new_at == '' then
    redis.call('HSET', record, 's', rearmed(record, old))
  else
    local n = string.match(old, '(%d+)$')
    at = new_at
    redis.call('HSET', record, 's', state_text('a', version, at, following, n))
    if skipped ~= '0' then
      local total, total_missed, total_skipped = read_totals(redis.call('HGET', record, 't'))
      redis.call('HSET', record, 't',
        int(total) .. ' ' .. int(total_missed) .. ' ' .. int(total_skipped + tonumber(skipped)))
      redis.call('HINCRBY', k_meta, 'skipped', skipped)
      log('skipped', id, version, skipped .. ' resumed from now')
    end
    note = 'from now'
  end
  redis.call('HDEL', record, 'm', 'z', 'q')
  redis.call('ZADD', k_due, at, id)
  log('resumed', id, version, note, by)
  return 'RESUMED ' .. version .. ' ' .. at
end

local function edit(id, record, floor, verb, if_version, by, note, known_at, new_at, following, skipped, born)
  local dead = floor and tonumber(redis.call('GET', floor) or nil)
  if dead and born ~= '' and tonumber(born) <= dead then return 'OWNER_GONE ' .. int(dead) end
  local old = redis.call('HGET', record, 's')
  local state, version, at = parse_state(old or '')
  -- its owner is gone, and it is about to be swept
  if dead and version and tonumber(version) <= dead then return 'NOT_PENDING' end
  if not old and redis.call('EXISTS', record) == 0 then
    if if_version ~= '' and if_version ~= '0' then return 'VERSION_MISMATCH 0' end
    return 'NOT_PENDING'
  end
  if not state then error('unreadable record', 0) end
  if if_version ~= '' and if_version ~= version then return 'VERSION_MISMATCH ' .. version end
  if verb == 'trigger' or verb == 'consume' then return trigger(record, id, version, verb == 'consume', by) end
  local says_more = verb == 'pause' and note ~= '' -- who pauses it again may have another reason to give
  if (verb == 'pause') == (state == 'p') and not says_more then return 'UNCHANGED ' .. version .. ' ' .. at end
  if verb == 'pause' then return pause(record, id, old, version, at, by, note) end
  if known_at ~= '' and known_at ~= at then return 'VERSION_MISMATCH ' .. version end
  return resume(record, id, old, version, at, by, new_at, following, skipped)
end

local k = first_item_key
for a = first_item_arg, #ARGV, 9 do
  local record, floor = KEYS[k], nil
  local id = string.sub(record, prefix)
  if string.byte(id, -1) ~= 0 then
    floor = KEYS[k + 2]
    k = k + 2
  end
  k = k + 1
  local line = 'LATER'
  if published <= BYTES then
    local fine, said = pcall(edit, id, record, floor, unpack(ARGV, a, a + 8))
    line = fine and said or 'BROKEN ' .. reason(said)
  end
  lines[#lines + 1] = line
end

settle(a_tenant, k_due)
wake_if_earlier(before)
return remember({table.concat(lines, '\n')})
