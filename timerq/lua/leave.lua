-- Takes a consumer that leaves out of its group, and with it those that nobody has heard of for long.
--
-- KEYS meta     hash   – the partition
-- KEYS stream   stream – what the group reads
-- ARGV layout   text   – what the consumer believes
-- ARGV schema   text   – what the consumer believes
-- ARGV now_ms   ms     – the manual clock's time, else empty
-- ARGV group    text
-- ARGV consumer text   – who leaves
-- ARGV idle_ms  ms     – who was not heard for longer has gone; by the server's time
--
-- RETURN one line:
--   LEFT removed – how many consumers the group no longer knows
--
-- Redis keeps each name that ever read, and every process has a new one. A consumer that still holds something stays: what
-- it holds would be lost with it.

local removed = 0
local consumers = redis.pcall('XINFO', 'CONSUMERS', k_stream, a_group)
for i = 1, consumers.err and 0 or #consumers do
  local about = {}
  for k = 1, #consumers[i], 2 do about[consumers[i][k]] = consumers[i][k + 1] end
  local has_gone = about.name == a_consumer or tonumber(about.idle) > tonumber(a_idle_ms)
  if has_gone and tonumber(about.pending) == 0 and removed < 100 then
    redis.call('XGROUP', 'DELCONSUMER', k_stream, a_group, about.name)
    removed = removed + 1
  end
end
return {head_line .. '\nLEFT ' .. removed}
