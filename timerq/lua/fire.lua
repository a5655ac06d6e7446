-- Moves what is due onto its stream, oldest first and fairly over the tenants, and says how long to wait.
--
-- KEYS meta     hash   – the partition
-- KEYS heads    zset   – the tenants by their earliest instant
-- KEYS keys     zset   – every id
-- KEYS held     zset   – ids that could not be fired
-- KEYS streams  zset   – the names of the streams
-- KEYS log      stream – the exceptions
-- KEYS fired_new list – of which ids events may be out, and no record tells
-- KEYS fired    string – the same, from before that: a bitmap by their hashes
-- KEYS never    none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout   text   – what the dispatcher believes
-- ARGV schema   text   – what the dispatcher believes
-- ARGV now_ms   ms     – the manual clock's time, else empty
-- ARGV batch    number – how many schedules to touch at the most
-- ARGV lag_ms   ms     – leave alone what is overdue by less: a lower rank's part
-- ARGV lease_ms ms     – how long a claim holds
--
-- RETURN one line, then one for each schedule whose calendar must be asked; behind the text, each one's id, definition (x)
-- and window (w):
--   FIRED published held dropped wait_us refused – wait: until the next is due (0: at once), - for nothing pending; refused:
--                                          held back or left out because their stream is full
--   REFILL version n at                  – it fired and is armed; the instant after `at` is wanted
--   CLAIMED version n at                 – it is due and waits (for lease_ms) for the dispatcher to say what becomes of
--                                          what was missed
--
-- Running it twice is harmless: it takes what is due, and what it took is gone in the same step. So it keeps no
-- session, and a lost reply costs a calendar its refill only, which the claim then makes good.

local MAX_MS = 253402300799999
local MOST_LISTS = 1000 -- of ids that fired; with more, trim.lua does not get round to marking them
local call, match, sub, byte = redis.call, string.match, string.sub, string.byte
local batch = tonumber(a_batch)
local cutoff = now_ms - tonumber(a_lag_ms)
local reply = {''}
local lines = {head_line, ''}
local published, held_count, dropped, missed_count, skipped_count, bytes = 0, 0, 0, 0, 0, 0
local orphans, refused = 0, 0

