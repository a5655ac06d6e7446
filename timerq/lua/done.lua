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

local MAX_MS = 253402300799999

local id = redis.call('GET', k_run)
local record = id and PREFIX .. 'sch:' .. id
if id and string.match(id, '^[^%z]*') ~= a_tenant then id = nil end -- another tenant's, of which this one knows nothing
if not id then return remember({head_line .. '\nNOT_PENDING'}) end
local r = read_record(redis.call('HGETALL', record))
local policy = r and read_policy(r.o) -- what cannot be read raises before anything is written
redis.call('HSET', k_meta, 'done_ms', int(now_ms)) -- a server out of memory refuses this: nothing is half done
redis.call('DEL', k_run)

local event, deadline, waits = string.match(r and r.u or '', '^(%S+) (%d+)( ?w?)$')
local runs = event == a_event
local is_late = runs and tonumber(deadline) <= now_ms -- fire.lua finds out, and says so in the log
-- of the versions before only the last event is waited for; another one may be of a schedule that has gone
local is_old = r and not runs and string.match(a_event, '^%d+%-(%d+)%-') ~= r.version
if not r or is_late or is_old then return remember({head_line .. '\nNOT_PENDING'}) end
if runs then redis.call('HDEL', record, 'u') end

local due = PREFIX .. 'due:' .. a_tenant
local before = earliest()
local word = 'DONE'
local at = r.at
local note = string.sub(a_error, 1, 200)

if a_error == '' then
  redis.call('HDEL', record, 'q')
else
  local failures = (tonumber(r.q) or 0) + 1
  redis.call('HSET', record, 'q', int(failures))
  log('failed', id, r.version, a_event .. ' ' .. note)
  if policy and policy.pause_after > 0 and failures >= policy.pause_after and r.state ~= 'p' then
    word = 'PAUSED'
    note = int(failures) .. (failures == 1 and ' failure' or ' failures') .. ' in a row: ' .. note
  end
end

if runs and policy and policy.delay and policy.group then
  local next_at = now_ms + tonumber(r.every)
  -- An event of the version before: this one has a start, which is still to come unless fire.lua has put it off.
  local put_off = tonumber(deadline) + tonumber(r.every)
  if r.n == '0' and tonumber(r.at) ~= put_off then next_at = math.max(next_at, tonumber(r.at)) end
  local ending = tonumber(string.match(r.w or '', '^%d+')) or MAX_MS
  at = int(next_at)
  if next_at > ending then
    forget(id, due)
    log('ended', id, r.version, 'until ' .. read_totals(r.t))
    settle(a_tenant, due)
    return remember({head_line .. '\nDONE ' .. r.version .. ' ' .. at, id})
  end
end
if word == 'PAUSED' then
  redis.call('HSET', record, 's', state_text('p', r.version, at, r.following, r.n), 'z', pause_note('timerq', note))
  redis.call('HDEL', record, 'e')
  redis.call('ZREM', k_held, id)
  redis.call('ZREM', due, id)
  log('paused', id, r.version, note, 'timerq')
  report('schedule.paused', id, r.version, 'p' .. int(now_ms), at, r.n, note)
elseif at ~= r.at then
  redis.call('HSET', record, 's', state_text(r.state, r.version, at, r.following, r.n))
  if r.state ~= 'p' then redis.call('ZADD', due, at, id) end
elseif waits == ' w' and runs and r.state == 'a' then
  redis.call('ZADD', due, at, id)
end
settle(a_tenant, due)
wake_if_earlier(before)
return remember({head_line .. '\n' .. word .. ' ' .. r.version .. ' ' .. at, id})
