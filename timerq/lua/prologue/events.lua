-- Puts events on their streams, or what a full stream's rule makes of them.

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
