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
    local flat = redis.pcall('HGETALL', KEYS[k])
    if flat.err then
      lines[#lines + 1] = 'BROKEN ' .. reason(flat)
    else
      for i = 1, #flat do
        reply[#reply + 1] = flat[i]
        bytes = bytes + #flat[i]
      end
      lines[#lines + 1] = 'RECORD ' .. #flat
    end
  end
end

reply[1] = table.concat(lines, '\n')
return reply
