-- Says that an owner's handle lives, and gives it an incarnation where it has none.
--
-- KEYS meta        hash   – the partition
-- KEYS floor       string – the version up to which everything of the owner is dead
-- KEYS owners      zset   – owners by the end of their heartbeat, and those that are not swept yet
-- ARGV layout      text   – what the client believes
-- ARGV schema      text   – what the client believes
-- ARGV now_ms      ms     – the manual clock's time, else empty
-- ARGV member      text   – tenant NUL owner
-- ARGV incarnation number – the handle's; empty: take one
-- ARGV ttl_ms      ms     – how long it lives without being heard again; 0: it has no heartbeat
--
-- RETURN one line:
--   ALIVE incarnation last – last: the last version there is
--   OWNER_GONE floor       – it was destroyed
--
-- Sent twice, it takes two incarnations, of which one is never heard of again.

local incarnation = a_incarnation
local dead = redis.call('GET', k_floor)
if incarnation ~= '' and dead and tonumber(incarnation) <= tonumber(dead) then
  return {head_line .. '\nOWNER_GONE ' .. dead}
end
local last = meta[4] or '0'
if incarnation == '' then
  incarnation = int(reserve_versions(1))
  last = incarnation
end
if a_ttl_ms ~= '0' then
  local ending = server_now_ms() + tonumber(a_ttl_ms)
  redis.call('ZADD', k_owners, 'GT', int(ending), a_member) -- it has as many heartbeats as handles: the longest counts
end
return {head_line .. '\nALIVE ' .. incarnation .. ' ' .. last}
