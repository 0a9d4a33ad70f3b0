-- cancel: withdraw a message that is not running; one that runs will not be retried, and is stopped if asked for.
--
-- A running delivery is stopped by the consumer that holds it, which looks into `stops` once a second (`stopping` in
-- `delayq/protocol/queue_commands.py`). An entry names its receipt, so it never meets another delivery of this id. The
-- settlement of a stopped delivery removes its entry; each new one looks at the 10 oldest, and removes those that are left
-- of deliveries that ended by themselves.
--
-- State    pending, ready, retry, dead, held -> garbage
-- KEYS[1]  pending    zset
-- KEYS[2]  ready      zset
-- KEYS[3]  retry      zset
-- KEYS[4]  dead       zset
-- KEYS[5]  unack      zset
-- KEYS[6]  garbage    zset  id -> since, ms
-- KEYS[7]  attempts   hash
-- KEYS[8]  errors     hash
-- KEYS[9]  reasons    hash
-- KEYS[10] cancelled  set   ids in flight that must not be retried
-- KEYS[11] stats      hash
-- KEYS[12] meta       hash  events: how many events the ledger keeps
-- KEYS[13] events     stream
-- KEYS[14] members    hash  id -> the group that it belongs to
-- KEYS[15] groups     hash  group -> see `group_of`
-- KEYS[16] held       zset  id -> since when it waits for a group, ms
-- KEYS[17] bell       list
-- KEYS[18] stops      zset  receipt, NUL, id of the deliveries to stop -> since, or last looked at, ms
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  running    1 to stop a running delivery, too
-- ARGV[4]  group      cancel it only as a member of this group; '' in any case
-- Returns  'cancelled', 'stopping', 'in_flight' or 'unknown'
-- Cost     O(log n)
local now, id, note, needs = clock(ARGV[1]), ARGV[2], ledger(KEYS[12], KEYS[13], ARGV[1])
local groups = grouped(KEYS[14], KEYS[15], KEYS[16], KEYS[1], needs)
if ARGV[4] ~= '' and redis.call('HGET', KEYS[14], id) ~= ARGV[4] then return 'unknown' end
local places = where(id, {KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[16]})
if #places > 0 then
  discard(places, KEYS[6], {KEYS[7], KEYS[8], KEYS[9]}, KEYS[11], {id}, now, note, 'cancelled')
  ended(KEYS[14], KEYS[15], KEYS[16], KEYS[1], KEYS[17], groups, ARGV[1], {id})
  return 'cancelled'
end
local lease_end = redis.call('ZSCORE', KEYS[5], id)
if not lease_end then return 'unknown' end
redis.call('SREM', KEYS[10], '') -- never an id: a server at its maxmemory refuses a script that begins with a SADD
redis.call('SADD', KEYS[10], id)
local given = receipt(lease_end, redis.call('HGET', KEYS[7], id))
if ARGV[3] ~= '1' or not can_stop(given) then return 'in_flight' end
redis.call('ZADD', KEYS[18], now, given .. '\0' .. id)
for _, oldest in ipairs(redis.call('ZRANGE', KEYS[18], 0, 9)) do
  local of, other = string.match(oldest, '^(%Z*)%z(.*)$')
  if held(KEYS[5], KEYS[7], other, of) then
    redis.call('ZADD', KEYS[18], now, oldest) -- behind the others, which are looked at next
  else
    redis.call('ZREM', KEYS[18], oldest)
  end
end
redis.pcall('PEXPIRE', KEYS[18], '86400000') -- no lease is longer; without the right to it, later calls tidy up
return 'stopping'
