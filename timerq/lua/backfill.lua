-- Publishes occurrences of the past of one schedule, marked `backfill`; its timing and counters stay.
--
-- KEYS meta    hash   – the partition
-- KEYS req     string – the session's last request
-- KEYS streams zset   – the names of the streams
-- KEYS log     stream – the exceptions
-- KEYS fired_new list – of which ids events may be out, and no record tells
-- KEYS record  hash   – the schedule
-- KEYS never   none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV seq     number – this request's number in its session
-- ARGV version number – of the schedule whose occurrences these are
-- ARGV by      text   – who asks for it, or empty
-- ARGV item*   ms     – the occurrences, oldest first
--
-- RETURN one line:
--   BACKFILLED count dropped – so many of them are done with, of which some were dropped because the stream is full; the
--                              others were too many bytes: ask again
--   FULL count dropped why   – the stream is full, and its rule holds back what comes then; what came before is done with
--   VERSION_MISMATCH version – the schedule is another now (0: gone); nothing was published
--   BROKEN count reason      – the stream refuses, or the record cannot be read; what came before is published
--
-- An occurrence's event has the id …-b<at>, however often it is asked for.

local id = string.sub(k_record, #PREFIX + 5)
local fine, r = pcall(function() return read_record(redis.call('HGETALL', k_record)) end)
if not fine then return remember({head_line .. '\nBROKEN 0 ' .. reason(r)}) end
local tenant, key, owner = string.match(id, '^([^%z]*)%z([^%z]*)%z([^%z]*)$')
local dead = owner ~= '' and redis.call('GET', PREFIX .. 'floor:' .. tenant .. '\0' .. owner)
if r and dead and tonumber(r.version) <= tonumber(dead) then r = nil end -- its owner is gone: it is about to be swept
if not r or r.version ~= a_version then
  return remember({head_line .. '\nVERSION_MISMATCH ' .. (r and r.version or '0')})
end

local count, dropped, published = 0, 0, 0
local line
redis.call('HSET', k_meta, 'fired_ms', int(now_ms)) -- a server out of memory refuses this: nothing is half done
for a = first_item_arg, #ARGV do
  if published > BYTES then break end
  local at = ARGV[a]
  local event_id = meta[5] .. '-' .. r.version .. '-b' .. at
  local sent, said, why = pcall(offer, r.stream, event_id, r.type, tenant, key, owner, at, '0', r.version, '0', r.p, r.content,
    r.c, 'backfill')
  if not sent then
    line = 'BROKEN ' .. count .. ' ' .. reason(said)
    break
  end
  if said == 'FULL' then
    line = 'FULL ' .. count .. ' ' .. dropped .. ' ' .. reason(why)
    break
  end
  if said then dropped = dropped + 1 end
  count = count + 1
  published = published + #r.p + #(r.c or '') + 200
end
if count > dropped then
  note_fired({id})
  log('backfilled', id, r.version, count - dropped .. ' from ' .. ARGV[first_item_arg], a_by)
end
return remember({head_line .. '\n' .. (line or 'BACKFILLED ' .. count .. ' ' .. dropped)})
