-- Hands a consumer of a group the events it is to handle now: those due for another try, those whose holder is gone, new ones.
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
-- KEYS stream  stream – what is read
-- KEYS groups  zset   – stream NUL group -> when somebody last read for it (ms)
-- KEYS lease   zset   – entry -> until when (ms) whoever holds it may run it
-- KEYS retry   zset   – entry -> when it is tried again (ms)
-- KEYS hold    hash   – entry -> who holds it; see `read_hold` in prologue/handled; entry! -> its failures so far
-- KEYS reader  string – who alone reads for an ordered group
-- KEYS never   none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout   text   – what the consumer believes
-- ARGV schema   text   – what the consumer believes
-- ARGV now_ms   ms     – the manual clock's time, else empty
-- ARGV seq      number – this request's number in its session
-- ARGV name     text   – the stream's
-- ARGV group    text   – whose place in the stream it is
-- ARGV consumer text   – who asks
-- ARGV epoch    number – of the reader's lease, for an ordered group; empty for any other
-- ARGV count    number – how many entries to look at, at the most
-- ARGV lease_ms ms     – how long what is handed out is the consumer's
-- ARGV after    entry  – to be told what is held already, page by page: the last entry seen (0-0 at first); else empty
-- ARGV current  text   – 1: leave out events whose schedule has changed or is paused since
-- ARGV fresh    text   – 0: no new ones, for there is no room; else 1
--
-- RETURN one line, then one for each event; behind the text, each one's fields and values as an array of their own:
--   RECEIVED stale gone wait_us more end entry…
--                                           – wait: until another may be had without a new event, - for never; more: where the
--                                             next page begins, - for none; end: the stream's last entry, where there is nothing
--                                             more to be read, else -; entries, to the reader of an ordered group: these
--                                             never come, nor come again; * in front: nor does any other of before
--   EVENT entry delivery attempt waits_ms   – attempt: with a 0 in front where it counts only if it begins, which settle is
--                                             to be told; waits: when it is tried again; told to the reader of an ordered group, not handed out
--   NOT_LEADING                             – another one reads for the ordered group
--   AGAIN                                   – this request was answered before: what it handed out is held already
--   BROKEN reason                           – not a stream
--
-- A lost reply must strand nothing, and is too large to be kept: so only that there was one is remembered. Who takes what
-- over goes by the leases, never by how long an entry was pending: one that waits for its retry is pending for long.
--
-- Attempts count where an event is handed out: to be told of each beginning would cost a call. What is taken over from one
-- that is gone counts as begun once, and from then on only when it is said to begin: so who goes each time because of it is
-- its own death, and what only lay beside it loses one attempt at the most.

local ENTRIES, PIECE, USUAL_BYTES, STRANGERS, WAITING = 200, 16, 65536, 1000, 100

local call, match, byte, find = redis.call, string.match, string.byte, string.find
local count = math.min(tonumber(a_count), ENTRIES)
local lease_until = int(now_ms + tonumber(a_lease_ms))
local is_ordered, is_page = a_epoch ~= '', a_after ~= ''
local reply, lines = {''}, {head_line, ''}
local leased, holds, cleared = {}, {}, {}
local looked, stale, gone, bytes, largest = 0, 0, 0, 0, USUAL_BYTES

remember({head_line .. '\nAGAIN'})
if is_ordered and call('GET', k_reader) ~= a_consumer .. ' ' .. a_epoch then return {head_line .. '\nNOT_LEADING'} end

