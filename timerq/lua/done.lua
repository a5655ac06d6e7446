-- Counts an event of a tracked schedule as handled, and lets what waits for that go on.
--
-- KEYS meta    hash   – the partition
-- KEYS req     string – the session's last request
-- KEYS heads   zset   – the tenants by their earliest instant
-- KEYS keys    zset   – every id
-- KEYS held    zset   – ids that could not be fired
-- KEYS streams zset   – the names of the streams
-- KEYS wake    stream – for the sleeping dispatchers
-- KEYS log     stream – the exceptions
-- KEYS fired_new list – of which ids events may be out, and no record tells
-- KEYS run     string – the id of the schedule that the event came from
-- KEYS never   none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV seq     number – this request's number in its session
-- ARGV tenant  text
-- ARGV event   text   – its id
-- ARGV error   text   – why its handling failed, or empty
--
-- RETURN one line; behind the text, the schedule's id where there is one:
--   DONE version at
--   PAUSED version at – it failed as many times in a row as pause it
--   NOT_PENDING       – no such event is being waited for: unknown, said before, timed out, or its schedule has gone
--
-- Handling is said once: the key `run` goes with it.

local id = redis.call('GET', k_run)
if id and string.match(id, '^[^%z]*') ~= a_tenant then id = nil end -- another tenant's, of which this one knows nothing
if not id then return remember({head_line .. '\nNOT_PENDING'}) end
local r = read_record(redis.call('HGETALL', PREFIX .. 'sch:' .. id))
local policy = r and read_policy(r.o) -- what cannot be read raises before anything is written
redis.call('HSET', k_meta, 'done_ms', int(now_ms)) -- a server out of memory refuses this: nothing is half done

local word, version, at = finish(id, r, policy, a_event, a_error ~= '' and a_error or nil)
if not word then return remember({head_line .. '\nNOT_PENDING'}) end
return remember({head_line .. '\n' .. word .. ' ' .. version .. ' ' .. at, id})
