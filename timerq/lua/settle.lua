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
-- KEYS stream  stream – where the events are
-- KEYS lease   zset   – entry -> until when (ms) whoever holds it may run it
-- KEYS retry   zset   – entry -> when it is tried again (ms)
-- KEYS hold    hash   – entry -> who holds it; see `read_hold` in the prologue
-- KEYS dead    stream – the group's dead letters
-- KEYS never   none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout   text   – what the consumer believes
-- ARGV schema   text   – what the consumer believes
-- ARGV now_ms   ms     – the manual clock's time, else empty
-- ARGV seq      number – this request's number in its session
-- ARGV group    text
-- ARGV consumer text   – who was handed them
-- ARGV item*           – each item's "verb entry delivery ms", and for ack its outcome; for retry its error; for reject its
--                        error, traceback and outcome. ms: when it is tried again (retry; back: 0 for at once), or how long it
--                        is still held (extend)
--
-- RETURN a line an item:
--   SETTLED
--   NOT_HELD      – another one has it by now, or it was settled before: nothing was changed
--   BROKEN reason – it is still held
--
-- Nothing is changed unless the consumer holds that delivery, and nothing but the hold unless the group still waits for it.

local call, match, find, sub = redis.call, string.match, string.find, string.sub
local lines = {head_line}
local entries, cleared, leased = {}, {}, {}

local TEXTS = {ack = 1, retry = 1, reject = 3, extend = 0, back = 0}
local items = {}
local a = first_item_arg
while a <= #ARGV do
  local verb, entry, delivery, ms = match(ARGV[a], '^(%l+) (%S+) (%d+) (%d+)$')
  items[#items + 1] = {verb = verb, entry = entry, delivery = tonumber(delivery), ms = tonumber(ms), texts = a + 1}
  entries[#items] = entry
  a = a + 1 + TEXTS[verb]
end

-- One of a record's values: more than 64 bytes would double the record's size.
local function short(text)
  if #text <= 64 then return text end
  return (string.gsub(sub(text, 1, 64), '[\192-\255][\128-\191]*$', ''))
end

-- Notes with the schedule's last fires what became of an occurrence. What a trigger or a backfill made is none.
local function note(item, word, summary)
  if not find(item.event, '%-[1-9]%d*$') then return end
  local record = PREFIX .. 'sch:' .. item.id
  local totals = redis.pcall('HGET', record, 't')
  if type(totals) ~= 'string' then return end
  local fires = call('HMGET', record, 'l0', 'l1', 'l2', 'l3', 'l4', 'l5', 'l6', 'l7', 'l8', 'l9')
  for i = 1, 10 do
    if fires[i] and match(fires[i], '^%d+') == item.at then
      call('HSET', record, 'r' .. i - 1, short(item.at .. ' ' .. word .. ' ' .. item.attempt .. ' ' .. summary))
    end
  end
end

local function hold_text(item, consumer, attempt, failed)
  return consumer .. ' ' .. int(item.delivery) .. ' ' .. attempt .. ' ' .. failed .. ' ' .. item.rest
end

local function acknowledged(item)
  cleared[#cleared + 1] = item.entry
  return call('XACK', k_stream, a_group, item.entry) == 1
end

local function is_pending(item)
  return #call('XPENDING', k_stream, a_group, item.entry, item.entry, 1) == 1
end

-- Keeps it in the group's pending list, where no crash loses it and no other group sees it again, but with nobody.
local function put_down(item, attempt, failed)
  call('XCLAIM', k_stream, a_group, no_consumer(), 0, item.entry, 'JUSTID')
  call('HSET', k_hold, item.entry, hold_text(item, no_consumer(), attempt, failed))
end

local VERBS = {}

function VERBS.ack(item)
  if not acknowledged(item) then return 'NOT_HELD' end
  if item.id then
    finish_for(a_group, item.id, item.event)
    note(item, 'ok', ARGV[item.texts])
  end
  return 'SETTLED'
end

function VERBS.retry(item)
  if not is_pending(item) then return 'NOT_HELD' end
  call('ZADD', k_retry, int(item.ms), item.entry)
  put_down(item, item.attempt, item.failed == '0' and now_text or item.failed)
  call('ZREM', k_lease, item.entry)
  if item.id then note(item, 'retry', ARGV[item.texts]) end
  return 'SETTLED'
end

function VERBS.back(item)
  if not is_pending(item) then return 'NOT_HELD' end
  if item.ms > 0 then
    call('ZADD', k_retry, int(item.ms), item.entry)
    call('ZREM', k_lease, item.entry)
  else
    call('ZADD', k_lease, 0, item.entry)
  end
  put_down(item, math.max(0, item.attempt - 1), item.failed)
  return 'SETTLED'
end

function VERBS.extend(item)
  leased[#leased + 1] = int(now_ms + item.ms)
  leased[#leased + 1] = item.entry
  return 'SETTLED'
end

function VERBS.reject(item)
  if not is_pending(item) then
    acknowledged(item)
    return 'NOT_HELD'
  end
  local entry = call('XRANGE', k_stream, item.entry, item.entry)[1]
  local fields = entry and entry[2] or {'id', item.event, 'at', item.at}
  local failed = item.failed == '0' and now_text or item.failed
  for _, word in ipairs({'error', ARGV[item.texts], 'traceback', ARGV[item.texts + 1], 'attempts', item.attempt,
    'first_failed_ms', failed, 'last_failed_ms', now_text, 'group', a_group, 'entry', item.entry}) do
    fields[#fields + 1] = word
  end
  call('XADD', k_dead, '*', unpack(fields))
  acknowledged(item)
  call('HINCRBY', k_meta, 'dead', 1)
  if item.id then
    finish_for(a_group, item.id, item.event, ARGV[item.texts])
    note(item, 'failed', ARGV[item.texts + 2] ~= '' and ARGV[item.texts + 2] or ARGV[item.texts])
  end
  return 'SETTLED'
end

-- the first write is one that a server out of memory refuses: nothing is then half done
call('HSET', k_meta, 'settled_ms', now_text)
local holds = #entries > 0 and call('HMGET', k_hold, unpack(entries)) or {}
for i = 1, #items do
  local item = items[i]
  local holder
  local delivery
  holder, delivery, item.attempt, item.failed, item.rest = read_hold(holds[i])
  if holder ~= a_consumer or delivery ~= item.delivery then
    lines[i + 1] = 'NOT_HELD'
  else
    item.event, item.at, item.id = match(item.rest, '^(%S+) (%d+) (.*)$')
    if item.event == '-' then item.id = nil end
    local fine, word = pcall(VERBS[item.verb], item)
    lines[i + 1] = fine and word or 'BROKEN ' .. reason(word)
    holds[i] = nil
  end
end
if #cleared > 0 then
  call('ZREM', k_lease, unpack(cleared))
  call('HDEL', k_hold, unpack(cleared))
end
if #leased > 0 then call('ZADD', k_lease, unpack(leased)) end
return remember({table.concat(lines, '\n')})
