-- Looks through a piece of the log, newest entry first, for what it says of one schedule.
--
-- KEYS meta    hash   – the partition
-- KEYS log     stream – the exceptions
-- KEYS record  hash   – the schedule
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV from    entry  – + to begin with the newest, else what the last call said
-- ARGV count   number – how many entries to look at, at the most
--
-- RETURN lines; behind the text, the fields and values of the record and of each entry:
--   RECORD how_many – where it begins with the newest, so that both are of one instant; 0: there is no record
--   BROKEN reason   – the same, and what is there is no record
--   ENTRY how_many  – one of the schedule, or of its owner
--   MORE from       – last: there may be older ones
--   END at_ms whole – last: there are none; when the log's oldest entry was written (- for an empty log), and whether it
--                     is the first there ever was (whole) or older ones are gone (trimmed)

local id = string.sub(k_record, #PREFIX + 5)
local tenant, owner = string.match(id, '^([^%z]*)%z[^%z]*%z([^%z]+)$')
local owner_id = tenant and tenant .. '\0\0' .. owner -- of what happened to all of an owner's schedules
local reply = {''}
local lines = {head_line}
local bytes = 0

local function value_of(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
end

if a_from == '+' then bytes = append_record(lines, reply, k_record) end

local entries = redis.call('XREVRANGE', k_log, a_from, '-', 'COUNT', a_count)
local last = nil -- the entry to go on before
for i, entry in ipairs(entries) do
  local fields = entry[2]
  local of = value_of(fields, 'id')
  if of == id or (owner_id and of == owner_id) then
    lines[#lines + 1] = 'ENTRY ' .. #fields
    for k = 1, #fields do
      reply[#reply + 1] = fields[k]
      bytes = bytes + #fields[k]
    end
  end
  if (bytes > BYTES and i < #entries) or i == tonumber(a_count) then
    last = entry[1]
    break
  end
end

if last then
  lines[#lines + 1] = 'MORE (' .. last
else
  local oldest = redis.call('XRANGE', k_log, '-', '+', 'COUNT', 1)[1]
  local at = oldest and string.match(value_of(oldest[2], 'at_ms') or '', '^%d+$')
  if oldest and not at then at = string.match(oldest[1], '^%d+') end
  -- what is trimmed leaves at least so many
  local whole = redis.call('XLEN', k_log) < LOG_ENTRIES
  lines[#lines + 1] = 'END ' .. (at or '-') .. (whole and ' whole' or ' trimmed')
end
reply[1] = table.concat(lines, '\n')
return reply
