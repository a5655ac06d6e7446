-- Where a schedule is: its owner's index, its tenant's due set, and what wakes the dispatchers.

local function owner_of(id) return string.match(id, '%z([^%z]*)$') end

local function owner_index(id)
  local tenant, owner = string.match(id, '^([^%z]*)%z[^%z]*%z([^%z]*)$')
  return PREFIX .. 'own:' .. tenant .. '\0' .. owner
end

-- Takes a schedule out of every place; the stream's entry has been written before.
local function forget(id, due)
  redis.call('ZREM', due, id)
  redis.call('ZREM', k_keys, id)
  redis.call('ZREM', k_held, id)
  if string.byte(id, -1) ~= 0 then redis.call('ZREM', owner_index(id), id) end
  redis.call('DEL', PREFIX .. 'sch:' .. id)
end

-- When one that could not be fired is tried again (ms): after 1, 2, 4 … 32 s, by how many tries have failed.
local function try_again_at(tries) return int(now_ms + math.min(1000 * 2 ^ math.min(tries - 1, 10), 32000)) end

-- Brings a tenant's entry in `heads` in line with its due set.
local function settle(tenant, due)
  local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
  if head then
    redis.call('ZADD', k_heads, head, tenant)
  else
    redis.call('ZREM', k_heads, tenant)
  end
end

local function earliest() return redis.call('ZRANGE', k_heads, 0, 0, 'WITHSCORES')[2] end

-- Tells the sleeping dispatchers that they would sleep too long.
local function wake_if_earlier(before)
  local head = earliest()
  if head and (not before or tonumber(head) < tonumber(before)) then
    -- where it cannot be given, all else is done, and the dispatchers look once a second
    redis.pcall('XADD', k_wake, 'MAXLEN', 1, '*', 'at', head, 'now_us', int(now_us))
  end
end
