-- Reads records.
--
-- KEYS meta    hash – the partition
-- KEYS item*   hash – the records
-- ARGV layout  text – what the client believes
-- ARGV schema  text – what the client believes
-- ARGV now_ms  ms   – the manual clock's time, else empty
--
-- RETURN a line an item; behind the text, its fields and values:
--   RECORD how_many – 0: there is none
--   BROKEN reason   – not a record
--   LATER           – not looked at: the reply is full; ask again

local reply = {''}
local lines = {head_line}
local bytes = 0

for k = first_item_key, #KEYS do
  if bytes > BYTES then
    lines[#lines + 1] = 'LATER'
  else
    bytes = bytes + append_record(lines, reply, KEYS[k])
  end
end

reply[1] = table.concat(lines, '\n')
return reply
