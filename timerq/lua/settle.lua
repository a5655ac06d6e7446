-- Says what became of events that a consumer was handed: handled, to be tried again, given up, held for longer, handed back.
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
-- KEYS stream  stream – where the events are
-- KEYS lease   zset   – entry -> until when (ms) whoever holds it may run it
-- KEYS retry   zset   – entry -> when it is tried again (ms)
-- KEYS hold    hash   – entry -> who holds it; see `read_hold` in prologue/handled; entry! -> its failures so far, see `past_of`
-- KEYS dead    stream – the group's dead letters
-- KEYS never   none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout   text   – what the consumer believes
-- ARGV schema   text   – what the consumer believes
-- ARGV now_ms   ms     – the manual clock's time, else empty
-- ARGV seq      number – this request's number in its session
-- ARGV group    text
-- ARGV consumer text   – who was handed them
-- ARGV item*           – each item's letter and delivery as one word, its entry, and by the letter: a (ack) nothing, o (ack)
--                        the outcome; t (retry) when it is tried again (ms) and the error; r (reject) the error, the
--                        traceback and the outcome, u the same where no handling of it has begun; e (extend) for how long
--                        from now (ms); s (begin) nothing; b (back) from when on (ms; 0: at once)
--
-- RETURN a line an item:
--   SETTLED
--   NOT_HELD      – another one has it by now, or it was settled before: nothing was changed
--   STALE         – (begin) it was cancelled, or its owner has gone, since it was handed out: acknowledged, not to be handled
--   BROKEN reason – it is still held
--
-- Nothing is changed unless the consumer holds that delivery, and nothing but the hold unless the group still waits for it.

local WORDS = 2000 -- a call to Redis takes about four times as many
local PAST = 9 -- failures before the last one

local call, match, find, sub, byte = redis.call, string.match, string.find, string.sub, string.byte
local lines = {head_line}
local cleared = {}
local dead = {} -- items that are to begin, and whose schedule or owner has gone since they were handed out

-- What is cut ends with an ellipsis.
local function cut(text, most)
  if #text <= most then return text end
  local last = most - 3
  while last > 0 and byte(text, last + 1) >= 128 and byte(text, last + 1) < 192 do last = last - 1 end
  return sub(text, 1, last) .. '\226\128\166'
end

-- The failures of an event before this one: a line each, the oldest first, of its attempt, when (ms), and why; the last few.
local function past_of(item)
  return item.failed ~= '0' and call('HGET', k_hold, item.entry .. '!') or ''
end

local function past_with(past, attempt, why)
  local line = attempt .. ' ' .. now_text .. ' ' .. cut(string.gsub(why, '%s+', ' '), 200)
  if past == '' then return line end
  local _, breaks = string.gsub(past, '\n', '')
  if breaks >= PAST - 1 then past = match(past, '\n(.*)$') end
  return past .. '\n' .. line
end

-- Notes with the schedule's last fires what became of an occurrence.
local function note(item, word, summary)
  local record = PREFIX .. 'sch:' .. item.id
  local fires = redis.pcall('HMGET', record, 'l0', 'l1', 'l2', 'l3', 'l4', 'l5', 'l6', 'l7', 'l8', 'l9')
  if fires.err then return end
  for i = 1, 10 do
    if fires[i] and match(fires[i], '^%d+') == item.at then
      -- more than 64 bytes would double the record's size
      call('HSET', record, 'r' .. i - 1, cut(item.at .. ' ' .. word .. ' ' .. item.attempt .. ' ' .. summary, 64))
    end
  end
end

-- What an event that is settled means for its schedule, if there still is one; what a trigger or a backfill made is no
-- occurrence of it.
local function tell_schedule(item, word, summary, failure)
  if not item.is_stored then return end
  if word ~= 'retry' then finish_for(a_group, item.id, item.event, failure) end
  if find(item.event, '%-[1-9]%d*$') then note(item, word, summary) end
end

