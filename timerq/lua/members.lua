-- One page of a declared set's ids, and whether each is still the set's.
--
-- KEYS meta    hash   – the partition
-- KEYS set     zset   – the set's ids
-- KEYS never   none   – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV label   text   – the set's name
-- ARGV skip    number – how many ids to pass over: those of the pages before
-- ARGV limit   number – how many ids at the most
--
-- RETURN a line an id; behind the text, each id:
--   MEMBER – its record carries the label
--   STALE  – its record is gone, is another set's, or cannot be read
--   MORE   – behind the last id: there may be others

-- Newest first: what is written meanwhile comes before, and pushes ids onto later pages instead of off them.
local ids = redis.call('ZREVRANGE', k_set, a_skip, a_skip + a_limit - 1)
local reply = {''}
local lines = {head_line}

for _, id in ipairs(ids) do
  if id ~= '' then
    reply[#reply + 1] = id
    lines[#lines + 1] = redis.pcall('HGET', PREFIX .. 'sch:' .. id, 'y') == a_label and 'MEMBER' or 'STALE'
  end
end

if #ids == tonumber(a_limit) then lines[#lines + 1] = 'MORE' end
reply[1] = table.concat(lines, '\n')
return reply
