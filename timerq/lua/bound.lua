-- Bounds the backlog of a stream in a partition, or ends that.
--
-- KEYS meta       hash   – the partition
-- KEYS req        string – the session's last request
-- KEYS never      none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout     text   – what the client believes
-- ARGV schema     text   – what the client believes
-- ARGV now_ms     ms     – the manual clock's time, else empty
-- ARGV seq        number – this request's number in its session
-- ARGV name       text   – the stream's
-- ARGV group      text   – whose backlog it is
-- ARGV limit      number – this partition's part of the limit; - for none
-- ARGV lane_limit number – - for none
-- ARGV rule       letter – h: hold back firing, n: drop the newest, o: drop the oldest; x: it is bounded no more
-- ARGV whole      number – the limit of all partitions together, which is only told; - for none
--
-- RETURN one line:
--   BOUND
--   UNBOUND  – what was held back is let go by tend.lua, and the bound goes with the last
--   UNCHANGED
--   TOO_MANY – so many streams are bounded already
--
-- The bound refuses nothing until tend.lua has counted what there is.

local MOST = 50

local old = bound_of(a_name)
if a_rule == 'x' and (not old or old.rule == 'x') then return remember({head_line .. '\nUNCHANGED'}) end
local lines, count = {}, 0
for line, name in string.gmatch(meta[7] or '', '((%S+) [^\n]*\n)') do
  if name ~= a_name then
    lines[#lines + 1] = line
    count = count + 1
  end
end
if count >= MOST then return remember({head_line .. '\nTOO_MANY'}) end
local group = a_rule == 'x' and old.group or a_group
lines[#lines + 1] = table.concat({a_name, group, a_limit, a_lane_limit, a_rule, a_whole}, ' ') .. '\n'
local text = table.concat(lines)
if #text == #(meta[7] or '') and string.find(meta[7], lines[#lines], 1, true) then return remember({head_line .. '\nUNCHANGED'}) end

redis.call('HSET', k_meta, 'bounds', text)
if not old then return remember({head_line .. '\n' .. (a_rule == 'x' and 'UNBOUND' or 'BOUND')}) end
-- what was counted stands where the new bound counts the same
local counts_the_same = old.group == group and (old.rule == 'o') == (a_rule == 'o')
  and (old.lane_limit ~= nil) == (a_lane_limit ~= '-')
if not counts_the_same then
  redis.call('UNLINK', old.counts, old.recount)
  redis.call('HDEL', old.about, 'after', 'counted_ms')
end
redis.call('HDEL', old.about, 'tended_ms')
return remember({head_line .. '\n' .. (a_rule == 'x' and 'UNBOUND' or 'BOUND')})
