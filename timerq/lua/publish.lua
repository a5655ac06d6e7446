-- Puts events of one tenant straight onto their streams.
--
-- KEYS meta    hash   – the partition
-- KEYS req     string – the session's last request
-- KEYS streams zset   – the names of the streams
-- KEYS log     stream – the exceptions
-- KEYS never   none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- KEYS item*          – each item's stream; where it has an incarnation, its owner's floor
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV seq     number – this request's number in its session
-- ARGV tenant  text
-- ARGV item*          – each item's key, owner, stream, content, type, correlation, payload, and the owner handle's
--                       incarnation (or empty)
--
-- RETURN a line an item:
--   PUBLISHED version event_id
--   OWNER_GONE floor          – the handle's owner was destroyed
--   DROPPED version event_id  – the stream is full, and its rule drops what comes then
--   FULL why                  – the stream is full, and its rule holds back what comes then: nothing was done
--   BROKEN reason             – the stream refuses

local lines = {head_line}
local version = reserve_versions((#ARGV - first_item_arg + 1) / 8) - 1

local k = first_item_key
for a = first_item_arg, #ARGV, 8 do
  version = version + 1
  local text = int(version)
  local event_id = meta[5] .. '-' .. text .. '-0'
  local dead
  k = k + 1
  if ARGV[a + 7] ~= '' then
    dead = redis.call('GET', KEYS[k])
    k = k + 1
  end
  if dead and tonumber(ARGV[a + 7]) <= tonumber(dead) then
    lines[#lines + 1] = 'OWNER_GONE ' .. dead
  else
    local fine, said, why = pcall(offer, ARGV[a + 2], event_id, ARGV[a + 4], a_tenant, ARGV[a], ARGV[a + 1], now_text,
      '0', text, '0', ARGV[a + 6], ARGV[a + 3], ARGV[a + 5])
    if not fine then
      lines[#lines + 1] = 'BROKEN ' .. reason(said)
    elseif said == 'FULL' then
      lines[#lines + 1] = 'FULL ' .. reason(why)
    else
      lines[#lines + 1] = (said or 'PUBLISHED') .. ' ' .. text .. ' ' .. event_id
    end
  end
end

return remember({table.concat(lines, '\n')})
