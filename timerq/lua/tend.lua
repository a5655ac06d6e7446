-- Looks after the bounded stream that nobody looked after for longest: counts a piece of its backlog anew, lets go what is held
-- back where there is room, and drops what is too old.
--
-- KEYS meta     hash   – the partition
-- KEYS heads    zset   – the tenants by their earliest instant
-- KEYS keys     zset   – every id
-- KEYS held     zset   – ids that could not be fired
-- KEYS streams  zset   – the names of the streams
-- KEYS wake     stream – for the sleeping dispatchers
-- KEYS log     stream – the exceptions
-- KEYS fired_new list – of which ids events may be out, and no record tells
-- KEYS never    none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout   text   – what the dispatcher believes
-- ARGV schema   text   – what the dispatcher believes
-- ARGV now_ms   ms     – the manual clock's time, else empty
-- ARGV name     text   – this stream alone; empty for any
-- ARGV every_ms ms     – leave alone what was looked after since
-- ARGV limit    number – how many events to touch at the most
--
-- RETURN one line; behind the text, the stream's name:
--   UNBOUND       – no stream's backlog is bounded
--   IDLE          – there is none to look after yet
--   TENDED more   – more: 1: there is more to do at once, else 0
--   BROKEN reason – not a stream
--
-- The counts are kept by the scripts that publish and acknowledge. What others acknowledge by hand, and what is trimmed unread,
-- these do not see: so once in a while everything is counted anew, piece by piece, into a second count. `after` is how far that
-- has come; behind it the scripts keep the second count, too. At the stream's end it takes the place of the first.
--
-- Running it twice is harmless: it looks at what there is.

local RECOUNT_MS, RELOOK_MS, PIECE = 30000, 1000, 16

local call, match = redis.call, string.match
local limit = tonumber(a_limit)

-- The stream whose turn it is.
local function next_bound()
  bound_of('')
  local chosen, oldest
  for name, bound in pairs(BOUNDS) do
    local tended = tonumber(call('HGET', bound.about, 'tended_ms') or 0)
    local is_due = tended <= now_ms - tonumber(a_every_ms) or tended > now_ms
    if (a_name == '' or a_name == name) and is_due and (not chosen or tended < oldest) then
      chosen, oldest = bound, tended
    end
  end
  return chosen
end

local bound = next_bound()
if not bound then return {head_line .. (next(BOUNDS) and '\nIDLE' or '\nUNBOUND')} end
local key = PREFIX .. 's:' .. bound.stream
call('HSET', bound.about, 'tended_ms', now_text)

-- The group as Redis knows it: how many are pending, the last entry that was handed out, and how many are behind that where Redis
-- tells (from 7.0 on). A group that is not there yet begins with the oldest entry.
local function group_of()
  local group = {pending = 0, last = '0-0'}
  local groups = redis.pcall('XINFO', 'GROUPS', key)
  if groups.err and not string.find(reason(groups), 'no such key') then error(reason(groups), 0) end
  for _, flat in ipairs(groups.err and {} or groups) do
    local values = {}
    for i = 1, #flat, 2 do values[flat[i]] = flat[i + 1] end
    if values.name == bound.group then
      group = {pending = tonumber(values.pending), last = values['last-delivered-id'], lag = tonumber(values.lag or nil),
        is_there = true}
    end
  end
  return group
end

-- The id of what an entry's fields say; nil where they say none. And the group that it is for alone, where it was replayed.
local function read_entry(fields)
  local values = {}
  for i = 1, #fields, 2 do values[fields[i]] = fields[i + 1] end
  local is_whole = values.id and values.key and values.tenant and values.owner and tonumber(values.version)
    and values.id ~= '' and not string.find(values.id, '[%s%z]')
  return is_whole and values.tenant .. '\0' .. values.key .. '\0' .. values.owner or nil, values.only, values
end

-- The lane of a pending entry.
local function lane_of_pending(entry, hold)
  local id = match(hold or '', '^%S+ %d+ %d+ %d+ %S+ %d+ (.+)$')
  if not id then
    local found = call('XRANGE', key, entry, entry)[1]
    id = found and read_entry(found[2])
  end
  return lane_of(id)
end

-- Begins to count anew where it is time; returns how far it is, nil where it is not time.
local function begin(group)
  local after = call('HGET', bound.about, 'after')
  if after then return after end
  local is_cheap = group.lag and not bound.lane_limit
  local counted_ms = tonumber(call('HGET', bound.about, 'counted_ms') or nil)
  local total = tonumber(call('HGET', bound.counts, '') or nil)
  local last = group.pending == 0 and call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local is_empty = last and last[1] == group.last
  if counted_ms and total and counted_ms > now_ms - RECOUNT_MS and counted_ms <= now_ms
    and not is_cheap and not (is_empty and total > 0) then
    return nil
  end
  call('UNLINK', bound.recount)
  call('HSET', bound.recount, '', 0)
  return '0-0'
end

