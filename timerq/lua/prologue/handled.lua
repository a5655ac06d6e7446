-- What it means for a schedule that its event was handled, and who holds an event that was handed out.

-- The place of an event that is waited for among the schedule's: it runs, it is of the armed version but not the last one,
-- or nobody waits for it any more (nil). Also whether another one waits for it, and until when (ms) it may run.
local function waited_for(r, event)
  local running, deadline, waits = string.match(r and r.u or '', '^(%S+) (%d+)( ?w?)$')
  local runs = running == event
  if not r or runs and tonumber(deadline) <= now_ms then return nil end -- fire.lua finds that out, and says so in the log
  -- of the versions before only the last event is waited for; another one may be of a schedule that has gone
  if not runs and string.match(event, '^%d+%-(%d+)%-') ~= r.version then return nil end
  return runs and 'runs' or 'older', waits == ' w', tonumber(deadline)
end

-- Counts an event as handled, or as failed where a text says why, and lets what waits for that go on. `r` and `policy` are
-- read before anything is written. Returns DONE or PAUSED, the version, and the next instant; nil where nobody waits for it.
local function finish(id, r, policy, event, failure)
  redis.call('DEL', PREFIX .. 'run:' .. event)
  local place, waits, deadline = waited_for(r, event)
  if not place then return nil end
  local runs = place == 'runs'
  local record, tenant = PREFIX .. 'sch:' .. id, string.match(id, '^[^%z]*')
  if runs then redis.call('HDEL', record, 'u') end
  local due = PREFIX .. 'due:' .. tenant
  local before = earliest()
  local word = 'DONE'
  local at = r.at
  local note = string.sub(failure or '', 1, 200)
  if not failure then
    redis.call('HDEL', record, 'q')
  else
    local failures = (tonumber(r.q) or 0) + 1
    redis.call('HSET', record, 'q', int(failures))
    log('failed', id, r.version, event .. ' ' .. note)
    if policy and policy.pause_after > 0 and failures >= policy.pause_after and r.state ~= 'p' then
      word = 'PAUSED'
      note = int(failures) .. (failures == 1 and ' failure' or ' failures') .. ' in a row: ' .. note
    end
  end
  if runs and policy and policy.delay and policy.group then
    local next_at = now_ms + tonumber(r.every)
    -- An event of the version before: this one has a start, which is still to come unless fire.lua has put it off.
    local put_off = deadline + tonumber(r.every)
    if r.n == '0' and tonumber(r.at) ~= put_off then next_at = math.max(next_at, tonumber(r.at)) end
    local ending = tonumber(string.match(r.w or '', '^%d+')) or 253402300799999
    at = int(next_at)
    if next_at > ending then
      note_fired({id})
      forget(id, due)
      log('ended', id, r.version, 'until ' .. read_totals(r.t))
      settle(tenant, due)
      return 'DONE', r.version, at
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
  elseif waits and runs and r.state == 'a' then
    redis.call('ZADD', due, at, id)
  end
  settle(tenant, due)
  wake_if_earlier(before)
  return word, r.version, at
end

-- The same for an event that a group has handled: what waits for another group, or cannot be read, stays as it is.
local function finish_for(group, id, event, failure)
  if redis.call('EXISTS', PREFIX .. 'run:' .. event) == 0 then return end
  local fine, r = pcall(read_record, redis.call('HGETALL', PREFIX .. 'sch:' .. id))
  local known, policy = pcall(read_policy, fine and r and r.o or nil)
  if fine and known and not (policy and policy.group and policy.group ~= group) then
    finish(id, r, policy, event, failure)
  end
end

-- What a hold says: the consumer, the delivery, the attempt (with a 0 in front where it is not known to have begun, and
-- does not count), when it first failed (ms; 0: never), and the rest: the event's id, when it was due, and its schedule's id.
local function read_hold(text)
  local consumer, delivery, attempt, failed, rest = string.match(text, '^(%S+) (%d+) (%d+) (%d+) (.*)$')
  return consumer, tonumber(delivery), attempt, failed, rest
end

-- No consumer can have this name.
local function no_consumer() return '(waiting)' end
