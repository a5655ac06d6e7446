-- Publishes dead letters of one tenant again, for the group alone that gave them up, or throws them away.
--
-- KEYS meta   hash   – the partition
-- KEYS req    string – the session's last request
-- KEYS stream stream – where the events were
-- KEYS dead   stream – the group's dead letters
-- KEYS never  none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout text   – what the client believes
-- ARGV schema text   – what the client believes
-- ARGV now_ms ms     – the manual clock's time, else empty
-- ARGV seq    number – this request's number in its session
-- ARGV tenant text
-- ARGV group  text
-- ARGV verb   text   – replay or discard
-- ARGV item*         – entries of the dead letters
--
-- RETURN a line an item:
--   REPLAYED entry  – its new place in the stream
--   DISCARDED
--   NOT_FOUND       – there is no such letter of this tenant
--   BROKEN reason   – the stream refuses it
--   LATER           – not looked at: that is enough for one call; ask again
--
-- An event that is replayed is what it was, with one field more: `only`, the group that is to handle it.

-- The fields and values that settle.lua puts behind the event's own.
local NOTES = 16
local lines = {head_line}
local bytes = 0

local function tenant_of(fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'tenant' then return fields[i + 1] end
  end
end

-- (No bound refuses what is asked for by hand. It is for this group alone, so it counts for no other.)
local function count_revived(fields)
  local name = string.sub(k_stream, #PREFIX + 3)
  local bound = bound_of(name)
  if not bound or bound.group ~= a_group then return end
  local values = {}
  for i = 1, #fields, 2 do values[fields[i]] = fields[i + 1] end
  pcall(count_in, name, (values.tenant or '') .. '\0' .. (values.key or '') .. '\0' .. (values.owner or ''))
end

-- the first write is one that a server out of memory refuses: nothing is then half done
redis.call('HSET', k_meta, 'revived_ms', int(now_ms))
for a = first_item_arg, #ARGV do
  local is_enough = bytes > BYTES
  local letter = not is_enough and redis.call('XRANGE', k_dead, ARGV[a], ARGV[a])[1]
  local tenant = letter and tenant_of(letter[2])
  for i = 1, letter and #letter[2] or 0 do bytes = bytes + #letter[2][i] end
  local line
  if is_enough then
    line = 'LATER'
  elseif not letter or (tenant and tenant ~= a_tenant) then
    line = 'NOT_FOUND'
  elseif a_verb == 'discard' then
    redis.call('XDEL', k_dead, ARGV[a])
    line = 'DISCARDED'
  else
    local fields = {}
    local last = #letter[2] - NOTES
    if letter[2][last + 1] ~= 'error' then last = #letter[2] end -- not by that script
    for i = 1, last, 2 do
      if letter[2][i] ~= 'only' then
        fields[#fields + 1] = letter[2][i]
        fields[#fields + 1] = letter[2][i + 1]
      end
    end
    fields[#fields + 1], fields[#fields + 2] = 'only', a_group
    local entry = redis.pcall('XADD', k_stream, '*', unpack(fields))
    if type(entry) == 'table' then
      line = 'BROKEN ' .. reason(entry)
    else
      redis.call('XDEL', k_dead, ARGV[a])
      count_revived(fields)
      line = 'REPLAYED ' .. entry
    end
  end
  lines[#lines + 1] = line
end
return remember({table.concat(lines, '\n')})
