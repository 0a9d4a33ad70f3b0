-- ack: settle deliveries as done; the messages are gone.
--
-- State    unack -> (gone)
-- KEYS[1]  unack      zset  id -> end of the lease, ms
-- KEYS[2]  attempts   hash  id -> past.released.forgiven.lost
-- KEYS[3]  errors     hash  id -> the last error
-- KEYS[4]  cancelled  set   ids in flight that must not be retried
-- KEYS[5]  stats      hash
-- KEYS[6..]           strings, the payload keys of the messages, in their order
-- ARGV[1..]           two a message: id, receipt; 1..1000 messages
-- Returns  1 a message, or 0 where the receipt is not that of the running delivery, in their order
-- Cost     O(n log m)
local ids, results, done, keys, retried = {}, {}, {}, {}, {}
for i = 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local lease_ends = redis.call('ZMSCORE', KEYS[1], unpack(ids))
local stored = redis.call('HMGET', KEYS[2], unpack(ids))
for i, id in ipairs(ids) do
  local ours = lease_ends[i] and receipt(lease_ends[i], stored[i]) == ARGV[2 * i]
  results[i] = ours and 1 or 0
  if ours then
    done[#done + 1], keys[#keys + 1] = id, KEYS[5 + i]
    if stored[i] then retried[#retried + 1] = id end
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
