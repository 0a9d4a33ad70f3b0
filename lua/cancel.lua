-- cancel: withdraw a message that is not running; one that runs is not stopped, but will not be retried.
--
-- State    pending, ready, retry, dead -> garbage
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
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  id
-- Returns  'cancelled', 'in_flight' or 'unknown'
-- Cost     O(log n)
local now, id, note = clock(ARGV[1]), ARGV[2], ledger(KEYS[12], KEYS[13], ARGV[1])
local places = where(id, {KEYS[1], KEYS[2], KEYS[3], KEYS[4]})
if #places > 0 then
  discard(places, KEYS[6], {KEYS[7], KEYS[8], KEYS[9]}, KEYS[11], {id}, now, note, 'cancelled')
  return 'cancelled'
end
if not redis.call('ZSCORE', KEYS[5], id) then return 'unknown' end
redis.call('SREM', KEYS[10], '') -- never an id: a server at its maxmemory refuses a script that begins with a SADD
redis.call('SADD', KEYS[10], id)
return 'in_flight'
