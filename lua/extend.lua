-- extend: move the end of a lease that the caller still holds.
--
-- A delivery whose message was replaced while it ran still counts against the queue's limits: that end is moved too.
--
-- State    unack -> unack
-- KEYS[1]  unack     zset  id -> end of the lease, ms
-- KEYS[2]  attempts  hash  id -> past.released.attempts_reset.lost
-- KEYS[3]  replaced  zset  deliveries whose messages were replaced while they ran -> end of the lease, ms
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  receipt
-- ARGV[4]  lease_ms  1..86400000, from now
-- Returns  the new end of the lease, ms; 0 for a delivery whose message was replaced
-- Errors   STALE     the receipt does not match the running delivery
-- Cost     O(log n)
local now = clock(ARGV[1])
local id, given = ARGV[2], ARGV[3]
local ours = held(KEYS[1], KEYS[2], id, given)
local lease_end = now + tonumber(ARGV[4])
if not ours and kept_until(KEYS[3], id, given) > 0 then
  put(KEYS[3], {lease_end, given .. '\0' .. id})
  return 0
end
if not ours then return redis.error_reply('STALE message ' .. id .. HAS_ENDED) end
local micros = tonumber(string.match(given, '%d+$'))
local score = digits(lease_end) .. string.format('.%03d', micros)
put(KEYS[1], {score, id})
return lease_end
