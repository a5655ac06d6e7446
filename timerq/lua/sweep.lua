-- Cancels a bounded piece of a range of keys, but nothing that was armed after the sweep began.
--
-- KEYS meta    hash   – the partition
-- KEYS req     string – the session's last request
-- KEYS heads   zset   – the tenants by their earliest instant
-- KEYS keys    zset   – every id
-- KEYS held    zset   – ids that could not be fired
-- KEYS log     stream – the exceptions
-- KEYS floors  zset   – whose floor -> when it was left (ms)
-- KEYS fired_new list – of which ids events may be out, and no record tells
-- KEYS fired string – the same, from before that: a bitmap by their hashes
-- KEYS fired_before string – the same, from before that
-- KEYS due     zset   – the tenant's pending ids
-- KEYS never    none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- KEYS index   zset   – where to look: every id, or an owner's
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV seq     number – this request's number in its session
-- ARGV tenant  text
-- ARGV from    lex    – the range's start
-- ARGV to      lex    – the range's end
-- ARGV ceiling number – the last version there was when the sweep began; empty at its first piece
-- ARGV limit   number – how many ids to look at
--
-- RETURN one line; behind the text, where there is more, the last id seen
--   SWEPT cancelled ceiling

local ids = redis.call('ZRANGEBYLEX', k_index, a_from, a_to, 'LIMIT', 0, a_limit)
local ceiling = a_ceiling ~= '' and a_ceiling or meta[4] or '0'
local cancelled = 0

for _, id in ipairs(ids) do
  local record = PREFIX .. 'sch:' .. id
  local stored = redis.pcall('HMGET', record, 's', 't', 'g')
  local old, foreign = stored[1], stored.err
  -- any other error (a slot on the move) must not pass for "no record": it ends the script, and the sweep is asked again
  if foreign and not string.find(reason(stored), 'WRONGTYPE') then error(reason(stored), 0) end
  local _, version, _, _, n = parse_state(not foreign and old or '')
  if not foreign and (not version or tonumber(version) <= tonumber(ceiling)) then
    bury(id, n, stored[2], stored[3], version or ceiling)
    if version then
      cancelled = cancelled + 1
      log('cancelled', id, version)
    end
    forget(id, k_due)
  end
end

settle(a_tenant, k_due)
local reply = {head_line .. '\nSWEPT ' .. cancelled .. ' ' .. ceiling}
if #ids == tonumber(a_limit) then reply[2] = ids[#ids] end
return remember(reply)
