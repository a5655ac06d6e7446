-- Announces an apply of a declared set, so that what an earlier one still has on its way is refused.
--
-- KEYS meta       hash   – the partition
-- KEYS req        string – the session's last request
-- KEYS set        zset   – the set's ids; under the empty one, the generation announced
-- ARGV layout     text   – what the client believes
-- ARGV schema     text   – what the client believes
-- ARGV now_ms     ms     – the manual clock's time, else empty
-- ARGV seq        number – this request's number in its session
-- ARGV generation number – empty in the first partition, which hands it out
--
-- RETURN one line:
--   ENLISTED generation
--   SUPERSEDED generation – a later apply has been announced here

local announced = tonumber(redis.call('ZSCORE', k_set, '') or nil)
local generation = tonumber(a_generation)
if not generation then
  generation = reserve_versions(1)
  -- where the last version was forgotten and the clock is behind
  if announced and announced >= generation then
    generation = announced + 1
    redis.call('HSET', k_meta, 'last', int(generation))
  end
elseif announced and announced > generation then
  return remember({head_line .. '\nSUPERSEDED ' .. int(announced)})
end
redis.call('ZADD', k_set, int(generation), '')
return remember({head_line .. '\nENLISTED ' .. int(generation)})
