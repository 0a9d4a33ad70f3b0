-- ack: settle deliveries as done; the messages are gone.
--
-- State    unack -> (gone)
-- KEYS[1]  unack      zset  id -> end of the lease, ms
-- KEYS[2]  attempts   hash  id -> past.released.attempts_reset.lost
-- KEYS[3]  errors     hash  id -> the last error
-- KEYS[4]  cancelled  set   ids in flight that must not be retried
-- KEYS[5]  stats      hash
-- KEYS[6]  meta       hash  events: how many events the ledger keeps
-- KEYS[7]  events     stream
-- KEYS[8]  members    hash  id -> the group that it belongs to
-- KEYS[9]  groups     hash  group -> see `group_of`
-- KEYS[10] held       zset  id -> since when it waits for a group, ms
-- KEYS[11] pending    zset  id -> due, ms
-- KEYS[12] bell       list
-- KEYS[13..]          strings, the payload keys of the messages, in the same order
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2..]           the ids of 1..1000 messages, then their receipts in the same order
-- Returns  1 per message, or 0 where the receipt does not match the running delivery, in the same order
-- Cost     O(n log m)
local n = (#ARGV - 1) / 2
local lease_ends = redis.call('ZMSCORE', KEYS[1], unpack(ARGV, 2, n + 1))
local stored = redis.call('EXISTS', KEYS[2]) == 1 and redis.call('HMGET', KEYS[2], unpack(ARGV, 2, n + 1)) or {}
local receipts = {unpack(ARGV, n + 2)}
local fresh = {} -- receipts of first deliveries: those of one claim share the end of their lease
local results, done, keys, retried, past = {}, {}, {}, {}, {}
for i = 1, n do
  local lease_end, right = lease_ends[i], nil
  if lease_end and stored[i] then
    right = receipt(lease_end, stored[i])
  elseif lease_end then
    right = fresh[lease_end] or receipt(lease_end)
    fresh[lease_end] = right
  end
  if right == receipts[i] then
    results[i], done[#done + 1], keys[#keys + 1] = 1, ARGV[i + 1], KEYS[12 + i]
    if stored[i] then retried[#retried + 1], past[#done] = ARGV[i + 1], stored[i] end
  else
    results[i] = 0
  end
end
if #done == 0 then return results end
local noted, note, needs = {}, ledger(KEYS[6], KEYS[7], ARGV[1])
local groups = grouped(KEYS[8], KEYS[9], KEYS[10], KEYS[11], needs)
redis.call('UNLINK', unpack(keys))
local ids, numbers = {}, {}
for i, id in ipairs(note and done or {}) do
  if not noted[id] then ids[#ids + 1], numbers[#ids + 1] = id, past[i] and deliveries(past[i]) + 1 or 1 end
  noted[id] = true
end
if note then note(ids, 'acked', numbers) end
if #retried > 0 then redis.call('HDEL', KEYS[3], unpack(retried)) end
if redis.call('EXISTS', KEYS[4]) == 1 then redis.call('SREM', KEYS[4], unpack(done)) end
count(KEYS[5], 'acked', #done)
local gone = redis.call('ZREM', KEYS[1], unpack(done))
if gone < #done then count(KEYS[5], 'acked', gone - #done) end -- a message was named twice
if #retried > 0 then redis.call('HDEL', KEYS[2], unpack(retried)) end -- last: the receipt is computed from it
ended(KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], groups, ARGV[1], done)
return results
