-- extend: move the end of a lease that the caller still holds.
--
-- State    unack -> unack
-- KEYS[1]  unack     zset  id -> end of the lease, ms
-- KEYS[2]  attempts  hash  id -> past.released.attempts_reset.lost
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  receipt
-- ARGV[4]  lease_ms  1..86400000, from now
-- Returns  the new end of the lease, ms
-- Errors   STALE     the receipt is not that of the running delivery
-- Cost     O(log n)
local now = clock(ARGV[1])
local id, given = ARGV[2], ARGV[3]
if not held(KEYS[1], KEYS[2], id, given) then return redis.error_reply('STALE message ' .. id .. NO_LONGER_OURS) end
local lease_end = now + tonumber(ARGV[4])
local micros = tonumber(string.match(given, '%d+$'))
redis.call('ZREM', KEYS[1], id) -- a server at its maxmemory refuses a script that begins with a ZADD
redis.call('ZADD', KEYS[1], string.format('%.3f', lease_end + micros / 1000), id)
return lease_end
