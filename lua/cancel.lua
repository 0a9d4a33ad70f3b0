-- cancel: withdraw a message that is not running; one that runs is not stopped, but will not be retried.
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
-- KEYS[12] meta       hash  events: how many entries the ledger keeps
-- KEYS[13] events     stream
-- KEYS[14] members   hash  id -> the group that it belongs to
-- KEYS[15] groups    hash  group -> see `group_of`
-- KEYS[16] held      zset  id -> since when it waits for a group, ms
-- KEYS[17] bell      list
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  group      cancel it only as a member of this group; '' in any case
-- Returns  'cancelled', 'in_flight' or 'unknown'
-- Cost     O(log n)
local now, id, note, needs = clock(ARGV[1]), ARGV[2], ledger(KEYS[12], KEYS[13], ARGV[1])
local groups = grouped(KEYS[14], KEYS[15], KEYS[16], needs)
if ARGV[3] ~= '' and redis.call('HGET', KEYS[14], id) ~= ARGV[3] then return 'unknown' end
local places = where(id, {KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[16]})
if #places > 0 then
  discard(places, KEYS[6], {KEYS[7], KEYS[8], KEYS[9]}, KEYS[11], {id}, now, note, 'cancelled')
  ended(KEYS[14], KEYS[15], KEYS[16], KEYS[1], KEYS[17], groups, now, {id})
  return 'cancelled'
end
if not redis.call('ZSCORE', KEYS[5], id) then return 'unknown' end
redis.call('SREM', KEYS[10], '') -- never an id: a server at its maxmemory refuses a script that begins with a SADD
redis.call('SADD', KEYS[10], id)
return 'in_flight'
