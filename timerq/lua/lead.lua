-- Gives a consumer the reader's lease of a partition for an ordered group, lengthens or ends it, and counts who shares the leads.
--
-- KEYS meta     hash   – the partition
-- KEYS reader   string – who reads, and the epoch
-- KEYS sharers  zset   – consumer -> until when (ms) it is counted among those who share the leads
-- ARGV layout   text   – what the consumer believes
-- ARGV schema   text   – what the consumer believes
-- ARGV now_ms   ms     – the manual clock's time, else empty
-- ARGV consumer text   – who asks
-- ARGV what     text   – take: it is counted, and reads unless another one does; stay: it is counted and does not read, or no
--                        longer; leave: neither
-- ARGV lease_ms ms     – for how long, by the server's time also where a manual clock tells the schedules'
--
-- RETURN one line:
--   LEADS epoch count rank     – it reads alone; the epoch is new where it did not before. So many are counted, and so many of
--                                these come before it by their names
--   FOLLOWS wait_ms count rank – another one reads, for so long yet; or nobody: 0
--   SPARE wait_ms              – the same, and it is not counted, for there are enough
--
-- Running it twice is harmless: the second time lengthens what the first one gave.

local SHARERS = 200 -- each is told of all of them

local call = redis.call
local server_ms = server_now_ms()
local holder, epoch = string.match(call('GET', k_reader) or '', '^(%S+) (%d+)$')
local is_counted = a_what ~= 'leave'
  and (holder == a_consumer or call('ZSCORE', k_sharers, a_consumer) or call('ZCOUNT', k_sharers, server_ms, '+inf') < SHARERS)

if is_counted then
  call('ZADD', k_sharers, int(server_ms + tonumber(a_lease_ms)), a_consumer)
  call('PEXPIRE', k_sharers, int(math.max(tonumber(a_lease_ms), call('PTTL', k_sharers))))
else
  call('ZREM', k_sharers, a_consumer)
end
if a_what == 'take' and holder == a_consumer then
  call('PEXPIRE', k_reader, a_lease_ms)
elseif a_what == 'take' and not holder and is_counted then
  holder, epoch = a_consumer, int(reserve_versions(1))
  call('SET', k_reader, a_consumer .. ' ' .. epoch, 'PX', a_lease_ms)
elseif holder == a_consumer then
  call('DEL', k_reader)
end
call('ZREMRANGEBYSCORE', k_sharers, '-inf', '(' .. int(server_ms))

local wait_ms = int(math.max(0, call('PTTL', k_reader)))
if not is_counted and a_what ~= 'leave' then return {head_line .. '\nSPARE ' .. wait_ms} end
local names, rank = call('ZRANGE', k_sharers, 0, -1), 0
for i = 1, #names do
  if names[i] < a_consumer then rank = rank + 1 end
end
local sharing = ' ' .. #names .. ' ' .. rank
if a_what == 'take' and holder == a_consumer then return {head_line .. '\nLEADS ' .. epoch .. sharing} end
return {head_line .. '\nFOLLOWS ' .. wait_ms .. sharing}
