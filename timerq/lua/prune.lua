-- Cancels schedules that a declared set no longer has.
--
-- KEYS meta       hash   – the partition
-- KEYS req        string – the session's last request
-- KEYS heads      zset   – the tenants by their earliest instant
-- KEYS keys       zset   – every id
-- KEYS held       zset   – ids that could not be fired
-- KEYS log        stream – the exceptions
-- KEYS floors     zset   – whose floor -> when it was left (ms)
-- KEYS fired_new list – of which ids events may be out, and no record tells
-- KEYS fired string – the same, from before that: a bitmap by their hashes
-- KEYS fired_before string – the same, from before that
-- KEYS due        zset   – the tenant's pending ids
-- KEYS set        zset   – the set's ids; under the empty one, the generation announced
-- KEYS item*             – each item's record and floor
-- ARGV layout     text   – what the client believes
-- ARGV schema     text   – what the client believes
-- ARGV now_ms     ms     – the manual clock's time, else empty
-- ARGV seq        number – this request's number in its session
-- ARGV tenant     text
-- ARGV label      text   – the set's name
-- ARGV generation number – the apply's
-- ARGV by         text   – who applies it
--
-- RETURN a line an item; or one line, and nothing is done, where another apply has been announced:
--   PRUNED version at     – it will never fire
--   STRANGER              – its record is gone, or not this set's: left as it is, and no longer looked for
--   BROKEN reason         – the stored record cannot be touched
--   SUPERSEDED generation – 0: none is announced any more

local announced = tonumber(redis.call('ZSCORE', k_set, '') or 0)
if announced ~= tonumber(a_generation) then
  return remember({head_line .. '\nSUPERSEDED ' .. int(announced)})
end

local lines = {head_line}
local prefix = #PREFIX + 5

local function prune(record, id)
  if redis.call('HGET', record, 'y') ~= a_label then
    redis.call('ZREM', k_set, id)
    return 'STRANGER'
  end
  local stored = redis.call('HMGET', record, 's', 't', 'g')
  local _, version, at, _, n = parse_state(stored[1] or '')
  bury(id, n, stored[2], stored[3], version or meta[4] or '0')
  version, at = version or '0', at or '0'
  log('cancelled', id, version, 'pruned from ' .. a_label, a_by)
  forget(id, k_due)
  redis.call('ZREM', k_set, id)
  return 'PRUNED ' .. version .. ' ' .. at
end

for k = first_item_key, #KEYS, 2 do
  local fine, said = pcall(prune, KEYS[k], string.sub(KEYS[k], prefix))
  lines[#lines + 1] = fine and said or 'BROKEN ' .. reason(said)
end

settle(a_tenant, k_due)
return remember({table.concat(lines, '\n')})
