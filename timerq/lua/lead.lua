-- Gives a consumer the reader's lease of a partition for an ordered group, or lengthens or ends it.
--
-- KEYS meta     hash   – the partition
-- KEYS reader   string – who reads, and the epoch
-- ARGV layout   text   – what the consumer believes
-- ARGV schema   text   – what the consumer believes
-- ARGV now_ms   ms     – the manual clock's time, else empty
-- ARGV consumer text   – who asks
-- ARGV lease_ms ms     – for how long, by the server's time also where a manual clock tells the schedules'; 0: it gives it up
--
-- RETURN one line:
--   LEADS epoch     – it reads alone; the epoch is new where it did not before
--   FOLLOWS wait_ms – another one does, for so long yet; or nobody, where it was given up
--
-- Running it twice is harmless: the second time lengthens what the first one gave.

local lease_ms = tonumber(a_lease_ms)
local holder, epoch = string.match(redis.call('GET', k_reader) or '', '^(%S+) (%d+)$')
if holder and holder ~= a_consumer then return {head_line .. '\nFOLLOWS ' .. math.max(0, redis.call('PTTL', k_reader))} end
if lease_ms == 0 then
  redis.call('DEL', k_reader)
  return {head_line .. '\nFOLLOWS 0'}
end
if holder then
  redis.call('PEXPIRE', k_reader, a_lease_ms)
else
  epoch = int(reserve_versions(1))
  redis.call('SET', k_reader, a_consumer .. ' ' .. epoch, 'PX', a_lease_ms)
end
return {head_line .. '\nLEADS ' .. epoch}
