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

-- A page of those whose scores are later than their instants by so much (ms), as pairs: what is held back stands behind all
-- else.
local function page(by)
  local from, to = int(tonumber(a_from) + by), tonumber(a_to) + by
  local first = redis.call('ZCOUNT', k_due, '-inf', '(' .. from)
  -- Ids of one score are sorted by their bytes: halve the ranks until the first one behind `after` is found. An offset
  -- would skip or repeat ids when others come and go, and walking a crowded millisecond would have no bound.
  local low, high = first, a_after == '' and first or redis.call('ZCOUNT', k_due, '-inf', from)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if behind(redis.call('ZRANGE', k_due, middle, middle)[1], a_after) then high = middle else low = middle + 1 end
  end
  local flat = redis.call('ZRANGE', k_due, low, low + tonumber(a_limit) - 1, 'WITHSCORES')
  local found = {}
  for i = 1, #flat, 2 do
    local score = tonumber(flat[i + 1])
    if score > to then break end
    found[#found + 1] = {flat[i], score - by}
  end
  return found
end

local function is_later(one, other)
  if one[2] ~= other[2] then return one[2] > other[2] end
  return behind(one[1], other[1])
end

local found = page(0)
if meta[7] then
  local plain, parked = found, page(PARKED_MS)
  local i, k = 1, 1
  found = {}
  while #found < tonumber(a_limit) and (plain[i] or parked[k]) do
    if not parked[k] or (plain[i] and not is_later(plain[i], parked[k])) then
      found[#found + 1] = plain[i]
      i = i + 1
    else
      found[#found + 1] = parked[k]
      k = k + 1
    end
  end
end
local reply = {''}
local lines = {head_line}
for i = 1, #found do
  lines[#lines + 1] = 'ID ' .. int(found[i][2])
  reply[#reply + 1] = found[i][1]
end

reply[1] = table.concat(lines, '\n')
return reply
