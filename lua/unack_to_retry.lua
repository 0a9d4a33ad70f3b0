-- unack_to_retry: take back deliveries whose lease ran out; each counts as an attempt.
--
-- The retry is due at once, as of the end of the lease. A message that was cancelled meanwhile is not retried. Replaced
-- deliveries are forgotten a minute after their leases ended: until then, a late heartbeat can still renew them.
--
-- If consumers could not renew their leases for a while, leases that ended meanwhile are left to them for a grace: see
-- `look`.
--
-- State    unack -> retry, or garbage when cancelled
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
-- KEYS[11] replaced   zset  deliveries whose messages were replaced while they ran -> end of the lease, ms
-- KEYS[12] watch      hash    when a consumer last looked for ended leases, and the last grace
-- KEYS[13] members    hash  id -> the group that it belongs to
-- KEYS[14] groups     hash  group -> see `group_of`
-- KEYS[15] held       zset  id -> since when it waits for a group, ms
-- KEYS[16] pending    zset  id -> due, ms
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  limit      1..1000 messages
-- ARGV[3]  by_ms      the server's time by which the call should be executed; '' if the caller does not know
-- ARGV[4]  consumer   1 if the caller looks every second, '' otherwise
-- Returns  {the number of deliveries taken back, and there may be more if it is `limit`; now, ms; how much is left of a
--          grace, ms; 1 if a lease has ended that is left to its holder, else 0}
-- Cost     O(limit log n)
local now = clock(ARGV[1])
forget_ended(KEYS[11], now - 60000)
local by, grace = look(KEYS[12], now, ARGV[3], ARGV[4] == '1')
local left = grace > 0 and #redis.call('ZRANGE', KEYS[1], '(' .. by, now, 'BYSCORE', 'LIMIT', 0, 1) or 0
local lost = redis.call('ZRANGE', KEYS[1], '-inf', by, 'BYSCORE', 'LIMIT', 0, tonumber(ARGV[2]), 'WITHSCORES')
if #lost == 0 then return {0, now, grace, left} end
probe()
local ids, attempts, errors, retries, cancelled, since = {}, {}, {}, {}, {}, {}
for i = 1, #lost, 2 do ids[#ids + 1] = lost[i] end
local stored = redis.call('HMGET', KEYS[4], unpack(ids))
local cancels, note, needs = redis.call('EXISTS', KEYS[6]) == 1, ledger(KEYS[9], KEYS[10], now)
local groups = grouped(KEYS[13], KEYS[14], KEYS[15], KEYS[16], needs)
for i, id in ipairs(ids) do
  local past, released, attempts_reset, times = deliveries(stored[i])
  local due = math.floor(math.max(0, lost[2 * i]))
  if cancels and redis.call('SISMEMBER', KEYS[6], id) == 1 then
    cancelled[#cancelled + 1], since[#since + 1], since[#since + 2] = id, now, id
  else
    local n = #retries
    attempts[n + 1], attempts[n + 2] = id, table.concat({past + 1, released, attempts_reset, times + 1}, '.')
    errors[n + 1], errors[n + 2] = id, 'LeaseLost: the consumer did not settle the message before its lease ended'
    retries[n + 1], retries[n + 2] = due, id
  end
end
if #cancelled > 0 then put(KEYS[3], since) end
if #retries > 0 then put(KEYS[2], retries) end
local numbers, ends = {}, {}
for i = 1, note and #ids or 0 do numbers[i], ends[i] = deliveries(stored[i]) + 1, math.floor(lost[2 * i]) end
if note then note(ids, 'lease_lost', numbers, ends) end
if #retries > 0 then
  redis.call('HSET', KEYS[4], unpack(attempts))
  redis.call('HSET', KEYS[5], unpack(errors))
end
if #cancelled > 0 then forget_cancelled(cancelled, KEYS[6], KEYS[4], KEYS[5], KEYS[7], note) end
count(KEYS[7], 'lease_lost', #ids)
ring(KEYS[8])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #ids - 1)
ended(KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[8], groups, ARGV[1], cancelled)
return {#ids, now, grace, left}
