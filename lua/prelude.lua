-- prelude: what the scripts share; the loader puts it in front of each of them.

-- The time as whole milliseconds and the microseconds (0..999) past them: the server's, or what a test gives.
local function clock(given)
  if given ~= '' then
    local now = tonumber(given)
    return math.floor(now), math.min(999, math.floor((now % 1) * 1000 + 0.5))
  end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000), time[2] % 1000
end

-- A due time, ms, from '+delay_ms' or an absolute 'ms'. Part of a millisecond counts as a whole one, so that a
-- delay is never cut short.
local function due_time(given, now, micros)
  if string.sub(given, 1, 1) ~= '+' then return tonumber(given) end
  local delay = tonumber(string.sub(given, 2))
  if delay > 0 and micros > 0 then delay = delay + 1 end
  return now + delay
end

-- The lowest score of a sorted set, and whose it is; infinity and nil when it is empty.
local function head(zset)
  local first = redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')
  return tonumber(first[2] or math.huge), first[1]
end

-- When the holder of the timer wakes, ms, 0 when nobody holds it; and the holder's name.
local function timer(key)
  local wakes, holder = string.match(redis.call('GET', key) or '', '^(%d+) (.*)$')
  return tonumber(wakes or 0), holder
end

-- A script has no rollback: before it takes messages away, it fails when the place that they go to is no sorted set any
-- more, because another program has overwritten the key.
local function check_target(zset)
  redis.call('ZCARD', zset)
end

-- One token is enough: whoever takes it looks at everything, and rings again when it leaves work behind. A server at
-- its maxmemory may refuse the token; that must not undo the script, and the fallback poll makes up for it.
local function ring(bell)
  if redis.call('EXISTS', bell) == 0 then redis.pcall('LPUSH', bell, 1) end
end

-- What is known of a message's earlier deliveries: how many counted, how many were handed back uncounted, how many
-- of the counted ones a requeue has forgiven, and how many of those since then lost their lease. It is stored only
-- once there is something to tell.
local FRESH = '0.0.0.0'

local function deliveries(stored)
  local past, released, forgiven, lost = string.match(stored or FRESH, '^(%d+)%.(%d+)%.(%d+)%.(%d+)$')
  if not past then return 0, 0, 0, 0 end -- another program has overwritten it
  return tonumber(past), tonumber(released), tonumber(forgiven), tonumber(lost)
end

local function keep_deliveries(attempts, id, ...)
  redis.call('HSET', attempts, id, table.concat({...}, '.'))
end

-- The receipt of the running delivery. The fraction of a lease's end is the microsecond of its hand-out: it tells
-- the deliveries of two messages apart that had the same id one after the other.
local function receipt(lease_end, stored)
  return (stored or FRESH) .. '-' .. math.floor((lease_end % 1) * 1000 + 0.5)
end

local NO_LONGER_OURS = ' is no longer ours: it was settled, or its lease ran out; nothing was changed'

-- Whether `given` is the receipt of the running delivery of `id`, and what is stored of the earlier ones.
local function held(unack, attempts, id, given)
  local lease_end = redis.call('ZSCORE', unack, id)
  local stored = redis.call('HGET', attempts, id)
  return lease_end and receipt(lease_end, stored) == given, stored
end

-- A message that was cancelled in flight and has left unack is garbage; return whether it was.
local function discard_cancelled(id, now, cancelled, garbage, attempts, errors, stats)
  if redis.call('SREM', cancelled, id) == 0 then return false end
  redis.call('HDEL', attempts, id)
  redis.call('HDEL', errors, id)
  redis.call('ZADD', garbage, now, id)
  redis.call('HINCRBY', stats, 'cancelled', 1)
  return true
end

