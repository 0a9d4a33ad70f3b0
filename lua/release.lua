-- release: hand a delivery back unstarted; it costs no retry.
--
-- State    unack -> ready, or garbage when it was cancelled meanwhile
-- KEYS[1]  unack      zset  id -> end of the lease, ms
-- KEYS[2]  ready      zset  id -> due, ms
-- KEYS[3]  garbage    zset
-- KEYS[4]  attempts   hash  id -> past.released.attempts_reset.lost
-- KEYS[5]  errors     hash  id -> the last error
-- KEYS[6]  cancelled  set   ids in flight that must not be retried
-- KEYS[7]  stats      hash
-- KEYS[8]  bell       list
-- KEYS[9]  rate       zset  number of the hand-out -> its time, microseconds
-- KEYS[10] meta       hash  events: how many entries the ledger keeps
-- KEYS[11] events     stream
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  receipt
-- ARGV[4]  due        ms, as the delivery named it: the message keeps its place
-- ARGV[5]  handed_us  when it was handed out, for the rate to count it no more; '' when no limit is known
-- Returns  1; 0 when the message was cancelled and is gone
-- Errors   STALE      the receipt is not that of the running delivery
-- Cost     O(log n)
local now = clock(ARGV[1])
local id = ARGV[2]
local ours, stored = held(KEYS[1], KEYS[4], id, ARGV[3])
if not ours then return redis.error_reply('STALE message ' .. id .. NO_LONGER_OURS) end
check_target(KEYS[2])
if ARGV[5] ~= '' then check_target(KEYS[9]) end
local note = ledger(KEYS[10], KEYS[11], now)
local past, released, attempts_reset, lost = deliveries(stored)
redis.call('ZREM', KEYS[1], id)
redis.call('HINCRBY', KEYS[7], 'released', 1)
if ARGV[5] ~= '' then give_back(KEYS[9], ARGV[5]) end
if note then note(id, 'released', past + 1, ARGV[4]) end
if discard_cancelled(id, now, KEYS[6], KEYS[3], KEYS[4], KEYS[5], KEYS[7], note) then return 0 end
keep_deliveries(KEYS[4], id, past, released + 1, attempts_reset, lost)
redis.call('ZADD', KEYS[2], math.min(now, tonumber(ARGV[4])), id)
ring(KEYS[8])
return 1