-- A field of what others have written; events have theirs where emit puts them.
local function value_of(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
end

local function parts(f)
  if f[1] == 'id' and f[5] == 'key' and f[7] == 'tenant' and f[9] == 'owner' and f[11] == 'at' and f[17] == 'version' then
    return f[2], f[6], f[8], f[10], f[12], f[18]
  end
  return value_of(f, 'id'), value_of(f, 'key'), value_of(f, 'tenant'), value_of(f, 'owner'), value_of(f, 'at'),
    value_of(f, 'version')
end

-- Whether the schedule has changed or is paused since. (Who triggers a paused one wants its event.)
local function is_superseded(id, event, version)
  local state = redis.pcall('HGET', PREFIX .. 'sch:' .. id, 's')
  local letter, stored = match(type(state) == 'string' and state or '', '^(%l) (%d+) ')
  if not letter then return false end
  return tonumber(stored) > version or (letter == 'p' and not find(event, '%-[tb]%d+$'))
end

local dead, ids, events, versions, due = {}, {}, {}, {}, {} -- of what is handed out together, by its position

-- Reads what the entries say of themselves and, all in one go, their floors. (Reports do not go with what they are about.)
local function look_at(entries)
  local floors, whose = {}, {}
  for i = 1, #entries do
    local event, key, tenant, owner, at, version = parts(entries[i][2])
    version = tonumber(version)
    if event and key and tenant and owner and version and not find(event, '[%s%z]') and event ~= '' then
      local id = tenant .. '\0' .. key .. '\0' .. owner
      ids[i], events[i], versions[i], due[i] = id, event, version, at
      if a_name ~= 'errors' then append_floors(floors, whose, i, event, id, tenant, owner) end
    else
      ids[i] = nil
    end
    dead[i] = nil
  end
  mark_dead(dead, versions, floors, whose)
end

local bound = bound_of(a_name)
local is_bounded = bound and bound.group == a_group

-- Where the oldest go when there are too many: whether a new one is among these, and is not handed out.
local function drop_too_old(entry, id, event, version, at)
  local why = too_old(bound, id, entry)
  if not why then return false end
  if call('XACK', k_stream, a_group, entry) == 1 then
    shed(bound, 'overflowed', id or '\0\0', id and int(version) or '0', id and at or now_text, '0',
      (id and event .. ' ' or '') .. why, why)
    if id then finish_for(a_group, id, event) end
  end
  return true
end

local FRESH = a_consumer .. ' 1 1 0 '

-- Hands out a piece. `old` are the holds that there are of it.
local function hand_out(entries, old)
  look_at(entries)
  local oldest_go = not old and is_bounded and bound.rule == 'o'
  for i = 1, #entries do
    local entry, fields, id = entries[i][1], entries[i][2], ids[i]
    local only = fields[#fields - 1] == 'only' and fields[#fields]
    if only and only ~= a_group then -- replayed for another group
      call('XACK', k_stream, a_group, entry)
      cleared[#cleared + 1] = entry
    elseif oldest_go and drop_too_old(entry, id, events[i], versions[i], due[i]) then
      cleared[#cleared + 1] = entry
    elseif dead[i] or (a_current == '1' and id and is_superseded(id, events[i], versions[i])) then
      if call('XACK', k_stream, a_group, entry) == 1 then
        stale = stale + 1
        if is_bounded then pcall(count_out, a_name, a_group, id, entry) end
        finish_for(a_group, id, events[i])
      end
      cleared[#cleared + 1] = entry
    else
      local last = #holds
      local front, delivery, attempt, rest = FRESH, 1, 1, nil
      if old and old[i] then
        local holder, failed
        holder, delivery, attempt, failed, rest = read_hold(old[i])
        if not (is_page and holder == a_consumer) then
          delivery = delivery + 1
          local is_suspect = byte(attempt) == 48 and #attempt > 1
          if holder == no_consumer() and not is_suspect then
            attempt = int(attempt + 1)
          elseif not is_suspect then -- it may have waited for its turn when that one went
            attempt = '0' .. int(attempt + 1)
          end
        end
        front = a_consumer .. ' ' .. delivery .. ' ' .. attempt .. ' ' .. failed .. ' '
      end
      if rest then
        rest = front .. rest
      elseif id then
        rest = front .. events[i] .. ' ' .. (due[i] and match(due[i], '^%d+$') or '0') .. ' ' .. id
      else
        rest = front .. '- 0 '
      end
      holds[last + 1], holds[last + 2] = entry, rest
      leased[last + 1], leased[last + 2] = lease_until, entry
      lines[#lines + 1] = 'EVENT ' .. entry .. (old and ' ' .. delivery .. ' ' .. attempt .. ' 0' or ' 1 1 0')
      reply[#reply + 1] = fields
    end
  end
end

local function may_go_on() return looked < count and bytes < BYTES end

-- How many to look at next: no more than fit if they are as large as any were, or as payloads usually may be.
local function piece()
  return math.max(1, math.min(PIECE, count - looked, math.floor((BYTES - bytes) / largest)))
end

local function weigh(entries)
  for i = 1, #entries do
    local fields = entries[i][2]
    local size = 300
    if fields[21] == 'payload' and fields[25] == 'correlation' then
      size = size + #fields[6] + #fields[22] + #fields[26]
    else
      for k = 1, #fields do size = size + #fields[k] end
    end
    bytes = bytes + size
    if size > largest then largest = size end
  end
end

-- What has been trimmed is not there any more: nobody can handle it.
local function clear(entry)
  call('XACK', k_stream, a_group, entry)
  if is_bounded then
    pcall(count_out, a_name, a_group, match(call('HGET', k_hold, entry) or '', '^%S+ %d+ %d+ %d+ %S+ %d+ (.*)$'), entry)
  end
  cleared[#cleared + 1] = entry
  gone = gone + 1
end

-- Takes pending ones; appends what there is of them to `found`, in their order.
local function claim(ids, found)
  looked = looked + #ids
  local there, entries = {}, {}
  for _, entry in ipairs(call('XCLAIM', k_stream, a_group, a_consumer, 0, unpack(ids))) do
    if entry and entry[2] then there[entry[1]] = entry end
  end
  for _, id in ipairs(ids) do
    if there[id] then
      entries[#entries + 1] = there[id]
      found[#found + 1] = there[id]
    else
      clear(id)
    end
  end
  weigh(entries)
end

local function hand_over(found)
  if #found == 0 then return end
  local names = {}
  for i = 1, #found do names[i] = found[i][1] end
  hand_out(found, call('HMGET', k_hold, unpack(names)))
end

local function is_earlier(one, other) return is_behind(other, one) end

-- Those whose time has come, of the waiting ones or of the leases. Returns whether these are all.
local function take_due(from)
  local ids = call('ZRANGEBYSCORE', from, '-inf', now_text, 'LIMIT', 0, count - looked)
  if is_ordered then table.sort(ids, is_earlier) end
  local found, at = {}, 1
  while at <= #ids and may_go_on() do
    local some = {}
    for i = at, math.min(#ids, at + piece() - 1) do some[#some + 1] = ids[i] end
    at = at + #some
    claim(some, found) -- raises on what is no stream: then all stays as it is
    call('ZREM', from, unpack(some))
  end
  hand_over(found)
  return at > #ids
end

-- Whether the end of the stream is reached.
local function read_new()
  local found = {}
  local is_end = false
  while may_go_on() and not is_end do
    local wanted = piece()
    local answer = call('XREADGROUP', 'GROUP', a_group, a_consumer, 'COUNT', wanted, 'STREAMS', k_stream, '>')
    local entries = answer and (answer[2] or answer[1] and answer[1][2]) or {} -- (fakeredis may give a pair, not a list of pairs)
    looked = looked + #entries
    weigh(entries)
    for i = 1, #entries do found[#found + 1] = entries[i] end
    is_end = #entries < wanted
  end
  if #found > 0 then hand_out(found) end
  return is_end
end

-- What waits for its time is told, so that the reader knows which lanes stand still; it stays where it is.
local function tell(id, until_ms)
  local entry = call('XRANGE', k_stream, id, id)[1]
  looked = looked + 1
  if not entry then return clear(id) end
  weigh({entry})
  local _, delivery, attempt = read_hold(call('HGET', k_hold, id) or '- 0 0 0 ')
  lines[#lines + 1] = 'EVENT ' .. id .. ' ' .. delivery .. ' ' .. attempt .. ' ' .. int(until_ms)
  reply[#reply + 1] = entry[2]
end

-- A page of what is pending: the consumer's own or, for the reader of an ordered group, everybody's. Returns where the next
-- one begins.
local function read_page(pending)
  local ids = {}
  for i = 1, #pending do ids[i] = pending[i][1] end
  if #ids == 0 then return '-' end
  local scores = call('ZMSCORE', k_retry, unpack(ids))
  local found, some, last = {}, {}, nil
  local function take_some()
    if #some > 0 then claim(some, found) end
    some = {}
  end
  for i = 1, #ids do
    local until_ms = tonumber(scores[i] or nil)
    local waits = until_ms and until_ms > now_ms
    if waits or #some >= piece() then take_some() end
    if not may_go_on() then break end
    if waits then
      hand_over(found)
      found = {}
      tell(ids[i], until_ms)
    else
      some[#some + 1] = ids[i]
      if until_ms then call('ZREM', k_retry, ids[i]) end
    end
    last = ids[i]
  end
  take_some()
  hand_over(found)
  return (#ids == count or last ~= ids[#ids]) and last or '-'
end

-- Gives a lease to what others were handed in this group, by hand or by another program, so that it is taken over in time.
local function adopt()
  if call('XPENDING', k_stream, a_group)[1] <= call('ZCARD', k_lease) + call('ZCARD', k_retry) then return end
  local ids = {}
  for i, pending in ipairs(call('XPENDING', k_stream, a_group, '-', '+', STRANGERS)) do ids[i] = pending[1] end
  local lease, retry = call('ZMSCORE', k_lease, unpack(ids)), call('ZMSCORE', k_retry, unpack(ids))
  for i = 1, #ids do
    if not lease[i] and not retry[i] then call('ZADD', k_lease, lease_until, ids[i]) end
  end
end

-- Of those that wait for another try and hold up their lanes meanwhile, what is dead or was trimmed waits no longer. (A piece
-- of them: the next look is at the next piece.)
local function end_dead_waits()
  local count = call('ZCOUNT', k_retry, '(' .. now_text, '+inf')
  if count == 0 then return end
  local first = call('XRANGE', k_stream, '-', '+', 'COUNT', 1)[1]
  local from = count > WAITING and math.floor(now_ms / 1000) * WAITING % count or 0
  local entries = call('ZRANGEBYSCORE', k_retry, '(' .. now_text, '+inf', 'LIMIT', from, WAITING)
  local found = call('HMGET', k_hold, unpack(entries))
  local gone, known, floors, whose = {}, {}, {}, {}
  for i = 1, #entries do
    local event, id = match(found[i] or '', '^%S+ %d+ %d+ %d+ (%S+) %d+ (.*)$')
    known[i] = event and a_name ~= 'errors' and append_floors_of(floors, whose, i, event, id)
    gone[i] = known[i] and a_current == '1' and is_superseded(id, event, known[i])
  end
  mark_dead(gone, known, floors, whose)
  for i = 1, #entries do
    if gone[i] or not first or is_behind(first[1], entries[i]) then call('ZADD', k_retry, now_text, entries[i]) end
  end
end

local more, stream_end = '-', '-'
local function receive()
  looked = 0
  if is_page then
    local words = {k_stream, a_group, a_after == '0-0' and '-' or '(' .. a_after, '+', count}
    if not is_ordered then words[6] = a_consumer end
    more = read_page(call('XPENDING', unpack(words)))
    return
  end
  if is_ordered then end_dead_waits() end
  if take_due(k_retry) then take_due(k_lease) end
  if a_fresh ~= '0' and read_new() then
    local last = call('XREVRANGE', k_stream, '+', '-', 'COUNT', 1)[1]
    stream_end = last and last[1] or '0-0'
    if looked == 0 then adopt() end
  end
end

local fine, why = pcall(receive)
local is_void = false
if not fine and (find(reason(why), 'NOGROUP') or call('EXISTS', k_stream) == 0) then
  -- what is kept of a group that has gone is of no use to the new one, which begins with the oldest entry there is
  call('DEL', k_lease, k_retry, k_hold)
  is_void, looked = true, 0 -- what it failed at
  if call('EXISTS', k_stream) == 0 then
    fine, stream_end = true, '0-0'
  else
    fine, why = pcall(call, 'XGROUP', 'CREATE', k_stream, a_group, '0')
    if fine then fine, why = pcall(receive) end
  end
end
if not fine and #lines == 2 then return {head_line .. '\nBROKEN ' .. reason(why)} end

call('ZADD', k_groups, now_text, a_name .. '\0' .. a_group)
if #cleared > 0 then
  call('ZREM', k_lease, unpack(cleared))
  call('ZREM', k_retry, unpack(cleared))
  call('HDEL', k_hold, unpack(cleared))
  local past = {}
  for i = 1, #cleared do past[i] = cleared[i] .. '!' end
  call('HDEL', k_hold, unpack(past))
end
if #holds > 0 then
  call('HSET', k_hold, unpack(holds))
  call('ZADD', k_lease, unpack(leased))
end
if stale > 0 then call('HINCRBY', k_meta, 'stale', stale) end
if gone > 0 then call('HINCRBY', k_meta, 'gone', gone) end

local wait_us = '-'
if more ~= '-' or (not may_go_on() and #lines - 2 < count) then
  wait_us = '0'
else
  local first = call('ZRANGE', k_lease, 0, 0, 'WITHSCORES')[2]
  local retry = call('ZRANGE', k_retry, 0, 0, 'WITHSCORES')[2]
  if retry and (not first or tonumber(retry) < tonumber(first)) then first = retry end
  if first then wait_us = int(math.max(0, tonumber(first) * 1000 - now_us)) end
end
lines[2] = 'RECEIVED ' .. stale .. ' ' .. gone .. ' ' .. wait_us .. ' ' .. more .. ' ' .. stream_end
if is_ordered and is_void then lines[2] = lines[2] .. ' *' end
if is_ordered and #cleared > 0 then lines[2] = lines[2] .. ' ' .. table.concat(cleared, ' ') end
reply[1] = table.concat(lines, '\n')
return reply
