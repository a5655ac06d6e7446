-- Cancels pending schedules of one tenant.
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
-- KEYS item*          – each item's record and floor; where it has an owner, the owner's index and floor
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV seq     number – this request's number in its session
-- ARGV tenant  text
-- ARGV item*          – each item's if_version (empty for any), by, and the owner handle's incarnation (or empty)
--
-- RETURN a line an item:
--   CANCELLED version at     – it will never fire
--   NOT_PENDING              – nothing waits under this key; what has fired before can be told by the floor
--   VERSION_MISMATCH version
--   OWNER_GONE floor         – the handle's owner was destroyed
--   BROKEN reason            – the stored record cannot be touched

local lines = {head_line}
local prefix = #PREFIX + 5
local k = first_item_key

for a = first_item_arg, #ARGV, 3 do
  local record = KEYS[k]
  local id = string.sub(record, prefix)
  local dead
  if string.byte(id, -1) == 0 then
    k = k + 2
  else
    if ARGV[a + 2] ~= '' then dead = redis.call('GET', KEYS[k + 3]) end
    k = k + 4
  end
  local stored = redis.pcall('HMGET', record, 's', 't', 'g')
  local old = stored[1]
  local line
  if dead and tonumber(ARGV[a + 2]) <= tonumber(dead) then
    line = 'OWNER_GONE ' .. dead
  elseif stored.err then
    line = 'BROKEN ' .. reason(stored)
  elseif not old and redis.call('EXISTS', record) == 0 then
    if ARGV[a] ~= '' and ARGV[a] ~= '0' then
      line = 'VERSION_MISMATCH 0'
    else
      line = 'NOT_PENDING'
      leave_floor(id, meta[4] or '0')
    end
  else
    local _, version, at, _, n = parse_state(old or '')
    local dead_up_to = version or meta[4] or '0'
    version, at = version or '0', at or '0'
    if ARGV[a] ~= '' and ARGV[a] ~= version then
      line = 'VERSION_MISMATCH ' .. version
    else
      bury(id, n, stored[2], stored[3], dead_up_to)
      log('cancelled', id, version, '', ARGV[a + 1])
      forget(id, k_due)
      line = 'CANCELLED ' .. version .. ' ' .. at
    end
  end
  lines[#lines + 1] = line
end

settle(a_tenant, k_due)
return remember({table.concat(lines, '\n')})
