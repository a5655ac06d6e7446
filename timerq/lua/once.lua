-- Marks that something is done now, unless it was marked within a window.
--
-- KEYS meta      hash   – the partition
-- KEYS req       string – the session's last request
-- KEYS mark      string – until when (ms) it counts as done
-- ARGV layout    text   – what the client believes
-- ARGV schema    text   – what the client believes
-- ARGV now_ms    ms     – the manual clock's time, else empty
-- ARGV seq       number – this request's number in its session
-- ARGV window_ms ms     – for how long it counts
--
-- RETURN one line:
--   FIRST – nobody has marked it
--   SEEN  – somebody has

local until_ms = tonumber(redis.call('GET', k_mark) or nil)
if until_ms and until_ms > now_ms then return remember({head_line .. '\nSEEN'}) end
redis.call('SET', k_mark, int(now_ms + tonumber(a_window_ms)), 'PX', a_window_ms)
return remember({head_line .. '\nFIRST'})
