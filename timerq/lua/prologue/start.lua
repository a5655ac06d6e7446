-- What every script starts with: the contract check, the one clock, the memory of the last request, the log. The loader
-- puts these files, in the order it names them, in front of each script, behind the names (k_… and a_…) it has made of the
-- script's header, and leaves out the functions and constants that a script does not use (a paragraph each): making them
-- anew at every call costs. It is the only shared text: no script includes another.

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

-- The server's own time (ms), which entries' ids are made of, also where a manual clock tells the schedules' time. By it live
-- those who must be heard: dispatchers, owners, the readers of ordered groups.
local function server_now_ms()
  if meta[3] ~= 'manual' then return now_ms end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

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