local function forget_hold(item)
  cleared[#cleared + 1] = item.entry
  if item.failed ~= '0' then cleared[#cleared + 1] = item.entry .. '!' end
end

local function acknowledged(item)
  local count = call('XACK', k_stream, a_group, item.entry) -- raises on what is no stream: then it is still held
  forget_hold(item)
  if count == 1 and meta[7] then pcall(count_out, sub(k_stream, #PREFIX + 3), a_group, item.id, item.entry) end
  return count == 1
end

-- Whether the group still waits for it; what it does not wait for, nobody holds.
local function is_pending(item)
  local found = redis.pcall('XPENDING', k_stream, a_group, item.entry, item.entry, 1)
  if found.err and not find(reason(found), 'NOGROUP') then error(reason(found), 0) end
  if #found == 1 then return true end
  forget_hold(item)
  return false
end

-- Keeps it in the group's pending list, where no crash loses it and no other group sees it again, but with nobody.
local function put_down(item, attempt, failed)
  call('XCLAIM', k_stream, a_group, no_consumer(), 0, item.entry, 'JUSTID')
  call('HSET', k_hold, item.entry, table.concat(
    {no_consumer(), item.delivery, attempt, failed, item.event, item.at, item.id}, ' '))
end

local VERBS = {}

function VERBS.o(item, outcome)
  if not acknowledged(item) then return 'NOT_HELD' end
  tell_schedule(item, 'ok', outcome)
  return 'SETTLED'
end

function VERBS.a(item) return VERBS.o(item, '') end -- what comes behind it is the next item's

function VERBS.t(item, ms, why)
  if not is_pending(item) then return 'NOT_HELD' end
  call('ZADD', k_retry, ms, item.entry)
  call('ZREM', k_lease, item.entry)
  call('HSET', k_hold, item.entry .. '!', past_with(past_of(item), item.attempt, why))
  put_down(item, item.attempt, item.failed == '0' and now_text or item.failed)
  tell_schedule(item, 'retry', why)
  return 'SETTLED'
end

function VERBS.b(item, ms)
  if not is_pending(item) then return 'NOT_HELD' end
  if ms == '0' then
    call('ZADD', k_lease, 0, item.entry)
  else
    call('ZADD', k_retry, ms, item.entry)
    call('ZREM', k_lease, item.entry)
  end
  put_down(item, item.is_suspect and '0' .. item.attempt or int(math.max(0, tonumber(item.attempt) - 1)), item.failed)
  return 'SETTLED'
end

function VERBS.s(item)
  if dead[item] then
    if not acknowledged(item) then return 'NOT_HELD' end
    call('HINCRBY', k_meta, 'stale', 1)
    finish_for(a_group, item.id, item.event)
    return 'STALE'
  end
  if not is_pending(item) then return 'NOT_HELD' end
  call('HSET', k_hold, item.entry, table.concat(
    {a_consumer, item.delivery, item.attempt, item.failed, item.event, item.at, item.id}, ' '))
  return 'SETTLED'
end

function VERBS.e(item, ms)
  call('ZADD', k_lease, 'XX', int(now_ms + tonumber(ms)), item.entry)
  return 'SETTLED'
end

function VERBS.r(item, why, traceback, outcome)
  if not is_pending(item) then return 'NOT_HELD' end
  local entry = call('XRANGE', k_stream, item.entry, item.entry)[1]
  local fields = entry and entry[2] or {'id', item.event, 'at', item.at}
  local failed = item.failed == '0' and now_text or item.failed
  if #fields > WORDS then -- not by timerq
    why = why .. ' (of its ' .. #fields / 2 .. ' fields, these are the first ' .. WORDS / 2 .. ')'
    for i = #fields, WORDS + 1, -1 do fields[i] = nil end
  end
  for _, word in ipairs({'error', why, 'traceback', traceback, 'history', past_of(item), 'attempts', item.attempt,
    'first_failed_ms', failed, 'last_failed_ms', now_text, 'group', a_group, 'entry', item.entry}) do
    fields[#fields + 1] = word
  end
  call('XADD', k_dead, '*', unpack(fields))
  acknowledged(item)
  call('HINCRBY', k_meta, 'dead', 1)
  tell_schedule(item, 'failed', outcome ~= '' and outcome or why, why)
  return 'SETTLED'
end

function VERBS.u(item, why, traceback, outcome)
  item.attempt = int(math.max(0, tonumber(item.attempt) - 1))
  return VERBS.r(item, why, traceback, outcome)
end

local TEXTS = {a = 0, s = 0, o = 1, t = 2, r = 3, u = 3, e = 1, b = 1}
local words, entries = {}, {}
local a = first_item_arg
while a < #ARGV do
  words[#words + 1] = a
  entries[#words] = ARGV[a + 1]
  a = a + 2 + TEXTS[sub(ARGV[a], 1, 1)]
end

-- the first write is one that a server out of memory refuses: nothing is then half done
call('HSET', k_meta, 'settled_ms', now_text)
local holds = #entries > 0 and call('HMGET', k_hold, unpack(entries)) or {}
local items, of, ids = {}, {}, {}
local versions, floors, whose = {}, {}, {}
for i = 1, #words do
  local hold = holds[i]
  local delivery = sub(ARGV[words[i]], 2)
  local front = a_consumer .. ' ' .. delivery .. ' '
  if hold and sub(hold, 1, #front) == front then
    local attempt, failed, event, at, id = match(hold, '^(%d+) (%d+) (%S+) (%d+) (.*)$', #front + 1)
    local is_suspect = byte(attempt) == 48 and #attempt > 1
    if is_suspect then attempt = sub(attempt, 2) end
    items[i] = {entry = entries[i], delivery = delivery, attempt = attempt, is_suspect = is_suspect, failed = failed,
      event = event, at = at, id = id}
    local letter = byte(ARGV[words[i]])
    if event == '-' or letter == 101 then
      -- nothing is asked of its schedule
    elseif letter ~= 115 then
      of[#of + 1] = items[i]
      ids[#of] = id
    elseif k_stream ~= PREFIX .. 's:errors' then -- the same rule as receive.lua's
      versions[items[i]] = append_floors_of(floors, whose, items[i], event, id)
    end
  end
end
if #ids > 0 then
  local scores = call('ZMSCORE', k_keys, unpack(ids))
  for i = 1, #ids do
    if scores[i] then of[i].is_stored = true end
  end
end

mark_dead(dead, versions, floors, whose)

local settled = {}
for i = 1, #words do
  local item, letter = items[i], sub(ARGV[words[i]], 1, 1)
  -- (one that is named twice is settled once; a lease may be lengthened before)
  if not item or settled[item.entry] then
    lines[i + 1] = 'NOT_HELD'
  else
    if letter ~= 'e' and letter ~= 's' then settled[item.entry] = true end
    local first = words[i] + 2
    local fine, word = pcall(VERBS[letter], item, ARGV[first], ARGV[first + 1], ARGV[first + 2])
    lines[i + 1] = fine and word or 'BROKEN ' .. reason(word)
    if word == 'STALE' then settled[item.entry] = true end
  end
end
if #cleared > 0 then
  call('ZREM', k_lease, unpack(cleared))
  call('HDEL', k_hold, unpack(cleared))
end
return remember({table.concat(lines, '\n')})
