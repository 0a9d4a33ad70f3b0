-- reject: bury a delivery: the message goes to the dead letters, with the reason.
--
-- State    unack -> dead
-- KEYS[1]  unack      zset  id -> end of the lease, ms
-- KEYS[2]  dead       zset  id -> time of death, ms
-- KEYS[3]  attempts   hash  id -> past.released.forgiven
-- KEYS[4]  errors     hash  id -> the last error
-- KEYS[5]  reasons    hash  id -> why it died
-- KEYS[6]  cancelled  set   ids in flight that must not be retried
-- KEYS[7]  stats      hash
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  receipt
-- ARGV[4]  reason
-- ARGV[5]  error      text, '' to keep what is known
-- ARGV[6]  counted    1 when the delivery was an attempt, 0 when it never started
-- Returns  the time of death, ms
-- Errors   STALE      the receipt is not that of the running delivery
-- Cost     O(log n)
local now = clock(ARGV[1])
local id = ARGV[2]
local ours, stored = held(KEYS[1], KEYS[3], id, ARGV[3])
if not ours then return redis.error_reply('STALE ' .. id) end
local past, released, forgiven = deliveries(stored)
local counted = tonumber(ARGV[6])
redis.call('ZREM', KEYS[1], id)
redis.call('SREM', KEYS[6], id)
redis.call('HSET', KEYS[3], id, past + counted .. '.' .. released + 1 - counted .. '.' .. forgiven)
redis.call('HSET', KEYS[5], id, ARGV[4])
if ARGV[5] ~= '' then redis.call('HSET', KEYS[4], id, ARGV[5]) end
redis.call('ZADD', KEYS[2], now, id)
redis.call('HINCRBY', KEYS[7], 'died', 1)
return now
