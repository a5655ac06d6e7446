-- What is dead though events of it may be on a stream: floors, and which schedules have fired with no record left.

-- Notes that events of these may be out of which no record tells any more: it went with them, or with a definition that was
-- replaced. (A list of ids is cheap to write; who wants to know marks what is in it.) Returns how many lists there are.
local function note_fired(ids) return redis.call('RPUSH', k_fired_new, table.concat(ids, '\0\0\0') .. '\0\0\0') end

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

-- Leaves a floor for a schedule that is about to be taken out, where an event of it may be on a stream.
local function bury(id, n, totals, trigger, version)
  if not may_be_out(id, n, totals, trigger) then return end
  redis.call('ZREM', k_held, id) -- a removal comes first: a server out of memory lets the rest be written behind it
  leave_floor(id, version)
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

-- The same of one that was handed out, by its id: one that timerq gave has the version in it. Returns that; nil of any other.
local function append_floors_of(floors, whose, place, event, id)
  local version = tonumber(string.match(event, '^%d+%-(%d+)%-') or nil)
  local tenant, owner = string.match(id, '^([^%z]*)%z[^%z]*%z([^%z]*)$')
  if not version or not tenant then return nil end
  append_floors(floors, whose, place, event, id, tenant, owner)
  return version
end

-- Marks in `dead`, by their places, the versions that are at or below one of their floors.
local function mark_dead(dead, versions, floors, whose)
  if #floors == 0 then return end
  local found = redis.call('MGET', unpack(floors))
  for i = 1, #floors do
    if found[i] and versions[whose[i]] <= (tonumber(found[i]) or 0) then dead[whose[i]] = true end
  end
end
