-- acquire_slot: let deliveries begin whose keys have room; the others go back to wait.
--
-- `release_slot` promotes a waiting message, with a slot kept for it. In case that does not happen, the message is due
-- again after `net_ms`, plus 10 ms for each message that already waits, so that at most a hundred a second come back in
-- vain. A message that comes back this way keeps the due time that it had.
--
-- State    unack -> unack or pending, or garbage when it was cancelled and would have to wait
-- KEYS[1]  unack      zset  id -> end of the lease, ms
-- KEYS[2]  pending    zset  id -> due, ms
-- KEYS[3]  attempts   hash  id -> past.released.attempts_reset.lost
-- KEYS[4]  slots      zset  key, receipt ('' until it is handed out) and id, with zero bytes between -> 0
-- KEYS[5]  waiting    zset  key, due (ms, 15 digits) and id, with zero bytes between -> 0
-- KEYS[6]  parked     hash  id -> until when it waits at most, ms, and its due time, ms
-- KEYS[7]  meta       hash
-- KEYS[8]  stats      hash
-- KEYS[9]  ready      zset
-- KEYS[10] garbage    zset
-- KEYS[11] errors     hash  id -> the last error
-- KEYS[12] cancelled  set   ids in flight that must not be retried
-- KEYS[13] rate       zset  number of the delivery -> its time, microseconds
-- KEYS[14] events     stream
-- KEYS[15] replaced   zset  deliveries whose messages were replaced while they ran -> end of the lease, ms
-- KEYS[16] members    hash  id -> the group that it belongs to
-- KEYS[17] groups     hash  group -> see `group_of`
-- KEYS[18] held       zset  id -> since when it waits for a group, ms
-- KEYS[19] bell       list
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  net_ms     1..3600000
-- ARGV[3]  handed_us  when they were handed out, so that the rate does not count those that wait; '' if no limit is known
-- ARGV[4..]           for 1..250 deliveries: key, id, receipt, due (ms)
-- Returns  for each its due time, ms; -1 if it waits or was cancelled; -2 if the receipt does not match the running
--          delivery; an empty list if there is no limit
-- Cost     O(n log m), and up to 1000 slots are looked at
local limit = setting(redis.call('HGET', KEYS[7], 'per_key'))
if not limit then return {} end
probe()
local verdicts, counts, over, held_back, now, micros = {}, {}, {}, 0, clock(ARGV[1])
local net, note, needs = tonumber(ARGV[2]) + 10 * redis.call('ZCARD', KEYS[5]), ledger(KEYS[7], KEYS[14], now)
local groups, most = grouped(KEYS[16], KEYS[17], KEYS[18], KEYS[2], needs), math.ceil(4000 / #ARGV)
for i = 4, #ARGV, 4 do
  local key, id, given, due = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local slot = key .. '\0' .. given .. '\0' .. id
  local ours, stored = held(KEYS[1], KEYS[3], id, given)
  verdicts[#verdicts + 1] = -2
  if ours then
    counts[key] = counts[key] or running(KEYS[4], KEYS[1], KEYS[9], KEYS[3], KEYS[15], key, limit, most, now, micros)
    local waited, before = waits(KEYS[6], id)
    if waited == due then due = before end
    local kept = redis.call('ZREM', KEYS[4], key .. '\0\0' .. id) + redis.call('ZREM', KEYS[4], slot)
    if kept > 0 or counts[key] < limit then
      redis.call('ZADD', KEYS[4], 0, slot)
      counts[key], verdicts[#verdicts] = counts[key] + 1 - kept, due
      if waited then redis.call('HDEL', KEYS[6], id) end
    else
      local past, released, attempts_reset, lost = deliveries(stored)
      local cancelled, at = redis.call('SISMEMBER', KEYS[12], id) == 1, now + net + 10 * held_back
      held_back, verdicts[#verdicts], over[#over + 1] = held_back + 1, -1, cancelled and id or nil
      move({KEYS[1]}, cancelled and KEYS[10] or KEYS[2], {cancelled and now or at, id}, function()
        if ARGV[3] ~= '' then give_back(KEYS[13], ARGV[3]) end
        if note then note(id, 'held_back', past + 1, due, nil, 'its key has no room') end
        if cancelled then return forget_cancelled({id}, KEYS[12], KEYS[3], KEYS[11], KEYS[8], note) end
        redis.call('HSET', KEYS[6], id, string.format('%d %d', at, due))
        redis.call('ZADD', KEYS[5], 0, key .. '\0' .. string.format('%015d', due) .. '\0' .. id)
        keep_deliveries(KEYS[3], id, past, released + 1, attempts_reset, lost)
      end)
    end
  end
end
if held_back == 0 then return verdicts end
ended(KEYS[16], KEYS[17], KEYS[18], KEYS[2], KEYS[19], groups, ARGV[1], over)
for _, counter in ipairs({'released', 'held_back'}) do count(KEYS[8], counter, held_back) end
for key = 5, 6 do redis.call('PEXPIRE', KEYS[key], math.max(redis.call('PTTL', KEYS[key]), 2 * net)) end
return verdicts
