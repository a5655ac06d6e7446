-- How many events a group has not acknowledged, of streams whose backlog is bounded, and what is held back for that.

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