local function hand_over(word, id, version, n, at, r)
  bytes = bytes + #(r.x or '') -- a definition may have a hundred expressions and a thousand exclusions
  lines[#lines + 1] = word .. ' ' .. version .. ' ' .. n .. ' ' .. at
  local last = #reply
  reply[last + 1], reply[last + 2], reply[last + 3] = id, r.x or '', r.w or ''
end

-- A number of a record that was written by these scripts. What was spoilt by hand must raise before anything is
-- published: what cannot be a score would end the whole script behind it.
local function whole(text, least)
  local number = #text <= 15 and match(text, '^%d+$') and tonumber(text)
  if not number or number < least then error('unreadable number ' .. sub(text, 1, 20), 0) end
  return number
end

-- The recurring half: what follows `at`, or nil where the schedule has ended; how many it stands for besides itself; and
-- what ended it: last, until or limit.
-- `total` is how many are published, this one included.
local function next_of(r, policy, total)
  local ending, limit = match(r.w or '', '^(%S+) (%S+)')
  local following, missed
  local ended = 'last'
  if r.kind == 'c' then -- told by advance.lua; 0: there is none
    following, missed = whole(r.following, 0), whole(r.m or '0', 0)
    if following == 0 then
      following = nil
      if ending and ending ~= '-' then ended = 'until' end
    end
  elseif policy and policy.delay then -- counted from when it is handled: told by done.lua, or at the latest now
    missed = 0
    local soonest = now_ms + whole(r.every, 1)
    following = math.min(soonest + (policy.group and policy.timeout or 0), MAX_MS)
    if soonest > MAX_MS or ending and ending ~= '-' and soonest > tonumber(ending) then
      following, ended = nil, 'until'
    end
    ending = nil
  else
    local at, every = tonumber(r.at), whole(r.every, 1)
    missed = math.max(0, math.floor((now_ms - at) / every))
    following = at + (missed + 1) * every
    if ending and ending ~= '-' then missed = math.min(missed, math.floor((tonumber(ending) - at) / every)) end
    if following > MAX_MS then following = nil end
  end
  if following and ending and ending ~= '-' and following > tonumber(ending) then following, ended = nil, 'until' end
  if limit and limit ~= '-' and total >= tonumber(limit) then following, ended = nil, 'limit' end
  return following, missed, ended
end

-- Whether a calendar must be asked what becomes of `at`: where it is too late to be published, also since the calendar
-- has spoken of it (`m`), and where the calendar has not, and something was missed or may have been missed.
local function must_ask(r, policy)
  if r.kind ~= 'c' then return false end
  if policy and policy.grace and now_ms - tonumber(r.at) > policy.grace then return true end
  return not r.m and (r.following == '-' or (r.following ~= '0' and tonumber(r.following) <= now_ms))
end

-- The event of the last occurrence that is not handled yet, and until when it may run; nil where there is none.
local function running(id, record, r)
  if not r.u then return nil end
  local event_id, deadline = match(r.u, '^(%S+) (%d+)')
  if event_id and #deadline <= 15 and tonumber(deadline) > now_ms then return event_id, deadline end
  log('timed_out', id, r.version, event_id)
  call('HDEL', record, 'u')
  if event_id then call('DEL', PREFIX .. 'run:' .. event_id) end
  r.u = nil
end

-- What nearly all are: an armed one-shot without owner or correlation, in the order in which upsert.lua writes it. False,
-- with nothing done, for any other; `fire_one` does the same for all. (Half of the time goes into making Lua strings
-- and tables, and this makes few.)
local one_shots = {} -- definition -> {stream, content, type}, or false; a batch has few different ones
local function fire_plain(turn, id, record, flat)
  local size = #flat
  if byte(id, -1) ~= 0 or flat[1] ~= 's' or flat[3] ~= 'd' or flat[5] ~= 'p' then return false end
  if size ~= 6 and (size ~= 8 or flat[7] ~= 'p1') then return false end
  local version, at = match(flat[2], '^a (%d+) (%d+) %- 0$')
  if not version or tonumber(at) > cutoff then return false end
  local text = flat[4]
  local definition = one_shots[text]
  if definition == nil then
    local stream, content, event_type = match(text, '^o (%S+) (%l) (.*)$')
    definition = stream and {stream, content, event_type} or false
    one_shots[text] = definition
  end
  if not definition or (meta[7] and bound_of(definition[1])) then return false end
  local payload = size == 6 and flat[6] or flat[6] .. flat[8]
  bytes = bytes + #payload
  emit(definition[1], meta[5] .. '-' .. version .. '-1', definition[3], turn.tenant, sub(id, #turn.tenant + 2, -2), '',
    at, '1', version, '0', payload, definition[2])
  turn.gone[#turn.gone + 1] = id
  published = published + 1
  call('DEL', record)
  return true
end

-- Keeps one from firing until a lane, or the stream (an empty lane), has room again.
local function hold_back(turn, id, record, r, bound, lane, why)
  local added = call('ZADD', PREFIX .. 'waiting:' .. bound.stream .. '\0' .. lane, r.at, id)
  call('ZADD', bound.parked, 'NX', now_text, lane)
  call('HINCRBY', bound.about, 'held_back', added) -- it may be there from before it was armed anew
  if r.state ~= 'a' then
    call('HSET', record, 's', state_text('a', r.version, r.at, r.following, r.n))
    call('ZREM', k_held, id)
  end
  call('HSET', record, 'e', why)
  call('ZADD', PREFIX .. 'due:' .. turn.tenant, int(tonumber(r.at) + PARKED_MS), id) -- at once: see let_go
  refused = refused + 1
  tell_full(bound, id, r.version, r.at, r.n, why)
  -- what room the stream has is for another one
  if lane ~= '' and bound.limit and tonumber(call('HGET', bound.counts, '')) < bound.limit then let_go(bound, '') end
end

-- One occurrence of a recurring schedule: published or, where the one before it still runs or the stream is full, left out;
-- and what follows.
local function fire_recurring(turn, id, record, r, policy, busy, key, owner, n, event_id, bound, full)
  local total, total_missed, total_skipped = read_totals(r.t)
  local following, missed, ended = next_of(r, policy, (busy or full) and total or total + 1)
  local fields = {}
  if full and not busy then
    n = r.n
    total_skipped = total_skipped + 1 + missed
    skipped_count = skipped_count + 1 + missed
    refused = refused + 1
    shed(bound, 'skipped', id, r.version, r.at, n, int(1 + missed) .. ' ' .. full, full)
    -- nobody will say that this one is handled
    if following and policy and policy.delay and policy.group then following = following - policy.timeout end
  elseif busy then
    n = r.n
    total_skipped = total_skipped + 1 + missed
    skipped_count = skipped_count + 1 + missed
    log('skipped', id, r.version, int(1 + missed) .. ' ' .. busy .. ' is not done')
    report('schedule.skipped', id, r.version, 's' .. r.at, r.at, n, busy .. ' is not done')
  else
    local tracked = policy and policy.tracks
    bytes = bytes + #r.p + #(r.c or '')
    if tracked then call('SET', PREFIX .. 'run:' .. event_id, id, 'PX', int(policy.timeout + 60000)) end
    emit(r.stream, event_id, r.type, turn.tenant, key, owner, r.at, n, r.version, int(missed), r.p, r.content, r.c)
    published = published + 1
    missed_count = missed_count + missed
    if missed > 0 then log('missed', id, r.version, int(missed)) end
    fields = {'l' .. int(total % 10), r.at .. ' ' .. now_text .. ' ' .. int(missed)}
    if tracked then
      fields[3] = 'u'
      fields[4] = event_id .. ' ' .. int(now_ms + policy.timeout)
    end
    total = total + 1
    total_missed = total_missed + missed
  end
  if not following then
    turn.gone[#turn.gone + 1] = id
    call('DEL', record)
    log('ended', id, r.version, ended .. ' ' .. int(total))
    return
  end
  local at = int(following)
  turn.scored[#turn.scored + 1] = at
  turn.scored[#turn.scored + 1] = id
  call('HSET', record, 's', state_text('a', r.version, at, '-', n),
    't', int(total) .. ' ' .. int(total_missed) .. ' ' .. int(total_skipped), unpack(fields))
  if r.m or r.e then call('HDEL', record, 'm', 'e') end
  if r.state ~= 'a' then call('ZREM', k_held, id) end
  if r.kind == 'c' then hand_over('REFILL', id, r.version, n, at, r) end
end

-- Fires one schedule. What it changes in `turn` is done at the tenant's end, also when it raises later.
local function fire_one(turn, id)
  local record = PREFIX .. 'sch:' .. id
  local flat = call('HGETALL', record)
  if fire_plain(turn, id, record, flat) then return end
  local key, owner = match(id, '^[^%z]*%z([^%z]*)%z([^%z]*)$')
  local r = read_record(flat)
  if not r then
    turn.gone[#turn.gone + 1] = id
    orphans = orphans + 1
    log('orphan', id, '0', 'in the due set without a record')
    return
  end
  if r.state == 'p' then
    turn.unscored[#turn.unscored + 1] = id
    return
  end
  if r.state == 'a' and tonumber(r.at) > cutoff then -- the record is the truth, the score is not
    turn.scored[#turn.scored + 1] = r.at
    turn.scored[#turn.scored + 1] = id
    return
  end
  if owner ~= '' then
    local floor = call('GET', PREFIX .. 'floor:' .. turn.tenant .. '\0' .. owner)
    if floor and tonumber(r.version) <= tonumber(floor) then
      turn.gone[#turn.gone + 1] = id
      call('DEL', record)
      dropped = dropped + 1
      log('dropped', id, r.version, 'its owner is gone')
      return
    end
  end
  local bound = meta[7] and bound_of(r.stream)
  local full, lane = nil, nil
  if bound and (bound.rule == 'h' or bound.rule == 'n') then full, lane = fullness(bound, lane_of(id)) end
  if full and bound.rule == 'h' then return hold_back(turn, id, record, r, bound, lane, full) end
  local policy = read_policy(r.o)
  local busy, deadline
  if policy and (policy.overlap ~= 'a' or (policy.delay and policy.group)) then
    busy, deadline = running(id, record, r)
  end
  if busy and policy.overlap == 'q' then -- one waits; done.lua looks for it at once, and this script in the end
    turn.scored[#turn.scored + 1] = deadline
    turn.scored[#turn.scored + 1] = id
    if sub(r.u, -2) ~= ' w' then
      call('HSET', record, 'u', r.u .. ' w')
      log('queued', id, r.version, busy)
    end
    return
  end
  if busy and policy.delay then -- nothing is left out: it comes an interval after that one's time is up, at the latest
    local at = int(math.min(tonumber(deadline) + tonumber(r.every), MAX_MS))
    turn.scored[#turn.scored + 1] = at
    turn.scored[#turn.scored + 1] = id
    call('HSET', record, 's', state_text(r.state, r.version, at, r.following, r.n))
    return
  end
  if must_ask(r, policy) then
    call('HSET', record, 's', state_text('c', r.version, r.at, r.following, r.n))
    turn.scored[#turn.scored + 1] = int(now_ms + tonumber(a_lease_ms))
    turn.scored[#turn.scored + 1] = id
    hand_over('CLAIMED', id, r.version, r.n, r.at, r)
    return
  end
  if policy and policy.delay and policy.group then -- nobody said that the last one was handled
    local ending = tonumber(match(r.w or '', '^%d+'))
    if ending and tonumber(r.at) > ending then
      turn.gone[#turn.gone + 1] = id
      call('DEL', record)
      log('ended', id, r.version, 'until ' .. read_totals(r.t))
      return
    end
  end
  local n = int(tonumber(r.n) + 1)
  local event_id = meta[5] .. '-' .. r.version .. '-' .. n
  if r.kind == 'o' and full then
    turn.gone[#turn.gone + 1] = id
    refused = refused + 1
    call('DEL', record)
    shed(bound, 'dropped', id, r.version, r.at, n, full, full)
    return
  end
  if r.kind == 'o' then
    bytes = bytes + #r.p + #(r.c or '')
    emit(r.stream, event_id, r.type, turn.tenant, key, owner, r.at, n, r.version, '0', r.p, r.content, r.c)
    turn.gone[#turn.gone + 1] = id
    published = published + 1
    call('DEL', record)
    return
  end
  fire_recurring(turn, id, record, r, policy, busy, key, owner, n, event_id, bound, full)
end

-- Sets one aside for a while. The record may be what is broken, so nothing here depends on it.
local function hold(turn, id, why)
  local tries = tonumber(call('ZSCORE', k_held, id) or 0) + 1
  call('ZADD', k_held, tries, id)
  turn.scored[#turn.scored + 1] = try_again_at(tries)
  turn.scored[#turn.scored + 1] = id
  held_count = held_count + 1
  local record = PREFIX .. 'sch:' .. id
  local old = redis.pcall('HGET', record, 's')
  local version = type(old) == 'string' and select(2, parse_state(old))
  if version then redis.pcall('HSET', record, 's', 'h' .. sub(old, 2), 'e', sub(why, 1, 200)) end
  log('held', id, version or '0', why)
  if tries == 1 then report('schedule.held', id, version or '0', 'h' .. now_text, now_text, '0', why) end
end

local tenants = call('ZRANGEBYSCORE', k_heads, '-inf', int(cutoff), 'LIMIT', 0, batch)
-- the first write is one that a server out of memory refuses: nothing is then half done
if #tenants > 0 then call('HSET', k_meta, 'fired_ms', now_text) end
for t, tenant in ipairs(tenants) do
  if bytes > BYTES then break end
  local due = PREFIX .. 'due:' .. tenant
  local turn = {tenant = tenant, gone = {}, scored = {}, unscored = {}}
  local left = #tenants - t + 1
  local ids = redis.pcall('ZRANGEBYSCORE', due, '-inf', int(cutoff), 'LIMIT', 0, math.ceil(batch / left))
  local broken = ids.err
  if broken then -- no sorted set: this tenant's trouble, and no other's
    log('held', tenant, '0', reason(ids))
    held_count = held_count + 1
  end
  local byte_limit = bytes + (BYTES - bytes) / left
  for _, id in ipairs(ids) do
    local at_stake = #turn.gone + #turn.scored
    local fine, why = pcall(fire_one, turn, id)
    -- an error behind the publication must not lead to a second one
    if not fine and at_stake == #turn.gone + #turn.scored then
      hold(turn, id, reason(why))
    end
    batch = batch - 1
    if bytes > byte_limit then break end
  end
  if #turn.gone > 0 then
    -- the events are out: nothing may fail from here on
    local fine, lists = pcall(note_fired, turn.gone)
    if fine and lists > MOST_LISTS then pcall(mark_fired, 2) end
    call('ZREM', due, unpack(turn.gone))
    call('ZREM', k_keys, unpack(turn.gone))
    call('ZREM', k_held, unpack(turn.gone))
    for _, id in ipairs(turn.gone) do
      if byte(id, -1) ~= 0 then call('ZREM', owner_index(id), id) end
    end
  end
  if #turn.scored > 0 then call('ZADD', due, unpack(turn.scored)) end
  if #turn.unscored > 0 then call('ZREM', due, unpack(turn.unscored)) end
  if broken then call('ZADD', k_heads, int(now_ms + 1000), tenant) else settle(tenant, due) end
end

for counter, by in pairs({fired = published, missed = missed_count, skipped = skipped_count, dropped = dropped,
  orphans = orphans}) do
  if by > 0 then call('HINCRBY', k_meta, counter, by) end
end
local head = earliest()
local wait_us = '-'
if head and tonumber(head) < PARKED_MS then wait_us = int(math.max(0, (tonumber(head) + tonumber(a_lag_ms)) * 1000 - now_us)) end
lines[2] = 'FIRED ' .. published .. ' ' .. held_count .. ' ' .. dropped .. ' ' .. wait_us .. ' ' .. refused
reply[1] = table.concat(lines, '\n')
return reply
