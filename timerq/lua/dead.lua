-- Looks through a piece of a group's dead letters, oldest first, for those of one tenant that are asked for.
--
-- KEYS meta   hash   – the partition
-- KEYS dead   stream – the group's dead letters
-- ARGV layout text   – what the client believes
-- ARGV schema text   – what the client believes
-- ARGV now_ms ms     – the manual clock's time, else empty
-- ARGV tenant text
-- ARGV from   entry  – what the last call said; - at first
-- ARGV to     entry  – what the first call said; + at first
-- ARGV limit  number – how many letters at the most
-- ARGV event  text   – only those of this event; empty for any
-- ARGV prefix text   – only those of keys that begin so
-- ARGV type   text   – only those of this type; empty for any
-- ARGV since  ms     – only those that failed last then or later
-- ARGV before ms     – only those that failed last before that
-- ARGV fields 0|1    – 1: with the letters' fields
--
-- RETURN lines; behind the text, with fields, each letter's fields and values as an array of their own:
--   LETTER entry
--   MORE from to  – last: there may be others
--   END           – last: there are none
--   BROKEN reason – alone: not a stream
--
-- What cannot be read as an event has no tenant, and is shown to each.

local ENTRIES, PIECE = 200, 10
local FILTERS = {id = a_event, type = a_type}
local limit, since_ms, before_ms = tonumber(a_limit), tonumber(a_since), tonumber(a_before)
local reply, lines = {''}, {head_line}
local looked, found, bytes = 0, 0, 0

local function is_wanted(fields)
  local values = {}
  for i = 1, #fields, 2 do values[fields[i]] = fields[i + 1] end
  for name, value in pairs(FILTERS) do
    if value ~= '' and values[name] ~= value then return false end
  end
  if values.tenant and values.tenant ~= a_tenant then return false end
  if string.sub(values.key or '', 1, #a_prefix) ~= a_prefix then return false end
  local failed_ms = tonumber(values.last_failed_ms) or 0
  return failed_ms >= since_ms and failed_ms < before_ms
end

-- What is put there from now on is not of this look.
local last_entry = a_to
if a_to == '+' then
  local last = redis.pcall('XREVRANGE', k_dead, '+', '-', 'COUNT', 1)
  if last.err then return {head_line .. '\nBROKEN ' .. reason(last)} end
  last_entry = last[1] and last[1][1] or '0-0'
end

local from = a_from
while true do
  local entries = redis.call('XRANGE', k_dead, from, last_entry, 'COUNT', PIECE)
  for i = 1, #entries do
    local fields = entries[i][2]
    looked = looked + 1
    for k = 1, #fields do bytes = bytes + #fields[k] end
    from = '(' .. entries[i][1]
    if is_wanted(fields) then
      lines[#lines + 1] = 'LETTER ' .. entries[i][1]
      found = found + 1
      if a_fields == '1' then reply[#reply + 1] = fields end
    end
    if (looked >= ENTRIES or bytes > BYTES or found >= limit) and entries[i][1] ~= last_entry then
      lines[#lines + 1] = 'MORE ' .. from .. ' ' .. last_entry
      reply[1] = table.concat(lines, '\n')
      return reply
    end
  end
  if #entries < PIECE then break end
end
lines[#lines + 1] = 'END'
reply[1] = table.concat(lines, '\n')
return reply
