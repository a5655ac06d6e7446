-- Destroys an owner: writes first the floor below which all of it is dead, then sweeps a bounded piece of its schedules.
--
-- KEYS meta        hash   – the partition
-- KEYS req         string – the session's last request
-- KEYS heads       zset   – the tenants by their earliest instant
-- KEYS keys        zset   – every id
-- KEYS held        zset   – ids that could not be fired
-- KEYS log         stream – the exceptions
-- KEYS due         zset   – the tenant's pending ids
-- KEYS never       none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- KEYS index       zset   – the owner's ids
-- KEYS floor       string – the version up to which everything of the owner is dead
-- KEYS floors      zset   – whose floor -> when it was left (ms)
-- KEYS owners      zset   – owners by the end of their heartbeat, and those that are not swept yet
-- ARGV layout      text   – what the client believes
-- ARGV schema      text   – what the client believes
-- ARGV now_ms      ms     – the manual clock's time, else empty
-- ARGV seq         number – this request's number in its session
-- ARGV tenant      text
-- ARGV owner       text
-- ARGV incarnation number – the handle's: one that is gone destroys nobody else's; empty: whoever's
-- ARGV silent      text   – 1: only where its heartbeat has stopped
-- ARGV ceiling     number – the floor that a sweep began with; empty at its first piece, which writes it
-- ARGV from        lex    – where the piece begins
-- ARGV limit       number – how many ids to look at
--
-- RETURN one line; behind the text, where there is more, the last id seen
--   DESTROYED swept ceiling
--   OWNER_GONE swept ceiling – the incarnation was gone before; only what was left of it is swept
--   ALIVE                    – its heartbeat was heard; nothing was done
--
-- Running it twice is harmless: what is armed above the ceiling, by a later incarnation, stays. A sweep that nobody leads
-- to its end is marked in `owners`, by a negative ceiling, for a dispatcher to do so.

local member = a_tenant .. '\0' .. a_owner
local mark = member .. '\0'
local word = 'DESTROYED'
local ceiling = a_ceiling
local swept = 0

if ceiling == '' then
  if a_silent == '1' then
    local ending = redis.call('ZSCORE', k_owners, member)
    if not ending or tonumber(ending) > server_now_ms() then
      return remember({head_line .. '\nALIVE'})
    end
  end
  local dead = redis.call('GET', k_floor)
  if a_incarnation ~= '' and dead and tonumber(a_incarnation) <= tonumber(dead) then
    word = 'OWNER_GONE'
    ceiling = dead
  else
    ceiling = meta[4] or '0'
    -- a removal comes first: a server that is out of memory lets the floor be written behind it, and memory is freed
    redis.call('ZREM', k_owners, member)
    leave_floor(member, ceiling)
  end
end

local ids = redis.call('ZRANGEBYLEX', k_index, a_from, '+', 'LIMIT', 0, a_limit)
local more = #ids == tonumber(a_limit)
if a_ceiling == '' and word == 'DESTROYED' and #ids > 0 then
  log('destroyed', a_tenant .. '\0\0' .. a_owner, '0', a_silent == '1' and 'its heartbeat stopped' or '')
end

local highest = tonumber(ceiling)
local gone, records, count = {}, {}, 0
local try, match, front = redis.pcall, string.match, PREFIX .. 'sch:'
for i = 1, #ids do
  local id = ids[i]
  local record = front .. id
  local old = try('HGET', record, 's')
  local foreign = false
  if old and type(old) == 'table' then
    -- any other error (a slot on the move) must not pass for "no record": it ends the script, and the sweep is asked again
    if not string.find(reason(old), 'WRONGTYPE') then error(reason(old), 0) end
    foreign = true
  end
  local version = not foreign and old and match(old, '^%l (%d+) ')
  if not foreign and (not version or tonumber(version) <= highest) then
    count = count + 1
    gone[count], records[count] = id, record
    if old then swept = swept + 1 end
  end
end

if count > 0 then
  redis.call('DEL', unpack(records))
  redis.call('ZREM', k_due, unpack(gone))
  redis.call('ZREM', k_keys, unpack(gone))
  redis.call('ZREM', k_held, unpack(gone))
  redis.call('ZREM', k_index, unpack(gone)) -- last: what is in it is looked at again
  settle(a_tenant, k_due)
end

if not more then
  local left = redis.call('ZSCORE', k_owners, mark)
  if left and -tonumber(left) <= highest then redis.call('ZREM', k_owners, mark) end
elseif a_ceiling == '' then
  redis.call('ZADD', k_owners, '-' .. ceiling, mark)
end
local reply = {head_line .. '\n' .. word .. ' ' .. swept .. ' ' .. ceiling}
if more then reply[2] = ids[#ids] end
return remember(reply)
