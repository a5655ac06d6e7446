-- Hears that handles of owners live, many at once.
--
-- KEYS meta    hash   – the partition
-- KEYS owners  zset   – owners by the end of their heartbeat, and those that are not swept yet
-- KEYS floor*  string – an item's: the version up to which everything of its owner is dead
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV item*          – each item's member (tenant NUL owner), the handle's incarnation, and how long it lives without
--                       being heard again (ms)
--
-- RETURN a line an item:
--   ALIVE
--   OWNER_GONE floor – it was destroyed
--   BROKEN reason    – its floor cannot be read: it was not heard
--
-- Sent twice, it hears them twice.

local server_ms = server_now_ms()
local lines = {head_line}
local k = first_item_key

for a = first_item_arg, #ARGV, 3 do
  local dead = redis.pcall('GET', KEYS[k])
  if type(dead) == 'table' then
    lines[#lines + 1] = 'BROKEN ' .. reason(dead)
  elseif dead and tonumber(ARGV[a + 1]) <= tonumber(dead) then
    lines[#lines + 1] = 'OWNER_GONE ' .. dead
  else
    redis.call('ZADD', k_owners, 'GT', int(server_ms + tonumber(ARGV[a + 2])), ARGV[a])
    lines[#lines + 1] = 'ALIVE'
  end
  k = k + 1
end
return {table.concat(lines, '\n')}
