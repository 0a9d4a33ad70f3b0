-- ack_result: settle deliveries of tasks as done, and keep their results; the messages are gone.
--
-- State    unack -> (gone)
-- KEYS[1]  unack      zset  id -> end of the lease, ms
-- KEYS[2]  attempts   hash  id -> past.released.attempts_reset.lost
-- KEYS[3]  errors     hash  id -> the last error
-- KEYS[4]  cancelled  set   ids in flight that must not be retried
-- KEYS[5]  stats      hash
-- KEYS[6]  meta       hash  events: how many events the ledger keeps
-- KEYS[7]  events     stream
-- KEYS[8]  finished   stream  ids of messages with a result
-- KEYS[9]  members    hash  id -> the group that it belongs to
-- KEYS[10] groups     hash  group -> see `group_of`
-- KEYS[11] held       zset  id -> since when it waits for a group, ms
-- KEYS[12] pending    zset  id -> due, ms
-- KEYS[13] bell       list
-- KEYS[14..]          two per message: its payload key, a string, and the key of its result, a hash
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2..]           nine per message, 1..100 of them: id, receipt, then what `keep_result` is given
-- Returns  1 per message, or 0 where the receipt does not match the running delivery, in the same order
-- Cost     O(n log m)
local now, results, done, attempts = clock(ARGV[1]), {}, {}, {}
local note, needs = ledger(KEYS[6], KEYS[7], now)
local groups = grouped(KEYS[9], KEYS[10], KEYS[11], KEYS[12], needs)
for i = 2, #ARGV, 9 do
  local id = ARGV[i]
  local ours, stored = held(KEYS[1], KEYS[2], id, ARGV[i + 1])
  results[#results + 1] = ours and 1 or 0
  if ours then
    local payload, record = KEYS[(2 * i + 122) / 9], KEYS[(2 * i + 131) / 9] -- 14 and 15 for 2, 16 and 17 for 11, …
    local given = {unpack(ARGV, i + 2, i + 8)}
    local envelope = redis.call('GET', payload)
    keep_result(envelope, record, KEYS[8], id, now, given)
    redis.call('UNLINK', payload)
    redis.call('HDEL', KEYS[3], id)
    redis.call('SREM', KEYS[4], id)
    end_delivery(KEYS[1], KEYS[2], KEYS[5], id) -- last: the receipt is computed from it
    done[#done + 1], attempts[#done + 1] = id, deliveries(stored) + 1
  end
end
if note then note(done, 'acked', attempts) end
ended(KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13], groups, ARGV[1], done)
return results
