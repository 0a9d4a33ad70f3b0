-- expire: settle a delivery that came after the message's expiry; it is counted, and gone.
--
-- State    unack -> garbage
-- KEYS[1]  unack      zset  id -> end of the lease, ms
-- KEYS[2]  garbage    zset  id -> since, ms
-- KEYS[3]  attempts   hash  id -> past.released.forgiven.lost
-- KEYS[4]  errors     hash  id -> the last error
-- KEYS[5]  cancelled  set   ids in flight that must not be retried
-- KEYS[6]  stats      hash
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  receipt
-- Returns  1
-- Errors   STALE      the receipt is not that of the running delivery
-- Cost     O(log n)
local now = clock(ARGV[1])
local id = ARGV[2]
if not held(KEYS[1], KEYS[3], id, ARGV[3]) then return redis.error_reply('STALE message ' .. id .. NO_LONGER_OURS) end
redis.call('ZREM', KEYS[1], id)
redis.call('HDEL', KEYS[3], id)
redis.call('HDEL', KEYS[4], id)
redis.call('SREM', KEYS[5], id)
redis.call('ZADD', KEYS[2], now, id)
redis.call('HINCRBY', KEYS[6], 'expired', 1)
return 1
