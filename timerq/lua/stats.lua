-- What one partition holds, for one tenant.
--
-- KEYS meta    hash   – the partition
-- KEYS keys    zset   – every id
-- KEYS held    zset   – ids that could not be fired
-- KEYS streams zset   – the names of the streams
-- KEYS groups  zset   – the groups that read here
-- KEYS due     zset   – the tenant's pending ids
-- KEYS never   none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV from    lex    – the tenant's range in keys: its start
-- ARGV to      lex    – … and its end
--
-- RETURN one line, then a line a stream and a line a group (100 of each at the most), and one for each bounded stream; behind
-- the text, each one's name:
--   STATS schedules armed due earliest_ms all_schedules all_held fired missed dropped orphans skipped held_back – earliest: - for none
--   STREAM length
--   GROUP pending retry dead – not yet acknowledged, those of them that wait to be tried again, dead letters; the name is
--                              stream NUL group
--   BACKLOG waiting limit lane_limit rule held_back dropped whole – what there is before the group of a bounded stream (- while
--                              it is not counted) and may be, - for no limit; see bound.lua; the name is stream NUL group

local counters = redis.call('HMGET', k_meta, 'fired', 'missed', 'dropped', 'orphans', 'skipped')
for i = 1, 5 do counters[i] = counters[i] or '0' end
local head = redis.call('ZRANGE', k_due, 0, 0, 'WITHSCORES')[2] or '-'
local due, held_back = redis.call('ZCOUNT', k_due, '-inf', int(now_ms)), 0
if meta[7] then
  held_back = redis.call('ZCOUNT', k_due, int(PARKED_MS), '+inf')
  local first = redis.call('ZRANGEBYSCORE', k_due, int(PARKED_MS), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  if first then head = int(math.min(tonumber(head), tonumber(first) - PARKED_MS)) end
end
local lines = {head_line, table.concat({
  'STATS', redis.call('ZLEXCOUNT', k_keys, a_from, a_to), redis.call('ZCARD', k_due),
  due + held_back, head, redis.call('ZCARD', k_keys), redis.call('ZCARD', k_held),
  counters[1], counters[2], counters[3], counters[4], counters[5],
  held_back}, ' ')}
local reply = {''}
for _, stream in ipairs(redis.call('ZRANGE', k_streams, 0, 99)) do
  local length = redis.pcall('XLEN', PREFIX .. 's:' .. stream)
  lines[#lines + 1] = 'STREAM ' .. (type(length) == 'table' and '0' or length)
  reply[#reply + 1] = stream
end
for _, name in ipairs(redis.call('ZRANGE', k_groups, 0, 99)) do
  local stream, group = string.match(name, '^([^%z]*)%z(.*)$')
  local numbers = {redis.pcall('XPENDING', PREFIX .. 's:' .. stream, group), redis.pcall('ZCARD', PREFIX .. 'retry:' .. name),
    redis.pcall('XLEN', PREFIX .. 'dead:' .. name)}
  numbers[1] = numbers[1].err and 0 or numbers[1][1]
  for i = 2, 3 do
    if type(numbers[i]) == 'table' then numbers[i] = 0 end
  end
  lines[#lines + 1] = 'GROUP ' .. table.concat(numbers, ' ')
  reply[#reply + 1] = name
end
bound_of('')
for name, bound in pairs(BOUNDS) do
  local waiting, numbers = redis.pcall('HGET', bound.counts, ''), redis.pcall('HMGET', bound.about, 'held_back', 'dropped')
  lines[#lines + 1] = table.concat({'BACKLOG', type(waiting) == 'string' and waiting or '-', bound.limit and int(bound.limit) or '-',
    bound.lane_limit and int(bound.lane_limit) or '-', bound.rule, numbers[1] or '0', numbers[2] or '0', bound.whole}, ' ')
  reply[#reply + 1] = name .. '\0' .. bound.group
end
reply[1] = table.concat(lines, '\n')
return reply
