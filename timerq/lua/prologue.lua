-- What every script starts with: the contract check, the one clock, the memory of the last request, and the moves that
-- several scripts make. The loader puts it in front of each script, behind the names (k_… and a_…) it has made of the
-- script's header, and leaves out the functions and constants that a script does not use (a paragraph each): making
-- them anew at every call costs. It is the only shared text: no script includes another.

local PREFIX = string.sub(k_meta, 1, -5) -- '{t}:'
local REQUEST_MS = 600000
local LOG_ENTRIES = 10000
local BYTES = 262144 -- what one call may carry back, or publish

local meta = redis.call('HMGET', k_meta, 'layout', 'schema', 'clock', 'last', 'partition', 'retention_ms',
  'bounds')
if meta[1] ~= a_layout or meta[2] ~= a_schema then
  return {'WRONG_LAYOUT ' .. (meta[1] or '-') .. ' ' .. (meta[2] or '-')}
end

local now_us
if meta[3] == 'manual' then
  if a_now_ms == '' then return {'WRONG_CLOCK manual'} end
  now_us = tonumber(a_now_ms) * 1000
else
  if a_now_ms ~= '' then return {'WRONG_CLOCK redis'} end
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
end
local now_ms = math.floor(now_us / 1000)

-- `..` would write a number of 15 digits as 1.76e+14.
local function int(number) return string.format('%.0f', number) end

local head_line = 'OK ' .. int(now_us)

