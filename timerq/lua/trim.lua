-- Trims the stream of a partition that was not trimmed for longest: read entries beyond the retention go, unread ones
-- only beyond max_age or max_length; and takes away what is remembered for the sake of events that have gone.
--
-- KEYS meta     hash   – the partition
-- KEYS streams  zset   – stream -> when it was last trimmed (ms)
-- KEYS log      stream – the exceptions
-- KEYS floors   zset   – whose floor -> when it was left (ms)
-- KEYS fired_new list – of which ids events may be out, and no record tells
-- KEYS fired string – the same, from before that: a bitmap by their hashes
-- KEYS fired_before string – the same, from before that
-- KEYS oldest   zset   – stream -> what its entries are not older than (ms)
-- KEYS owners   zset   – owners by the end of their heartbeat, and those that are not swept yet
-- KEYS never    none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout   text   – what the dispatcher believes
-- ARGV schema   text   – what the dispatcher believes
-- ARGV now_ms   ms     – the manual clock's time, else empty
-- ARGV every_ms ms     – leave alone what was trimmed since
-- ARGV limit    number – how many entries, and how many floors, to remove at the most
--
-- RETURN two lines, the first of these and then the last; behind the text, the stream's name:
--   IDLE                  – none is to be trimmed
--   TRIMMED read unread   – how many were removed
--   BROKEN reason         – not a stream
--   FLOORS removed more   – how many; more: 1 where there is more to do at once
--
-- Entry ids are made of the server's time and never lie behind it, so an id older than the retention is an entry older
-- than the retention; where the clock was ahead once, entries only stay longer. A floor goes when twice the retention has
-- passed and when no stream has an entry that was there before it: any group could still be handed it, also one that is made
-- later and begins with the oldest. The clock may have been ahead of a floor by as much as the retention. While an owner's
-- sweep has been begun and not ended, none goes: only its floor keeps what is left of it from firing.

local MOST_BITS = 16777216 -- 2 MiB
local LISTS = 5 -- of up to 200 ids

local server_ms = server_now_ms()
local retention_ms = tonumber(meta[6])

-- What was left or noted before that (ms) is of no use any more; nil while not all streams have been seen.
local function find_useless_ms()
  local seen, streams = redis.call('ZCARD', k_oldest), redis.call('ZCARD', k_streams)
  if seen ~= streams then -- one is new, and is looked at soon; or somebody has taken one out by hand
    if seen > streams then redis.call('DEL', k_oldest) end
    return nil
  end
  local oldest_ms = redis.call('ZRANGE', k_oldest, 0, 0, 'WITHSCORES')[2]
  local useless_ms = server_ms - 2 * retention_ms
  return oldest_ms and math.min(useless_ms, tonumber(oldest_ms) - retention_ms) or useless_ms
end

-- Of the two bitmaps the older one goes once its events have; the newer one takes its place and, where it was too full to
-- tell much, makes room for a larger one.
local function turn_bitmaps(useless_ms)
  local bits = 8 * redis.call('STRLEN', k_fired)
  if bits == 0 or tonumber(redis.call('HGET', k_meta, 'fired_since_ms') or 0) >= useless_ms then return end
  local marked = redis.call('BITCOUNT', k_fired)
  redis.call('HSET', k_meta, 'fired_since_ms', int(server_ms))
  if marked == 0 then
    redis.call('DEL', k_fired, k_fired_before)
    return
  end
  redis.call('RENAME', k_fired, k_fired_before)
  if marked > bits / 8 then bits = math.min(16 * bits, MOST_BITS) end
  redis.call('SETBIT', k_fired, bits - 1, 0)
end

local function remove_floors(useless_ms)
  local whose = redis.call('ZRANGEBYSCORE', k_floors, '-inf', '(' .. int(useless_ms), 'LIMIT', 0, a_limit)
  if #whose == 0 then return 0 end
  local floors = {}
  for i = 1, #whose do floors[i] = PREFIX .. 'floor:' .. whose[i] end
  redis.call('DEL', unpack(floors))
  redis.call('ZREM', k_floors, unpack(whose))
  return #whose
end

-- (The number of such an owner is negative: see destroy.lua.)
local function is_sweeping() return redis.call('ZCOUNT', k_owners, '-inf', '(0') > 0 end

local function answer(line, stream)
  local useless_ms = find_useless_ms()
  local removed = 0
  local more = mark_fired(LISTS)
  if useless_ms then
    if not is_sweeping() then removed = remove_floors(useless_ms) end
    if not more then turn_bitmaps(useless_ms) end
  end
  more = more or removed == tonumber(a_limit)
  return {head_line .. '\n' .. line .. '\nFLOORS ' .. removed .. ' ' .. (more and '1' or '0'), stream}
end

-- (Reports do not go with what they are about: no floor is for them.)
local function note_oldest(stream, entry)
  local oldest_ms = stream ~= 'errors' and entry and string.match(entry[1], '^%d+') or int(server_ms)
  redis.call('ZADD', k_oldest, oldest_ms, stream)
end

local stream = redis.call('ZRANGEBYSCORE', k_streams, '-inf', int(now_ms - tonumber(a_every_ms)), 'LIMIT', 0, 1)[1]
if not stream then return answer('IDLE') end

local key = PREFIX .. 's:' .. stream
local groups = redis.pcall('XINFO', 'GROUPS', key)
if groups.err then
  redis.call('ZADD', k_streams, int(now_ms), stream)
  note_oldest(stream)
  if string.find(reason(groups), 'no such key') then return answer('TRIMMED 0 0', stream) end
  return answer('BROKEN ' .. reason(groups), stream)
end

local settings = redis.call('HMGET', k_meta, 'max_age_ms', 'max_length')

local function older(entry, other) return is_behind(other, entry) end

-- The first entry that some group has not acknowledged: everything from there on stays.
-- The first entry that there could be of so long (ms). A span that begins before 1970 is for ever.
local function first_of_last(span_ms) return int(math.max(0, server_ms - span_ms)) .. '-0' end

local bound = first_of_last(retention_ms)
local unread = nil
for _, flat in ipairs(groups) do
  local group = {}
  for i = 1, #flat, 2 do group[flat[i]] = flat[i + 1] end
  local delivered_ms, delivered_seq = string.match(group['last-delivered-id'], '^(%d+)%-(%d+)$')
  local wanted = delivered_ms .. '-' .. int(tonumber(delivered_seq) + 1)
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
  local oldest = first_of_last(math.max(tonumber(settings[1]), retention_ms))
  unread_gone = redis.call('XTRIM', key, 'MINID', '~', oldest, 'LIMIT', a_limit)
end
if settings[2] and settings[2] ~= '' then
  unread_gone = unread_gone + redis.call('XTRIM', key, 'MAXLEN', '~', settings[2], 'LIMIT', a_limit)
end
-- a stream with more to remove keeps its place, and is the next one asked for; of one without, what is left in its oldest
-- node goes too: a few entries of long ago would keep all floors
if read_gone + unread_gone < tonumber(a_limit) / 2 then
  read_gone = read_gone + redis.call('XTRIM', key, 'MINID', bound)
  redis.call('ZADD', k_streams, int(now_ms), stream)
end
note_oldest(stream, redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1])
if unread_gone > 0 then
  redis.call('HINCRBY', k_meta, 'trimmed_unread', unread_gone)
  log('trimmed', stream, '0', int(unread_gone) .. ' entries that a group may not have read')
end
return answer('TRIMMED ' .. read_gone .. ' ' .. unread_gone, stream)
