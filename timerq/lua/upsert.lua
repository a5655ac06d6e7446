-- Creates or replaces schedules of one tenant, and says of each what became of it.
--
-- KEYS meta    hash   – the partition
-- KEYS req     string – the session's last request
-- KEYS heads   zset   – the tenants by their earliest instant
-- KEYS keys    zset   – every id
-- KEYS held    zset   – ids that could not be fired
-- KEYS wake    stream – for the sleeping dispatchers
-- KEYS log     stream – the exceptions
-- KEYS fired_new list – of which ids events may be out, and no record tells
-- KEYS due     zset   – the tenant's pending ids
-- KEYS item*          – each item's record; where it has an owner, the owner's index and floor; where it has a token, its
--                       memory; where it has a label, the set's members
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV seq     number – this request's number in its session
-- ARGV tenant  text
-- ARGV items   number – how many there are
-- ARGV item*          – each item's: when (@instant or +delay, ms), options, how many arguments follow, field value …
--
-- options: empty, or thirteen words, - for none (by: 1 where the record's b says who sets it):
--   mode paused restart reset if_version max_wait incarnation following until limit generation by digest
--   digest: of the body; or =ms, where any body is the same and the first answer is kept for so long
--
-- RETURN a line an item; behind the text, for each KEPT one, its record's fields and values:
--   CREATED version at state
--   REPLACED version at state old_version old_at fired missed skipped
--   UNCHANGED version at state n fired missed skipped
--   KEPT version at state how_many
--   DUPLICATE version at state
--   VERSION_MISMATCH version
--   OWNER_GONE floor
--   SUPERSEDED generation    – a later apply of the set has begun
--   LATE now_ms              – a calendar's first instant has passed meanwhile: ask for the one after now
--   INVALID field            – refused: delay, until, limit, mode or idempotency_key
--   BROKEN reason            – the stored record cannot be touched
--   LATER                    – not looked at: the reply is full; ask again

local MAX_MS = 253402300799999

local call, byte, sub = redis.call, string.byte, string.sub
local head = tonumber(call('ZSCORE', k_heads, a_tenant) or nil) -- the tenant's earliest instant
local head_moved = head == nil
local reply = {''}
local lines = {head_line}
local kept_bytes = 0
local scored, scores = {}, 0 -- score, id … of those to look at; where an id comes twice, the last one counts
local unscored = {} -- ids of those to look at no more
local indexed, indexes = {}, 0
local prefix = #PREFIX + 5
local version_number = reserve_versions(tonumber(a_items)) - 1
local floors = {} -- of owners: floor's key -> the version up to which all is dead, or false
local ceil_now_ms = math.ceil(now_us / 1000)

local function arm(id, at, due)
  if head and due < head then head_moved = true end
  scored[scores + 1], scored[scores + 2] = at, id
  scores = scores + 2
  if next(unscored) then unscored[id] = nil end
end

local function same_definition(record, from, to)
  local flat = redis.call('HGETALL', record)
  local left = {}
  for i = 1, #flat, 2 do
    -- these are what happened to a schedule, not what it is
    if not is_history(flat[i]) and not string.find(flat[i], '^[sfmezb]$') then left[flat[i]] = flat[i + 1] end
  end
  for i = from, to, 2 do
    if ARGV[i] ~= 'b' then
      if left[ARGV[i]] ~= ARGV[i + 1] then return false end
      left[ARGV[i]] = nil
    end
  end
  return next(left) == nil
end

-- Whether what a held one carries besides its definition can be read: of one that cannot, an upsert is the cure.
local function is_sound(record)
  local carried = call('HMGET', record, 't', 'u')
  return (not carried[1] or string.find(carried[1], '^%d+ %d+ ?%d*$')) and
    (not carried[2] or string.find(carried[2], '^%S+ %d+ ?w?$'))
end

local function keep(record, version, at, state)
  local flat = redis.call('HGETALL', record)
  for i = 1, #flat do
    kept_bytes = kept_bytes + #flat[i]
    reply[#reply + 1] = flat[i]
  end
  return 'KEPT ' .. version .. ' ' .. at .. ' ' .. state .. ' ' .. #flat
end

-- Of what the old one has besides, the fields of one letter that are in `kept` stay, and its last fires where they do.
local function drop_stale_fields(id, record, from, to, kept, keep_fires)
  local wanted = {}
  for i = from, to, 2 do wanted[ARGV[i]] = true end
  local stale = {}
  for _, field in ipairs(redis.call('HKEYS', record)) do
    if not wanted[field] and not string.find(field, kept) and not (keep_fires and string.find(field, '^[lr]%d$')) then
      stale[#stale + 1] = field
      if field == 't' or field == 'g' then note_fired({id}) end -- nothing else tells of the events of before
    end
  end
  if #stale > 0 then redis.call('HDEL', record, unpack(stale)) end
end

local function totals_of(record)
  local fired, missed, skipped = read_totals(redis.call('HGET', record, 't'))
  return int(fired) .. ' ' .. int(missed) .. ' ' .. int(skipped)
end

-- Whether a recurring one, whose next instant is `at`, has fired in this very millisecond.
local function has_just_fired(record, at)
  local fired = tonumber(at) > now_ms and string.match(call('HGET', record, 't') or '', '^%d+')
  local last = fired and call('HGET', record, 'l' .. int((fired + 9) % 10))
  return last and string.match(last, '^%d+ (%d+)') == int(now_ms)
end

local function dead_below(floor)
  if floors[floor] == nil then floors[floor] = tonumber(call('GET', floor) or nil) or false end
  return floors[floor]
end

local function upsert(record, id, own, floor, once, set, when, options, from, to)
  local old = redis.pcall('HGET', record, 's')
  if old and type(old) == 'table' then return 'BROKEN ' .. reason(old) end
  local state, version, at, n, _
  if old then
    state, version, at, _, n = parse_state(old)
    if not state then state, version, at = 'h', '0', '0' end -- unreadable: this upsert is its cure
  end

  local mode, paused, restart, reset, if_version, max_wait, born, following, ending, limit, generation, by, digest
  if options ~= '' then
    mode, paused, restart, reset, if_version, max_wait, born, following, ending, limit, generation, by, digest =
      string.match(options, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
  end
  local dead = floor and dead_below(floor)
  if dead then
    if born and born ~= '-' and tonumber(born) <= dead then return 'OWNER_GONE ' .. int(dead) end
    if version and tonumber(version) <= dead then -- of an incarnation that is gone: the new one starts clean
      forget(id, k_due)
      head_moved = true
      old, state, version, at, n = nil, nil, nil, nil, nil
    end
  end
  if options ~= '' then
    if set then
      local announced = call('ZSCORE', set, '')
      if announced and tonumber(announced) > tonumber(generation) then return 'SUPERSEDED ' .. int(tonumber(announced)) end
    end
    if once then
      local first = redis.call('HMGET', once, 'digest', 'answer')
      if first[1] and not (dead and tonumber(string.match(first[2], '^%d+')) <= dead) then
        if first[1] ~= digest and byte(digest) ~= 61 then return 'INVALID idempotency_key' end
        return 'DUPLICATE ' .. first[2]
      end
    end
    if if_version ~= '-' and if_version ~= (version or '0') then return 'VERSION_MISMATCH ' .. (version or '0') end
    if mode == 'keep' and old then return keep(record, version, at, state) end
  end

  local definition = ARGV[from + 1]
  local kind = sub(definition, 1, 1)
  local due_text = sub(when, 2)
  local due = tonumber(due_text)
  if byte(when) ~= 64 then -- not @: a delay, rounded up: one that starts within a millisecond must not end early
    due = due == 0 and now_ms or ceil_now_ms + due
    if due > MAX_MS then return 'INVALID delay' end
    due_text = int(due)
  end

  local first
  local totals, had_history = false, false
  if kind ~= 'o' then
    local old_kind = old and string.sub(redis.call('HGET', record, 'd') or '', 1, 1)
    totals = old_kind == 'e' or old_kind == 'c'
    had_history = totals
    if kind == 'e' and due < now_ms then -- a start in the past gives the grid, not a debt
      local every = tonumber(string.match(definition, '^e(%d+)'))
      due = due + math.ceil((now_ms - due) / every) * every
      if due > MAX_MS then return 'INVALID delay' end
      due_text = int(due)
    end
    if old and restart ~= '1' and reset ~= '1' and (state ~= 'h' or is_sound(record)) and same_definition(record, from, to) then
      local want = state
      if paused == '1' then want = 'p' elseif paused == '0' and state == 'p' then want = 'a' end
      if want ~= state then
        redis.call('HSET', record, 's', want == 'a' and rearmed(record, old) or want .. string.sub(old, 2))
        head_moved = true
        if want == 'a' then
          redis.call('HDEL', record, 'm', 'z', 'q')
          arm(id, at, tonumber(at))
        else
          unscored[id] = true
          if (state == 'c' or state == 'h') and call('ZREM', k_held, id) == 1 then call('HDEL', record, 'e') end
        end
        log(want == 'p' and 'paused' or 'resumed', id, version)
      end
      if set then call('ZADD', set, generation, id) end
      return 'UNCHANGED ' .. version .. ' ' .. at .. ' ' .. want .. ' ' .. n .. ' ' .. totals_of(record)
    end
    if kind == 'e' and due == now_ms and byte(when) == 64 and totals and reset ~= '1' and has_just_fired(record, at) then
      due = due + tonumber(string.match(definition, '^e(%d+)')) -- a change moves the next fire, and fires nothing again
      if due > MAX_MS then return 'INVALID delay' end
      due_text = int(due)
    end
    if options ~= '' then -- only now: one that is stored just so may have its last occurrence before it
      if ending ~= '-' and due > tonumber(ending) then return 'INVALID until' end
      if reset == '1' then totals = false end
      local total = totals and limit ~= '-' and string.match(redis.call('HGET', record, 't') or '', '^%d+')
      if total and tonumber(total) >= tonumber(limit) then return 'INVALID limit' end
    end
    if kind == 'c' and byte(when) == 64 and due < now_ms then return 'LATE ' .. int(now_ms) end
  elseif options ~= '' then
    if old and (mode == 'earliest' or mode == 'latest') then
      if string.sub(redis.call('HGET', record, 'd') or 'o', 1, 1) ~= 'o' then return 'INVALID mode' end
    end
    if max_wait ~= '-' then
      first = now_ms
      if version and version ~= '0' then
        local stored = call('HMGET', record, 'f', 'd')
        if stored[1] then
          first = tonumber(stored[1])
        elseif sub(stored[2] or 'o', 1, 1) == 'o' then -- armed without max_wait: its version tells when
          first = math.floor(tonumber(version) / 1000)
        end
      end
      due = math.min(due, first + tonumber(max_wait))
      due_text = int(due)
    end
    if version and version ~= '0' and ((mode == 'earliest' and due >= tonumber(at)) or (mode == 'latest' and due <= tonumber(at))) then
      return keep(record, version, at, state)
    end
  end

  local new_state = 'a'
  if paused == '1' or (state == 'p' and paused ~= '0') then new_state = 'p' end
  version_number = version_number + 1
  local new_version = int(version_number)
  local setter = had_history and version ~= '0' and call('HGET', record, 'b') -- of the old version; the log remembers
  call('HSET', record, 's', new_state .. ' ' .. new_version .. ' ' .. due_text .. ' ' .. (following or '-') .. ' 0',
    unpack(ARGV, from, to))
  if first then call('HSET', record, 'f', int(first)) end
  if set then call('ZADD', set, generation, id) end
  if new_state == 'a' then arm(id, due_text, due) else unscored[id] = true end

  if not old then
    indexed[indexes + 1], indexed[indexes + 2] = 0, id
    indexes = indexes + 2
    if own then call('ZADD', own, 0, id) end
    return 'CREATED ' .. new_version .. ' ' .. due_text .. ' ' .. new_state
  end
  if call('HLEN', record) ~= (to - from + 3) / 2 + (first and 1 or 0) then
    local kept = 's' .. (first and 'f' or '') .. (new_state == 'p' and 'z' or '')
    if had_history then
      kept = kept .. 'ug' .. (totals and 't' or '')
      if state ~= 'p' or new_state == 'p' then kept = kept .. 'q' end -- one that goes on has not failed yet
    end
    drop_stale_fields(id, record, from, to, '^[' .. kept .. ']$', totals)
  end
  if state == 'h' or state == 'c' then
    call('ZREM', k_held, id)
    head_moved = true
  elseif head and tonumber(at) <= head then -- earlier: one that waits for an event is scored when that one's time is up
    head_moved = true
  end
  log('replaced', id, new_version, setter and version .. ' ' .. setter or version, by == '1' and call('HGET', record, 'b') or '')
  return 'REPLACED ' .. new_version .. ' ' .. due_text .. ' ' .. new_state .. ' ' .. version .. ' ' .. at .. ' '
    .. (totals and totals_of(record) or '0 0 0')
end

local k, a = first_item_key, first_item_arg
for i = 2, tonumber(a_items) + 1 do
  local record, options = KEYS[k], ARGV[a + 1]
  local id = sub(record, prefix)
  local own, floor, once, digest, set
  if byte(id, -1) ~= 0 then
    own, floor = KEYS[k + 1], KEYS[k + 2]
    k = k + 2
  end
  if options ~= '' then
    digest = string.match(options, '(%S+)$')
    if digest ~= '-' then
      once = KEYS[k + 1]
      k = k + 1
    end
    if not string.find(options, ' %- %S+ %S+$') then
      set = KEYS[k + 1]
      k = k + 1
    end
  end
  local last = a + 2 + ARGV[a + 2]
  if kept_bytes > BYTES then
    lines[i] = 'LATER'
  else
    -- what one item meets (an index of another type) must not leave the others written and never looked at
    local fine, said = pcall(upsert, record, id, own, floor, once, set, ARGV[a], options, a + 3, last)
    lines[i] = fine and said or 'BROKEN ' .. reason(said)
    if once then
      local word, answer = string.match(lines[i], '^(%u+) (%d+ %d+ %l)')
      if answer and word ~= 'DUPLICATE' then
        call('HSET', once, 'digest', digest, 'answer', answer)
        call('PEXPIRE', once, string.match(digest, '^=(%d+)') or meta[6])
      end
    end
  end
  k = k + 1
  a = last + 1
end

if scores > 0 then call('ZADD', k_due, unpack(scored)) end
for id in pairs(unscored) do call('ZREM', k_due, id) end
if indexes > 0 then call('ZADD', k_keys, unpack(indexed)) end
if head_moved then
  local before = earliest()
  settle(a_tenant, k_due)
  wake_if_earlier(before)
end
reply[1] = table.concat(lines, '\n')
return remember(reply)
