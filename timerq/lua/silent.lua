-- Names owners whose heartbeat has stopped, and those whose sweep was begun and not yet ended.
--
-- KEYS meta   hash   – the partition
-- KEYS owners zset   – owners by the end of their heartbeat, and those that are not swept yet
-- ARGV layout text   – what the dispatcher believes
-- ARGV schema text   – what the dispatcher believes
-- ARGV now_ms ms     – the manual clock's time, else empty
-- ARGV limit  number – how many of each at the most
--
-- RETURN a line an owner; behind the text, tenant NUL owner of each:
--   UNSWEPT ceiling – the floor up to which it is to be swept
--   SILENT until    – when it should have been heard (ms)

local server_ms = server_now_ms()
local lines = {head_line}
local reply = {''}

-- (The number of one whose sweep was begun is negative, and its name ends in NUL: see destroy.lua.)
local function name(word, from, to, cut)
  local found = redis.call('ZRANGEBYSCORE', k_owners, from, to, 'WITHSCORES', 'LIMIT', 0, a_limit)
  for i = 1, #found, 2 do
    lines[#lines + 1] = word .. int(math.abs(tonumber(found[i + 1])))
    reply[#reply + 1] = string.sub(found[i], 1, cut)
  end
end

name('UNSWEPT ', '-inf', '(0', -2)
name('SILENT ', '0', int(server_ms), -1)
reply[1] = table.concat(lines, '\n')
return reply
