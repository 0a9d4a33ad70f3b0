-- reject: end a delivery by moving its message to the dead letters, with a reason.
--
-- State    unack -> dead, or garbage when it was cancelled meanwhile
-- KEYS[1]  unack      zset  id -> end of the lease, ms
-- KEYS[2]  dead       zset  id -> time of death, ms
-- KEYS[3]  garbage    zset
-- KEYS[4]  attempts   hash  id -> past.released.attempts_reset.lost
-- KEYS[5]  errors     hash  id -> the last error
-- KEYS[6]  reasons    hash  id -> why it died
-- KEYS[7]  cancelled  set   ids in flight that must not be retried
-- KEYS[8]  stats      hash
-- KEYS[9]  meta       hash  events: how many events the ledger keeps
-- KEYS[10] events     stream
-- KEYS[11] members    hash  id -> the group that it belongs to
-- KEYS[12] groups     hash  group -> see `group_of`
-- KEYS[13] held       zset  id -> since when it waits for a group, ms
-- KEYS[14] pending    zset  id -> due, ms
-- KEYS[15] bell       list
-- KEYS[16..]          for a task with results: its payload key, a string; the key of its result, a hash; finished, a stream
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  receipt
-- ARGV[4]  reason
-- ARGV[5]  error      text, '' to keep the stored one
-- ARGV[6]  counted    1 when the delivery was an attempt, 0 when it never started
-- ARGV[7..]           for a task with results: what `keep_result` is given
-- Returns  the time of death, ms; -1 when the message was cancelled and is gone
-- Errors   STALE      the receipt does not match the running delivery
-- Cost     O(log n)
local now = clock(ARGV[1])
local id, counts = ARGV[2], tonumber(ARGV[6])
local ours, stored = held(KEYS[1], KEYS[4], id, ARGV[3])
if not ours then return redis.error_reply('STALE message ' .. id .. HAS_ENDED) end
local cancelled, note, needs = redis.call('SISMEMBER', KEYS[7], id) == 1, ledger(KEYS[9], KEYS[10], now)
local groups = grouped(KEYS[11], KEYS[12], KEYS[13], KEYS[14], needs)
local past, released, attempts_reset, lost = deliveries(stored)
for at = 16, cancelled and 0 or #KEYS, 3 do
  local envelope, given = redis.call('GET', KEYS[at]), {unpack(ARGV, 7)}
  keep_result(envelope, KEYS[at + 1], KEYS[at + 2], id, now, given)
end
move({KEYS[1]}, cancelled and KEYS[3] or KEYS[2], {now, id}, function()
  if cancelled then return forget_cancelled({id}, KEYS[7], KEYS[4], KEYS[5], KEYS[8], note, ARGV[4]) end
  redis.call('HSET', KEYS[6], id, ARGV[4])
  if ARGV[5] ~= '' then redis.call('HSET', KEYS[5], id, ARGV[5]) end
  count(KEYS[8], 'died', 1)
  if note then
    local why = ARGV[5] == '' and ARGV[4] or ARGV[5]
    if not string.find(why, ARGV[4], 1, true) then why = ARGV[4] .. ': ' .. why end
    note(id, 'died', past + 1, nil, nil, why)
  end
  keep_deliveries(KEYS[4], id, past + counts, released + 1 - counts, attempts_reset, lost)
end)
ended(KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15], groups, ARGV[1], {id}, not cancelled)
return cancelled and -1 or now
