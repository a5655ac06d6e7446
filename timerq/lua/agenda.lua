-- One page of a tenant's pending ids in the order in which they are looked at next.
--
-- KEYS meta    hash   – the partition
-- KEYS due     zset   – the tenant's pending ids
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV from    ms     – the range's start (the last score seen, on a later page)
-- ARGV to      ms     – the range's end
-- ARGV after   text   – the last id seen at that score, or empty
-- ARGV limit   number – how many ids at the most
--
-- RETURN a line an id; behind the text, each id:
--   ID score

-- Whether a comes behind b by their bytes, as in the sorted set. (Lua's own < goes by the server's locale.)
local function behind(a, b)
  local i = 1
  while true do
    local x, y = string.byte(a, i), string.byte(b, i)
    if not x then return false end
    if not y or x ~= y then return not y or x > y end
    i = i + 1
  end
end

local first = redis.call('ZCOUNT', k_due, '-inf', '(' .. a_from)
if a_after ~= '' then
  -- Ids of one score are sorted by their bytes: halve the ranks until the first one behind `after` is found. An offset
  -- would skip or repeat ids when others come and go, and walking a crowded millisecond would have no bound.
  local low, high = first, redis.call('ZCOUNT', k_due, '-inf', a_from)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if behind(redis.call('ZRANGE', k_due, middle, middle)[1], a_after) then high = middle else low = middle + 1 end
  end
  first = low
end

local found = redis.call('ZRANGE', k_due, first, first + tonumber(a_limit) - 1, 'WITHSCORES')
local reply = {''}
local lines = {head_line}
for i = 1, #found, 2 do
  if tonumber(found[i + 1]) > tonumber(a_to) then break end
  lines[#lines + 1] = 'ID ' .. found[i + 1]
  reply[#reply + 1] = found[i]
end

reply[1] = table.concat(lines, '\n')
return reply
