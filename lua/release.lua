-- release: hand a delivery back; it costs no retry. The attempt number rises if its handler had begun.
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
-- KEYS[9]  rate       zset  number of the delivery -> its time, microseconds
-- KEYS[10] meta       hash  events: how many events the ledger keeps
-- KEYS[11] events     stream
-- KEYS[12] members    hash  id -> the group that it belongs to
-- KEYS[13] groups     hash  group -> see `group_of`
-- KEYS[14] held       zset  id -> since when it waits for a group, ms
-- KEYS[15] pending    zset  id -> due, ms
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  receipt
-- ARGV[4]  due        ms, as in the delivery: the message keeps its place
-- ARGV[5]  handed_us  when it was handed out, to take it off the rate; '' to count it, or without a limit
-- ARGV[6]  begun      1 when its handler had begun, 0 when it never started
-- Returns  1; 0 when the message was cancelled and is gone
-- Errors   STALE      the receipt does not match the running delivery
-- Cost     O(log n)
local now = clock(ARGV[1])
local id, begun = ARGV[2], tonumber(ARGV[6])
local ours, stored = held(KEYS[1], KEYS[4], id, ARGV[3])
if not ours then return redis.error_reply('STALE message ' .. id .. HAS_ENDED) end
local cancelled, note, needs = redis.call('SISMEMBER', KEYS[6], id) == 1, ledger(KEYS[10], KEYS[11], now)
local groups = grouped(KEYS[12], KEYS[13], KEYS[14], KEYS[15], needs)
local past, released, attempts_reset, lost = deliveries(stored)
local due = cancelled and now or math.min(now, tonumber(ARGV[4]))
move({KEYS[1]}, cancelled and KEYS[3] or KEYS[2], {due, id}, function()
  if note then note(id, 'released', past + 1, ARGV[4]) end
  if ARGV[5] ~= '' then give_back(KEYS[9], ARGV[5]) end
  count(KEYS[7], 'released', 1)
  if cancelled then return forget_cancelled({id}, KEYS[6], KEYS[4], KEYS[5], KEYS[7], note) end
  keep_deliveries(KEYS[4], id, past + begun, released + 1 - begun, attempts_reset + begun, lost)
end)
if cancelled then
  ended(KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[8], groups, ARGV[1], {id})
  return 0
end
ring(KEYS[8])
return 1
