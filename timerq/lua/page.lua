-- One page of ids in key order, with their records where asked.
--
-- KEYS meta    hash   – the partition
-- KEYS index   zset   – where to look: every id, or an owner's
-- KEYS never   none – never made: a slot that is on the move answers TRYAGAIN, not half of what there is
-- ARGV layout  text   – what the client believes
-- ARGV schema  text   – what the client believes
-- ARGV now_ms  ms     – the manual clock's time, else empty
-- ARGV from    lex    – the range's start
-- ARGV to      lex    – the range's end
-- ARGV limit   number – how many ids at the most
-- ARGV records text   – 1: the records too
--
-- RETURN a line an id; behind the text, each id and, where asked, its record's fields and values:
--   ID               – where records are not asked for
--   RECORD how_many  – 0: there is none
--   BROKEN reason    – not a record
--   MORE             – behind the last id: there may be others (the limit was met, or the reply is full)

local ids = redis.call('ZRANGEBYLEX', k_index, a_from, a_to, 'LIMIT', 0, a_limit)
local reply = {''}
local lines = {head_line}
local bytes = 0
local more = #ids == tonumber(a_limit)

for _, id in ipairs(ids) do
  if bytes > BYTES then
    more = true
    break
  end
  reply[#reply + 1] = id
  if a_records == '1' then
    bytes = bytes + append_record(lines, reply, PREFIX .. 'sch:' .. id)
  else
    lines[#lines + 1] = 'ID'
  end
end

if more then lines[#lines + 1] = 'MORE' end
reply[1] = table.concat(lines, '\n')
return reply
