-- Makes a namespace's or a partition's meta where there is none, changes its settings, and says what it holds.
--
-- KEYS meta     hash   – the namespace or the partition
-- ARGV settings number – how many of the items are settings: they come first and are also written over older ones
-- ARGV item*           – field, value …; written where there is no meta yet
--
-- RETURN the hash's fields and values
--
-- The first of two processes decides; the second is told what was decided. No contract check stands before it:
-- there is nothing to check yet.

local to = redis.call('EXISTS', k_meta) == 0 and #ARGV or first_item_arg + 2 * tonumber(a_settings) - 1
if to >= first_item_arg then redis.call('HSET', k_meta, unpack(ARGV, first_item_arg, to)) end
return redis.call('HGETALL', k_meta)
