-- A schedule's record: how its fields are read and written.

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
