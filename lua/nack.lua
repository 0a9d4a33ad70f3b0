-- nack: fail a delivery; the message is tried again after a delay.
--
-- State    unack -> retry, or garbage when it was cancelled meanwhile
-- KEYS[1]  unack      zset  id -> end of the lease, ms
-- KEYS[2]  retry      zset  id -> time of the next attempt, ms
-- KEYS[3]  garbage    zset
-- KEYS[4]  attempts   hash  id -> past.released.attempts_reset.lost
-- KEYS[5]  errors     hash  id -> the last error
-- KEYS[6]  cancelled  set   ids in flight that must not be retried
-- KEYS[7]  stats      hash
-- KEYS[8]  bell       list
-- KEYS[9]  meta       hash  events: how many events the ledger keeps
-- KEYS[10] events     stream
-- KEYS[11] members    hash  id -> the group that it belongs to
-- KEYS[12] groups     hash  group -> see `group_of`
-- KEYS[13] held       zset  id -> since when it waits for a group, ms
-- KEYS[14] pending    zset  id -> due, ms
-- KEYS[15] rate       zset  number of the delivery -> its time, microseconds
-- KEYS[16..]          for a task with results: the key of its result, a hash; finished, a stream
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  receipt
-- ARGV[4]  delay      '+delay_ms', 0 or more
-- ARGV[5]  error      text, '' to keep the stored one
-- ARGV[6]  free       1 when it uses up no retry, 0 when it does
-- ARGV[7]  begun      1 when its handler had begun, 0 when not: then it is no attempt
-- ARGV[8]  handed_us  when it was handed out, to take it off the rate; '' to count it, or without a limit
-- ARGV[9..]           for a task with results: what `keep_result` is given
-- Returns  the time of the next attempt, ms; -1 when the message was cancelled and is gone
-- Errors   STALE      the receipt does not match the running delivery
-- Cost     O(log n)
local now, micros = clock(ARGV[1])
local id, free, begun = ARGV[2], tonumber(ARGV[6]), tonumber(ARGV[7])
local ours, stored = held(KEYS[1], KEYS[4], id, ARGV[3])
if not ours then return redis.error_reply('STALE message ' .. id .. HAS_ENDED) end
local before, due, note, needs = head(KEYS[2]), due_time(ARGV[4], now, micros), ledger(KEYS[9], KEYS[10], now)
local groups = grouped(KEYS[11], KEYS[12], KEYS[13], KEYS[14], needs)
local past, released, attempts_reset, lost = deliveries(stored)
local cancelled = redis.call('SISMEMBER', KEYS[6], id) == 1
for at = 16, cancelled and 0 or #KEYS, 2 do
  local given = {unpack(ARGV, 9)}
  keep_result('', KEYS[at], KEYS[at + 1], id, now, given)
end
move({KEYS[1]}, cancelled and KEYS[3] or KEYS[2], {cancelled and now or due, id}, function()
  if note then note(id, 'nacked', past + 1, due, nil, ARGV[5]) end
  if not cancelled and ARGV[5] ~= '' then redis.call('HSET', KEYS[5], id, ARGV[5]) end
  if ARGV[8] ~= '' then give_back(KEYS[15], ARGV[8]) end
  count(KEYS[7], 'nacked', 1)
  if cancelled then return forget_cancelled({id}, KEYS[6], KEYS[4], KEYS[5], KEYS[7], note) end
  keep_deliveries(KEYS[4], id, past + begun, released + 1 - begun, attempts_reset + free * begun, lost)
end)
if cancelled then
  ended(KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[8], groups, ARGV[1], {id})
  return -1
end
if due < before then ring(KEYS[8]) end
return due
