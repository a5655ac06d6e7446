-- Counts the ids of a range.
--
-- KEYS meta    hash – the partition
-- KEYS index   zset – where to look: every id, or an owner's
-- ARGV layout  text – what the client believes
-- ARGV schema  text – what the client believes
-- ARGV now_ms  ms   – the manual clock's time, else empty
-- ARGV from    lex  – the range's start
-- ARGV to      lex  – the range's end
--
-- RETURN one line:
--   COUNT how_many

return {head_line .. '\nCOUNT ' .. redis.call('ZLEXCOUNT', k_index, a_from, a_to)}
