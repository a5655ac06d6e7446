-- Trims the stream of a partition that was not trimmed for longest: read entries beyond the retention go, unread ones
-- only beyond max_age or max_length.
--
-- KEYS meta     hash   – the partition
-- KEYS streams  zset   – stream -> when it was last trimmed (ms)
-- KEYS log      stream – the exceptions
-- KEYS never    none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout   text   – what the dispatcher believes
-- ARGV schema   text   – what the dispatcher believes
-- ARGV now_ms   ms     – the manual clock's time, else empty
-- ARGV every_ms ms     – leave alone what was trimmed since
-- ARGV limit    number – how many entries to remove at the most
--
-- RETURN one line; behind the text, the stream's name:
--   IDLE                  – none is to be trimmed
--   TRIMMED read unread   – how many were removed
--   BROKEN reason         – not a stream
--
-- Entry ids are made of the server's time and never lie behind it, so an id older than the retention is an entry older
-- than the retention; where the clock was ahead once, entries only stay longer.

local stream = redis.call('ZRANGEBYSCORE', k_streams, '-inf', int(now_ms - tonumber(a_every_ms)), 'LIMIT', 0, 1)[1]
if not stream then return {head_line .. '\nIDLE'} end

local key = PREFIX .. 's:' .. stream
local groups = redis.pcall('XINFO', 'GROUPS', key)
if groups.err then
  redis.call('ZADD', k_streams, int(now_ms), stream)
  if string.find(reason(groups), 'no such key') then return {head_line .. '\nTRIMMED 0 0', stream} end
  return {head_line .. '\nBROKEN ' .. reason(groups), stream}
end

local time = redis.call('TIME')
local server_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local settings = redis.call('HMGET', k_meta, 'max_age_ms', 'max_length')

local function parts(id)
  local ms, seq = string.match(id, '^(%d+)%-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

local function older(a, b)
  local a_ms, a_seq = parts(a)
  local b_ms, b_seq = parts(b)
  return a_ms < b_ms or (a_ms == b_ms and a_seq < b_seq)
end

-- The first entry that some group has not acknowledged: everything from there on stays.
local bound = int(server_ms - tonumber(meta[6])) .. '-0'
local unread = nil
for _, flat in ipairs(groups) do
  local group = {}
  for i = 1, #flat, 2 do group[flat[i]] = flat[i + 1] end
  local delivered_ms, delivered_seq = parts(group['last-delivered-id'])
  local wanted = int(delivered_ms) .. '-' .. int(delivered_seq + 1)
  if tonumber(group.pending) > 0 then
    local pending = redis.call('XPENDING', key, group.name)[2]
    if pending and older(pending, wanted) then wanted = pending end
  end
  if not unread or older(wanted, unread) then unread = wanted end
end
if unread and older(unread, bound) then bound = unread end

local read_gone = redis.call('XTRIM', key, 'MINID', '~', bound, 'LIMIT', a_limit)
local unread_gone = 0
if settings[1] and settings[1] ~= '' then
  local oldest = int(server_ms - math.max(tonumber(settings[1]), tonumber(meta[6]))) .. '-0'
  unread_gone = redis.call('XTRIM', key, 'MINID', '~', oldest, 'LIMIT', a_limit)
end
if settings[2] and settings[2] ~= '' then
  unread_gone = unread_gone + redis.call('XTRIM', key, 'MAXLEN', '~', settings[2], 'LIMIT', a_limit)
end
-- a stream with more to remove keeps its place, and is the next one asked for
if read_gone + unread_gone < tonumber(a_limit) / 2 then redis.call('ZADD', k_streams, int(now_ms), stream) end
if unread_gone > 0 then
  redis.call('HINCRBY', k_meta, 'trimmed_unread', unread_gone)
  log('trimmed', stream, '0', int(unread_gone) .. ' entries that a group may not have read')
end
return {head_line .. '\nTRIMMED ' .. read_gone .. ' ' .. unread_gone, stream}
