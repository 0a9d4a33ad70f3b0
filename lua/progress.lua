-- progress: note how far the handler of a running delivery is.
--
-- Nothing that ends a delivery looks at the note: it names its delivery, so another one never shows it, and it expires.
--
-- State    unack -> unack
-- KEYS[1]  unack     zset  id -> end of the lease, ms
-- KEYS[2]  attempts  hash  id -> past.released.attempts_reset.lost
-- KEYS[3]  progress  hash  receipt; progress: what was reported
-- ARGV[1]  id
-- ARGV[2]  receipt
-- ARGV[3]  progress  JSON
-- Returns  1
-- Errors   STALE     the receipt does not match the running delivery
-- Cost     O(log n)
local id, given = ARGV[1], ARGV[2]
if not held(KEYS[1], KEYS[2], id, given) then return redis.error_reply('STALE message ' .. id .. HAS_ENDED) end
redis.call('HDEL', KEYS[3], '') -- a server at its maxmemory refuses a script that begins with an HSET
redis.call('HSET', KEYS[3], 'receipt', given, 'progress', ARGV[3])
redis.call('PEXPIRE', KEYS[3], '86400000') -- no lease is longer
return 1