-- Counts a piece; returns whether there is more to count.
local function recount(group)
  local after = begin(group)
  if not after then return false end
  local total, lanes, looked = 0, {}, 0
  local function add(lane)
    total = total + 1
    if lane then lanes[lane] = (lanes[lane] or 0) + 1 end
  end
  if is_behind(group.last, after) then
    if bound.rule == 'o' then
      after = group.last -- what was handed out does not count
    elseif not bound.lane_limit and after == '0-0' then
      total, after = group.pending, group.last
    else
      local pending = group.pending > 0 and call('XPENDING', key, bound.group, '(' .. after, group.last, limit) or {}
      local names, holds = {}, {}
      for i = 1, #pending do names[i] = pending[i][1] end
      if #names > 0 and bound.lane_limit then
        holds = call('HMGET', PREFIX .. 'hold:' .. bound.stream .. '\0' .. bound.group, unpack(names))
      end
      for i = 1, #names do add(bound.lane_limit and lane_of_pending(names[i], holds[i])) end
      looked = #names
      after = #names == limit and names[limit] or group.last
    end
  end
  local is_end = false
  if not bound.lane_limit and group.lag and after == group.last then
    total = total + group.lag
    is_end = true
  end
  local bytes = 0
  while not is_end and looked < limit and bytes < BYTES and not is_behind(group.last, after) do
    local entries = call('XRANGE', key, '(' .. after, '+', 'COUNT', PIECE)
    for i = 1, #entries do
      local id, only = read_entry(entries[i][2])
      if not only or only == bound.group then add(lane_of(id)) end
      for k = 1, #entries[i][2] do bytes = bytes + #entries[i][2][k] end
      after = entries[i][1]
    end
    looked = looked + #entries
    is_end = #entries < PIECE
  end
  if total > 0 then call('HINCRBY', bound.recount, '', total) end
  if bound.lane_limit then
    for lane, count in pairs(lanes) do call('HINCRBY', bound.recount, lane, count) end
  end
  if not is_end then
    call('HSET', bound.about, 'after', after)
    return true
  end
  call('UNLINK', bound.counts)
  call('RENAME', bound.recount, bound.counts)
  call('HDEL', bound.about, 'after')
  call('HSET', bound.about, 'counted_ms', now_text)
  return false
end

-- Lets go what is held back, all of it where nothing is to be held back any more; returns whether there may be more.
local function let_all_go()
  local before = earliest()
  local is_over = bound.rule ~= 'h'
  if not is_over and not is_counted(bound) then return false end
  local left, has_room = limit, false
  for _, lane in ipairs(call('ZRANGE', bound.parked, 0, 19)) do
    local most = lane == '' and bound.limit or lane ~= '' and bound.lane_limit or nil
    local room = left
    if not is_over and most then room = most - tonumber(call('HGET', bound.counts, lane) or 0) end
    call('ZADD', bound.parked, 'XX', now_text, lane)
    while room > 0 and left > 0 do
      local went = let_go(bound, lane)
      if went == false then break end
      left = left - (went and 1 or 20)
      if went then room, has_room = room - 1, true end
    end
  end
  wake_if_earlier(before)
  if is_over then return call('EXISTS', bound.parked) == 1 end
  if left <= 0 then return true end
  -- where these had room, others may; but what was let go a moment ago has not fired yet, and is not counted
  local looked_ms = has_room and call('ZRANGE', bound.parked, 0, 0, 'WITHSCORES')[2]
  return looked_ms and tonumber(looked_ms) < now_ms - RELOOK_MS or false
end

-- Drops the oldest of those that wait to be handed out, where they are too many; returns whether there are more.
local function drop_oldest(group)
  if bound.rule ~= 'o' or not bound.limit or not is_counted(bound) then return false end
  local over = tonumber(call('HGET', bound.counts, '')) - bound.limit
  if over <= 0 or call('EXISTS', key) == 0 then return false end
  if not group.is_there then call('XGROUP', 'CREATE', key, bound.group, '0') end
  local answer = call('XREADGROUP', 'GROUP', bound.group, no_consumer(), 'COUNT', math.min(over, PIECE), 'STREAMS', key, '>')
  local entries = answer and (answer[2] or answer[1] and answer[1][2]) or {} -- (fakeredis may give a pair, not a list of pairs)
  for i = 1, #entries do
    local entry = entries[i][1]
    local id, only, values = read_entry(entries[i][2])
    call('XACK', key, bound.group, entry)
    if not only or only == bound.group then
      local why = too_old(bound, id, entry) or 'it was too old'
      local at = match(values.at or '', '^%d+$') or now_text
      shed(bound, 'overflowed', id or '\0\0', id and int(tonumber(values.version)) or '0', at, '0',
        (id and values.id .. ' ' or '') .. why, why)
      if id then finish_for(bound.group, id, values.id) end
    end
  end
  return #entries > 0 and over > #entries
end

local function tend()
  local group = group_of()
  local is_counting = bound.rule ~= 'x' and recount(group)
  local is_holding = let_all_go()
  local is_dropping = drop_oldest(group)
  return is_counting or is_holding or is_dropping
end

local fine, more = pcall(tend)
if not fine then return {head_line .. '\nBROKEN ' .. reason(more), bound.stream} end
if more then
  call('HSET', bound.about, 'tended_ms', 0)
elseif bound.rule == 'x' then
  -- the last of what was held back is on its way: nothing is left of the bound
  local lines = {}
  for line, name in string.gmatch(meta[7], '((%S+) [^\n]*\n)') do
    if name ~= bound.stream then lines[#lines + 1] = line end
  end
  if #lines > 0 then call('HSET', k_meta, 'bounds', table.concat(lines)) else call('HDEL', k_meta, 'bounds') end
  call('UNLINK', bound.counts, bound.recount, bound.about)
end
return {head_line .. '\nTENDED ' .. (more and '1' or '0'), bound.stream}
