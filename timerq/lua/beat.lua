-- Says that a dispatcher lives (or leaves) and names those that live.
--
-- KEYS meta       hash – the namespace
-- KEYS workers    zset – dispatchers by their last heartbeat
-- ARGV layout     text – what the dispatcher believes
-- ARGV schema     text – what the dispatcher believes
-- ARGV now_ms     ms   – the manual clock's time, else empty
-- ARGV dispatcher text – its name; empty: only name those that live
-- ARGV ttl_ms     ms   – who was not heard for longer is gone
-- ARGV leaving    text – 1: it leaves
--
-- RETURN one line; behind the text, the names:
--   ALIVE how_many

local server_ms = server_now_ms()
local ttl_ms = tonumber(a_ttl_ms)
if a_leaving == '1' then
  redis.call('ZREM', k_workers, a_dispatcher)
elseif a_dispatcher ~= '' then
  redis.call('ZADD', k_workers, int(server_ms), a_dispatcher)
  redis.call('ZREMRANGEBYSCORE', k_workers, '-inf', int(server_ms - ttl_ms))
end
-- one heard far in the future was heard before the clock stepped back: if it lives, it will be heard again
local names = redis.call('ZRANGEBYSCORE', k_workers, int(server_ms - ttl_ms), int(server_ms + ttl_ms), 'LIMIT', 0, 1000)
table.insert(names, 1, head_line .. '\nALIVE ' .. #names)
return names