-- The memory of a session: "seq size size …", a line break, and the reply's elements of these sizes.
if k_req then
  local last = redis.call('GET', k_req)
  if last then
    local head, sizes = string.match(last, '^(%d+)([%d ]*)')
    if tonumber(a_seq) < tonumber(head) then return {'OLD_REQUEST'} end
    if tonumber(a_seq) == tonumber(head) then
      -- The answer was lost on its way. This write lets a WAIT behind it speak for the first one's writes too.
      redis.call('PEXPIRE', k_req, REQUEST_MS)
      local reply = {}
      local from = #head + #sizes + 2
      for size in string.gmatch(sizes, '%d+') do
        reply[#reply + 1] = string.sub(last, from, from + size - 1)
        from = from + size
      end
      return reply
    end
  end
end

local function remember(reply)
  local sizes = {a_seq}
  for i = 1, #reply do sizes[i + 1] = #reply[i] end
  redis.call('SET', k_req, table.concat(sizes, ' ') .. '\n' .. table.concat(reply), 'PX', REQUEST_MS)
  return reply
end

-- The first of `count` new versions. Writing it first makes the script's first write one that a server out of memory
-- refuses: nothing is then half done.
local function reserve_versions(count)
  local first = math.max(tonumber(meta[4] or '0') + 1, now_us)
  redis.call('HSET', k_meta, 'last', int(first + count - 1))
  return first
end

-- What went wrong, on one line. (Where an error is a table depends on the server.)
local function reason(fault)
  local text = tostring(type(fault) == 'table' and fault.err or fault)
  return (string.gsub(text, '[\r\n]+', ' '))
end

-- A log that cannot be written must not come between an event and the schedule's removal.
local function log(what, id, version, note, by)
  redis.pcall('XADD', k_log, 'MAXLEN', '~', LOG_ENTRIES, '*',
    'what', what, 'id', id, 'version', version, 'at_ms', int(now_ms), 'note', note or '', 'by', by or '')
end

-- Appends a record's line and, behind the text, its fields and values; returns how many bytes these are.
local function append_record(lines, reply, key)
  local flat = redis.pcall('HGETALL', key)
  if flat.err then
    lines[#lines + 1] = 'BROKEN ' .. reason(flat)
    return 0
  end
  local size = 0
  for i = 1, #flat do
    reply[#reply + 1] = flat[i]
    size = size + #flat[i]
  end
  lines[#lines + 1] = 'RECORD ' .. #flat
  return size
end

-- (Numbers that are longer than any that is written here are no numbers: some of them could be no score.)
local function parse_state(text)
  local state, version, at, following, n = string.match(text, '^(%l) (%d+) (%d+) (%S+) (%d+)$')
  if state and #version <= 18 and #at <= 15 and #n <= 15 then return state, version, at, following, n end
end

local function state_text(state, version, at, following, n)
  return state .. ' ' .. version .. ' ' .. at .. ' ' .. following .. ' ' .. n
end

-- The state text of a paused schedule that goes on. What its calendar had said of `at` no longer holds: it is asked anew.
-- (It only reads: a removal before the first write would make a server out of memory run what it should refuse.)
local function rearmed(record, old)
  if redis.call('HEXISTS', record, 'm') == 0 then return 'a' .. string.sub(old, 2) end
  local _, version, at, _, n = parse_state(old)
  return state_text('a', version, at, '-', n)
end

local function owner_of(id) return string.match(id, '%z([^%z]*)$') end

local function owner_index(id)
  local tenant, owner = string.match(id, '^([^%z]*)%z[^%z]*%z([^%z]*)$')
  return PREFIX .. 'own:' .. tenant .. '\0' .. owner
end

-- Takes a schedule out of every place; the stream's entry has been written before.
local function forget(id, due)
  redis.call('ZREM', due, id)
  redis.call('ZREM', k_keys, id)
  redis.call('ZREM', k_held, id)
  if string.byte(id, -1) ~= 0 then redis.call('ZREM', owner_index(id), id) end
  redis.call('DEL', PREFIX .. 'sch:' .. id)
end

-- Brings a tenant's entry in `heads` in line with its due set.
local function settle(tenant, due)
  local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
  if head then
    redis.call('ZADD', k_heads, head, tenant)
  else
    redis.call('ZREM', k_heads, tenant)
  end
end

local function earliest() return redis.call('ZRANGE', k_heads, 0, 0, 'WITHSCORES')[2] end

-- Tells the sleeping dispatchers that they would sleep too long.
local function wake_if_earlier(before)
  local head = earliest()
  if head and (not before or tonumber(head) < tonumber(before)) then
    -- where it cannot be given, all else is done, and the dispatchers look once a second
    redis.pcall('XADD', k_wake, 'MAXLEN', 1, '*', 'at', head, 'now_us', int(now_us))
  end
end

local FIELDS = {s = 1, d = 1, p = 1, p1 = 1, p2 = 1, p3 = 1, c = 1, w = 1, t = 1, f = 1, m = 1, e = 1, x = 1, o = 1,
  u = 1, g = 1, z = 1, b = 1, y = 1, q = 1, l0 = 1, l1 = 1, l2 = 1, l3 = 1, l4 = 1, l5 = 1, l6 = 1, l7 = 1, l8 = 1,
  l9 = 1, r0 = 1, r1 = 1, r2 = 1, r3 = 1, r4 = 1, r5 = 1, r6 = 1, r7 = 1, r8 = 1, r9 = 1}

-- Whether a field is what happened to a schedule, not what it is; a new definition of a recurring one keeps it.
local function is_history(field) return string.find(field, '^[tugq]$') or string.find(field, '^[lr]%d$') end

-- A record's fields and values with the packed ones taken apart; nil when there are none. Raises on one that cannot be
-- read.
local function read_record(flat)
  if #flat == 0 then return nil end
  local r = {}
  for i = 1, #flat, 2 do
    if not FIELDS[flat[i]] then error('unknown field ' .. flat[i], 0) end
    r[flat[i]] = flat[i + 1]
  end
  r.state, r.version, r.at, r.following, r.n = parse_state(r.s or '')
  r.kind, r.every, r.stream, r.content, r.type = string.match(r.d or '', '^(%l)(%d*) (%S+) (%l) (.*)$')
  if not r.state or not r.kind or not r.p then error('unreadable record', 0) end
  if r.p1 then r.p = r.p .. r.p1 .. (r.p2 or '') .. (r.p3 or '') end
  return r
end

-- The policy of a recurring one: what to do when it is late or not handled; nil where all is as usual.
local function read_policy(text)
  if not text then return nil end
  local overlap, timeout, delay, pause_after, grace, group = string.match(text, '^(%l) (%d+) (%d) (%d+) (%S+) (%S+)$')
  if not overlap then error('unreadable policy', 0) end
  local policy = {overlap = overlap, timeout = tonumber(timeout), delay = delay == '1', grace = tonumber(grace),
    pause_after = tonumber(pause_after), group = group ~= '-' and group or nil}
  policy.tracks = overlap ~= 'a' or policy.pause_after > 0 or (policy.delay and policy.group ~= nil)
  return policy
end

-- Who paused a schedule, why and when, as the record keeps it.
local function pause_note(by, note) return by .. '\0' .. note .. '\0' .. int(now_ms) end

local function read_totals(text)
  local fired, missed, skipped = string.match(text or '', '^(%d+) (%d+) ?(%d*)$')
  return tonumber(fired or 0), tonumber(missed or 0), tonumber(skipped or 0) or 0
end

-- The streams whose backlog is bounded, as bound.lua writes them: a line each.
local BOUNDS = {}

-- What bounds the events of a stream that its group has not acknowledged; nil where nothing does. Limits may be nil; `rule`:
-- h – hold back firing, n – drop the newest, o – drop the oldest, x – none any more, and what was held back is let go.
local function bound_of(stream)
  if not meta[7] then return nil end
  if not next(BOUNDS) then
    for name, group, limit, lane_limit, rule, whole in string.gmatch(meta[7], '(%S+) (%S+) (%S+) (%S+) (%l) (%S+)\n') do
      local which = name .. '\0' .. group
      BOUNDS[name] = {stream = name, group = group, limit = tonumber(limit), lane_limit = tonumber(lane_limit), rule = rule,
        whole = whole, about = PREFIX .. 'bound:' .. name, counts = PREFIX .. 'backlog:' .. which,
        recount = PREFIX .. 'recount:' .. which, parked = PREFIX .. 'parked:' .. name}
    end
  end
  return BOUNDS[stream]
end

-- What a lane's count is called, from the id of what is in it; nil where that cannot be read.
local function lane_of(id)
  local tenant, key, owner = string.match(id or '', '^([^%z]*)%z([^%z]*)%z([^%z]*)$')
  return tenant and tenant .. '\0' .. (owner ~= '' and owner or key)
end

-- Until it has been counted once, a bound refuses nothing.
local function is_counted(bound)
  if bound.is_counted == nil then bound.is_counted = redis.call('HEXISTS', bound.counts, '') == 1 end
  return bound.is_counted
end

-- A lane without any has no count. (What others put in or took out by hand was not counted then.)
local function count_by(counts, bound, lane, by)
  if redis.call('HINCRBY', counts, '', by) < 0 then redis.call('HSET', counts, '', '0') end
  if bound.lane_limit and lane and redis.call('HINCRBY', counts, lane, by) <= 0 then redis.call('HDEL', counts, lane) end
end

-- Counts an event that is on the stream now.
local function count_in(stream, id)
  local bound = bound_of(stream)
  if bound and is_counted(bound) then count_by(bound.counts, bound, lane_of(id), 1) end
end

-- Whether an entry of a stream is behind another one.
local function is_behind(entry, other)
  local ms, seq = string.match(entry, '^(%d+)%-(%d+)$')
  local other_ms, other_seq = string.match(other, '^(%d+)%-(%d+)$')
  if ms ~= other_ms then return tonumber(ms) > tonumber(other_ms) end
  return tonumber(seq) > tonumber(other_seq)
end

-- Counts one out; also of those counted anew, where that is under way and has come by it.
local function uncount(bound, lane, entry)
  if is_counted(bound) then count_by(bound.counts, bound, lane, -1) end
  if bound.after == nil then bound.after = redis.call('HGET', bound.about, 'after') end
  if bound.after and not is_behind(entry, bound.after) then count_by(bound.recount, bound, lane, -1) end
end

-- What is held back waits in its tenant's due set behind all else, by so much later than its instant (ms): whoever takes it
-- out there, or arms it anew, need not know.
local PARKED_MS = 1e15

-- Lets the oldest go on that is held back for a lane (empty: for the stream); returns whether there was one, or nil where it
-- is not known: there may be one behind those that were looked at.
local function let_go(bound, lane)
  local waiting = PREFIX .. 'waiting:' .. bound.stream .. '\0' .. lane
  for _ = 1, 20 do -- some may have been cancelled or armed anew
    local id = redis.call('ZRANGE', waiting, 0, 0)[1]
    if not id then
      redis.call('ZREM', bound.parked, lane)
      return false
    end
    local tenant = string.match(id, '^[^%z]*')
    local due = PREFIX .. 'due:' .. tenant
    local score = tonumber(redis.call('ZSCORE', due, id) or nil)
    local is_parked = score and score >= PARKED_MS
    if is_parked then
      redis.call('ZADD', due, int(score - PARKED_MS), id)
      settle(tenant, due)
    end
    redis.call('ZREM', waiting, id)
    redis.call('HINCRBY', bound.about, 'held_back', -1)
    if is_parked then
      if redis.call('EXISTS', waiting) == 0 then redis.call('ZREM', bound.parked, lane) end
      return true
    end
  end
  return nil
end

-- Counts out what a group has done with, by its id, and lets one go on that waits for that.
local function count_out(stream, group, id, entry)
  local bound = bound_of(stream)
  if not bound or bound.group ~= group or bound.rule == 'o' then return end
  local lane = lane_of(id)
  uncount(bound, lane, entry)
  if bound.held_back == nil then bound.held_back = (tonumber(redis.call('HGET', bound.about, 'held_back') or 0)) > 0 end
  if bound.rule ~= 'h' or not bound.held_back then return end
  local before = earliest()
  if lane then let_go(bound, lane) end
  let_go(bound, '')
  wake_if_earlier(before)
end

-- Why one more event of a lane is too many; nil where there is room.
local function fullness(bound, lane)
  local found = redis.call('HMGET', bound.counts, '', lane)
  local total, there = tonumber(found[1] or nil), tonumber(found[2] or 0)
  if not total then return nil end
  if bound.lane_limit and there >= bound.lane_limit then
    local name = string.match(lane, '%z(.*)$')
    return 'lane ' .. name .. ' of stream ' .. bound.stream .. ' is full (group ' .. bound.group .. ': ' .. int(there) .. ' of '
      .. int(bound.lane_limit) .. ')', lane
  end
  if bound.limit and total >= bound.limit then
    return 'stream ' .. bound.stream .. ' is full (group ' .. bound.group .. ': ' .. int(total) .. ' of ' .. int(bound.limit)
      .. ')', ''
  end
end

local CONTENT = {m = 'application/msgpack', j = 'application/json'}
local NOTHING = {}
local streams_seen = {}
local now_text = int(now_ms)

-- Puts one event on its stream. Raises (with nothing written) where Redis refuses. (`mark` names one more field.)
local function emit(stream, event_id, event_type, tenant, key, owner, at, n, version, missed, payload, content, correlation, mark)
  local entry = redis.pcall('XADD', PREFIX .. 's:' .. stream, '*',
    'id', event_id, 'type', event_type, 'key', key, 'tenant', tenant, 'owner', owner, 'at', at, 'fired_ms', now_text,
    'n', n, 'version', version, 'missed', missed, 'payload', payload, 'content_type', CONTENT[content],
    'correlation', correlation or '{}', unpack(mark and {mark, '1'} or NOTHING))
  if type(entry) == 'table' then error('stream ' .. stream .. ': ' .. reason(entry), 0) end
  if not streams_seen[stream] then
    streams_seen[stream] = true
    redis.pcall('ZADD', k_streams, 'NX', now_text, stream) -- the event is out: nothing may fail from here on
  end
  if meta[7] then pcall(count_in, stream, tenant .. '\0' .. key .. '\0' .. owner) end
end

-- Tells operators, as an event on the stream `errors`. It must not come between a schedule and its firing.
local function report(event_type, id, version, suffix, at, n, why)
  local tenant, key, owner = string.match(id, '^([^%z]*)%z([^%z]*)%z([^%z]*)$')
  local text = string.gsub(string.gsub(why, '[%c\128-\255]', '?'), '["\\]', '\\%0')
  pcall(emit, 'errors', meta[5] .. '-' .. version .. '-' .. suffix, event_type, tenant, key, owner, at, n, version, '0',
    '{"reason":"' .. text .. '"}', 'j')
end

-- Tells that a stream is full, on `errors`, and no more often than once a minute.
local function tell_full(bound, id, version, at, n, why)
  local told_ms = tonumber(redis.call('HGET', bound.about, 'told_ms') or 0)
  if told_ms > now_ms - 60000 and told_ms <= now_ms then return end
  redis.call('HSET', bound.about, 'told_ms', now_text)
  if bound.rule == 'h' then log('held_back', id, version, why) end
  report('stream.full', id, version, 'f' .. now_text, at, n, why)
end

-- Counts and tells what a full stream's rule has dropped; `what` is the word for the log.
local function shed(bound, what, id, version, at, n, note, why)
  redis.call('HINCRBY', bound.about, 'dropped', 1)
  log(what, id, version, note)
  tell_full(bound, id, version, at, n, why)
end

-- Does what `emit` does unless the stream is full. Returns nil where the event is out, else what became of it (FULL: nothing,
-- DROPPED) and why.
local function offer(stream, event_id, event_type, tenant, key, owner, at, n, version, ...)
  local bound = bound_of(stream)
  local id = tenant .. '\0' .. key .. '\0' .. owner
  local why = bound and (bound.rule == 'h' or bound.rule == 'n') and fullness(bound, lane_of(id))
  if not why then
    emit(stream, event_id, event_type, tenant, key, owner, at, n, version, ...)
    return nil
  end
  if bound.rule == 'h' then
    tell_full(bound, id, version, at, n, why)
    return 'FULL', why
  end
  shed(bound, 'overflowed', id, version, at, n, event_id .. ' ' .. why, why)
  return 'DROPPED', why
end

-- Of a bound whose oldest events are dropped: counts out one that its group is about to be handed, and returns why it is not
-- to have it. What is handed out counts no more, so that nothing is dropped that somebody has begun.
local function too_old(bound, id, entry)
  local lane = lane_of(id)
  local found = redis.call('HMGET', bound.counts, '', lane or '')
  uncount(bound, lane, entry)
  local total, there = tonumber(found[1] or 0), tonumber(found[2] or 0)
  if bound.lane_limit and lane and there > bound.lane_limit then
    return int(there) .. ' events of its lane waited, the limit is ' .. int(bound.lane_limit)
  end
  if bound.limit and total > bound.limit then
    return int(total) .. ' events of its stream waited, the limit is ' .. int(bound.limit)
  end
end

-- Notes that events of these may be out of which no record tells any more: it went with them, or with a definition that was
-- replaced. (A list of ids is cheap to write; who wants to know marks what is in it.) Returns how many lists there are.
local function note_fired(ids) return redis.call('RPUSH', k_fired_new, table.concat(ids, '\0\0\0') .. '\0\0\0') end

-- The place of an event that is waited for among the schedule's: it runs, it is of the armed version but not the last one,
-- or nobody waits for it any more (nil). Also whether another one waits for it, and until when (ms) it may run.
local function waited_for(r, event)
  local running, deadline, waits = string.match(r and r.u or '', '^(%S+) (%d+)( ?w?)$')
  local runs = running == event
  if not r or runs and tonumber(deadline) <= now_ms then return nil end -- fire.lua finds that out, and says so in the log
  -- of the versions before only the last event is waited for; another one may be of a schedule that has gone
  if not runs and string.match(event, '^%d+%-(%d+)%-') ~= r.version then return nil end
  return runs and 'runs' or 'older', waits == ' w', tonumber(deadline)
end

-- Counts an event as handled, or as failed where a text says why, and lets what waits for that go on. `r` and `policy` are
-- read before anything is written. Returns DONE or PAUSED, the version, and the next instant; nil where nobody waits for it.
local function finish(id, r, policy, event, failure)
  redis.call('DEL', PREFIX .. 'run:' .. event)
  local place, waits, deadline = waited_for(r, event)
  if not place then return nil end
  local runs = place == 'runs'
  local record, tenant = PREFIX .. 'sch:' .. id, string.match(id, '^[^%z]*')
  if runs then redis.call('HDEL', record, 'u') end
  local due = PREFIX .. 'due:' .. tenant
  local before = earliest()
  local word = 'DONE'
  local at = r.at
  local note = string.sub(failure or '', 1, 200)
  if not failure then
    redis.call('HDEL', record, 'q')
  else
    local failures = (tonumber(r.q) or 0) + 1
    redis.call('HSET', record, 'q', int(failures))
    log('failed', id, r.version, event .. ' ' .. note)
    if policy and policy.pause_after > 0 and failures >= policy.pause_after and r.state ~= 'p' then
      word = 'PAUSED'
      note = int(failures) .. (failures == 1 and ' failure' or ' failures') .. ' in a row: ' .. note
    end
  end
  if runs and policy and policy.delay and policy.group then
    local next_at = now_ms + tonumber(r.every)
    -- An event of the version before: this one has a start, which is still to come unless fire.lua has put it off.
    local put_off = deadline + tonumber(r.every)
    if r.n == '0' and tonumber(r.at) ~= put_off then next_at = math.max(next_at, tonumber(r.at)) end
    local ending = tonumber(string.match(r.w or '', '^%d+')) or 253402300799999
    at = int(next_at)
    if next_at > ending then
      note_fired({id})
      forget(id, due)
      log('ended', id, r.version, 'until ' .. read_totals(r.t))
      settle(tenant, due)
      return 'DONE', r.version, at
    end
  end
  if word == 'PAUSED' then
    redis.call('HSET', record, 's', state_text('p', r.version, at, r.following, r.n), 'z', pause_note('timerq', note))
    redis.call('HDEL', record, 'e')
    redis.call('ZREM', k_held, id)
    redis.call('ZREM', due, id)
    log('paused', id, r.version, note, 'timerq')
    report('schedule.paused', id, r.version, 'p' .. int(now_ms), at, r.n, note)
  elseif at ~= r.at then
    redis.call('HSET', record, 's', state_text(r.state, r.version, at, r.following, r.n))
    if r.state ~= 'p' then redis.call('ZADD', due, at, id) end
  elseif waits and runs and r.state == 'a' then
    redis.call('ZADD', due, at, id)
  end
  settle(tenant, due)
  wake_if_earlier(before)
  return word, r.version, at
end

-- The same for an event that a group has handled: what waits for another group, or cannot be read, stays as it is.
local function finish_for(group, id, event, failure)
  if redis.call('EXISTS', PREFIX .. 'run:' .. event) == 0 then return end
  local fine, r = pcall(read_record, redis.call('HGETALL', PREFIX .. 'sch:' .. id))
  local known, policy = pcall(read_policy, fine and r and r.o or nil)
  if fine and known and not (policy and policy.group and policy.group ~= group) then
    finish(id, r, policy, event, failure)
  end
end

-- The server's own time (ms), which entries' ids are made of, also where a manual clock tells the schedules' time.
local function server_now_ms()
  if meta[3] ~= 'manual' then return now_ms end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Says that all versions up to this one are dead, of a schedule (by its id) or of an owner (tenant NUL owner). It stays while
-- an entry that is older is on any stream: see trim.lua.
local function leave_floor(whose, version)
  redis.call('SET', PREFIX .. 'floor:' .. whose, version)
  redis.call('ZADD', k_floors, int(server_now_ms()), whose)
end

-- What may_be_out has read.
local FIRED = {}

local function place_of(id, bits)
  local hash = #id
  for i = 1, #id, 8 do
    local a, b, c, d, e, f, g, h = string.byte(id, i, i + 7)
    hash = (hash * 8191 + a + (b or 0) * 31 + (c or 0) * 961 + (d or 0) * 29791 + (e or 0) * 923521 + (f or 0) * 28629151
      + (g or 0) * 887503681 + (h or 0) * 27512614111) % 4294967291
  end
  return hash % bits
end

-- Marks in a bitmap, by their hashes, the ids of so many lists. Returns whether there are more.
local function mark_fired(lists)
  local bits = 8 * redis.call('STRLEN', k_fired)
  for _ = 1, lists do
    local ids = redis.call('LPOP', k_fired_new) -- a removal comes first: a server out of memory lets it be marked behind it
    if not ids then return false end
    if bits == 0 then
      bits = 1048576
      redis.call('SETBIT', k_fired, bits - 1, 0)
    end
    for id in string.gmatch(ids, '([^%z]+%z[^%z]*%z[^%z]*)%z%z%z') do
      redis.call('SETBIT', k_fired, place_of(id, bits), 1)
    end
  end
  return redis.call('EXISTS', k_fired_new) == 1
end

-- Whether an event of a schedule may be on a stream, unread: an earlier occurrence, of whichever version, or what a trigger
-- made. (`n` is nil where the record's state cannot be read.) Yes, where that is not known; it only costs a floor.
local function may_be_out(id, n, totals, trigger)
  if n ~= '0' or totals or trigger then return true end
  if FIRED.more == nil then FIRED.more = mark_fired(3) end
  if FIRED.more then return true end
  for _, key in ipairs({k_fired, k_fired_before}) do
    FIRED[key] = FIRED[key] or 8 * redis.call('STRLEN', key)
    if FIRED[key] > 0 and redis.call('GETBIT', key, place_of(id, FIRED[key])) == 1 then return true end
  end
  return false
end

-- Appends the floors by which an event is known to be dead, its schedule's and its owner's, and behind them in `whose` its
-- place. (What was published without a schedule does not go with its key.)
local function append_floors(floors, whose, place, event, id, tenant, owner)
  local last = #floors
  if string.byte(event, -1) ~= 48 or string.byte(event, -2) ~= 45 then
    last = last + 1
    floors[last], whose[last] = PREFIX .. 'floor:' .. id, place
  end
  if owner ~= '' then floors[last + 1], whose[last + 1] = PREFIX .. 'floor:' .. tenant .. '\0' .. owner, place end
end

-- Marks in `dead`, by their places, the versions that are at or below one of their floors.
local function mark_dead(dead, versions, floors, whose)
  if #floors == 0 then return end
  local found = redis.call('MGET', unpack(floors))
  for i = 1, #floors do
    if found[i] and versions[whose[i]] <= (tonumber(found[i]) or 0) then dead[whose[i]] = true end
  end
end

-- What a hold says: the consumer, the delivery, the attempt (with a 0 in front where it is not known to have begun, and
-- does not count), when it first failed (ms; 0: never), and the rest: the event's id, when it was due, and its schedule's id.
local function read_hold(text)
  local consumer, delivery, attempt, failed, rest = string.match(text, '^(%S+) (%d+) (%d+) (%d+) (.*)$')
  return consumer, tonumber(delivery), attempt, failed, rest
end

-- No consumer can have this name.
local function no_consumer() return '(waiting)' end
