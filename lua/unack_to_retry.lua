-- unack_to_retry: take back deliveries whose lease ran out; each counts as an attempt.
--
-- The retry is due at once, as of the end of the lease. A message that was cancelled meanwhile is not retried.
--
-- State    unack -> retry, or garbage when cancelled
-- KEYS[1]  unack      zset  id -> end of the lease, ms
-- KEYS[2]  retry      zset  id -> time of the next attempt, ms
-- KEYS[3]  garbage    zset
-- KEYS[4]  attempts   hash  id -> past.released.forgiven.lost
-- KEYS[5]  errors     hash  id -> the last error
-- KEYS[6]  cancelled  set   ids in flight that must not be retried
-- KEYS[7]  stats      hash
-- KEYS[8]  bell       list
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  limit      1..1000 messages
-- Returns  the number of deliveries taken back; `limit` says that there may be more
-- Cost     O(limit log n)
local now = clock(ARGV[1])
local lost = redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, tonumber(ARGV[2]), 'WITHSCORES')
check_target(KEYS[2])
for i = 1, #lost, 2 do
  local id, lease_end = lost[i], math.floor(tonumber(lost[i + 1]))
  redis.call('ZREM', KEYS[1], id)
  if not discard_cancelled(id, now, KEYS[6], KEYS[3], KEYS[4], KEYS[5], KEYS[7]) then
    local past, released, forgiven, times = deliveries(redis.call('HGET', KEYS[4], id))
    keep_deliveries(KEYS[4], id, past + 1, released, forgiven, times + 1)
    redis.call('HSET', KEYS[5], id, 'LeaseLost: the consumer did not settle the message before its lease ended')
    redis.call('ZADD', KEYS[2], lease_end, id)
  end
end
if #lost > 0 then
  redis.call('HINCRBY', KEYS[7], 'lease_lost', #lost / 2)
  ring(KEYS[8])
end
return #lost / 2
