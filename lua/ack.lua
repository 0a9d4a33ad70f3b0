-- ack: settle deliveries as done; the messages are gone.
--
-- State    unack -> (gone)
-- KEYS[1]  unack      zset  id -> end of the lease, ms
-- KEYS[2]  attempts   hash  id -> past.released.forgiven.lost
-- KEYS[3]  errors     hash  id -> the last error
-- KEYS[4]  cancelled  set   ids in flight that must not be retried
-- KEYS[5]  stats      hash
-- KEYS[6..]           strings, the payload keys of the messages, in their order
-- ARGV[1..]           the ids of 1..1000 messages, then their receipts in the same order
-- Returns  1 a message, or 0 where the receipt is not that of the running delivery, in their order
-- Cost     O(n log m)
local count = #ARGV / 2
local lease_ends = redis.call('ZMSCORE', KEYS[1], unpack(ARGV, 1, count))
local stored = redis.call('EXISTS', KEYS[2]) == 1 and redis.call('HMGET', KEYS[2], unpack(ARGV, 1, count)) or {}
local receipts = {unpack(ARGV, count + 1)}
local fresh = {} -- receipts of first deliveries: those of one claim share the end of their lease
local results, done, keys, retried = {}, {}, {}, {}
for i = 1, count do
  local lease_end, right = lease_ends[i], nil
  if lease_end and stored[i] then
    right = receipt(lease_end, stored[i])
  elseif lease_end then
    right = fresh[lease_end] or receipt(lease_end)
    fresh[lease_end] = right
  end
  if right == receipts[i] then
    results[i], done[#done + 1], keys[#keys + 1] = 1, ARGV[i], KEYS[5 + i]
    if stored[i] then retried[#retried + 1] = ARGV[i] end
  else
    results[i] = 0
  end
end
if #done == 0 then return results end
redis.call('HINCRBY', KEYS[5], 'acked', redis.call('ZREM', KEYS[1], unpack(done)))
redis.call('UNLINK', unpack(keys))
if #retried > 0 then
  redis.call('HDEL', KEYS[2], unpack(retried))
  redis.call('HDEL', KEYS[3], unpack(retried))
end
if redis.call('EXISTS', KEYS[4]) == 1 then redis.call('SREM', KEYS[4], unpack(done)) end
return results
