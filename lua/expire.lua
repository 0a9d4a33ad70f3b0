-- expire: settle a delivery that came after its message expired: the message is counted and discarded.
--
-- State    unack -> garbage
-- KEYS[1]  unack      zset  id -> end of the lease, ms
-- KEYS[2]  garbage    zset  id -> since, ms
-- KEYS[3]  attempts   hash  id -> past.released.attempts_reset.lost
-- KEYS[4]  errors     hash  id -> the last error
-- KEYS[5]  cancelled  set   ids in flight that must not be retried
-- KEYS[6]  stats      hash
-- KEYS[7]  meta       hash  events: how many events the ledger keeps
-- KEYS[8]  events     stream
-- KEYS[9]  members    hash  id -> the group that it belongs to
-- KEYS[10] groups     hash  group -> see `group_of`
-- KEYS[11] held       zset  id -> since when it waits for a group, ms
-- KEYS[12] pending    zset  id -> due, ms
-- KEYS[13] bell       list
-- KEYS[14..]          for a task with results: its payload key, a string; the key of its result, a hash; finished, a stream
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  receipt
-- ARGV[4..]           for a task with results: what `keep_result` is given
-- Returns  1
-- Errors   STALE      the receipt does not match the running delivery
-- Cost     O(log n)
local now = clock(ARGV[1])
local id = ARGV[2]
local ours, stored = held(KEYS[1], KEYS[3], id, ARGV[3])
if not ours then return redis.error_reply('STALE message ' .. id .. HAS_ENDED) end
local note, needs = ledger(KEYS[7], KEYS[8], now)
local groups = grouped(KEYS[9], KEYS[10], KEYS[11], KEYS[12], needs)
for at = 14, #KEYS, 3 do
  local envelope, given = redis.call('GET', KEYS[at]), {unpack(ARGV, 4)}
  keep_result(envelope, KEYS[at + 1], KEYS[at + 2], id, now, given)
end
move({KEYS[1]}, KEYS[2], {now, id}, function()
  redis.call('HDEL', KEYS[4], id)
  redis.call('SREM', KEYS[5], id)
  count(KEYS[6], 'expired', 1)
  if note then note(id, 'expired', deliveries(stored) + 1) end
  redis.call('HDEL', KEYS[3], id) -- last: the receipt is computed from it
end)
ended(KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13], groups, ARGV[1], {id})
return 1
