-- bury: move a waiting message to the dead letters; a running one is left alone.
--
-- The record of its deliveries and its last error stay.
--
-- State    pending, ready, retry, held -> dead
-- KEYS[1]  pending  zset
-- KEYS[2]  ready    zset
-- KEYS[3]  retry    zset
-- KEYS[4]  dead     zset  id -> time of death, ms
-- KEYS[5]  unack    zset
-- KEYS[6]  reasons  hash  id -> why it died
-- KEYS[7]  stats    hash
-- KEYS[8]  meta     hash  events: how many events the ledger keeps
-- KEYS[9]  events   stream
-- KEYS[10] members  hash  id -> the group that it belongs to
-- KEYS[11] groups   hash  group -> see `group_of`
-- KEYS[12] held     zset  id -> since when it waits for a group, ms
-- KEYS[13] bell     list
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  reason
-- Returns  'buried', 'in_flight', 'dead' if it already is, or 'unknown'
-- Cost     O(log n)
local now, id = clock(ARGV[1]), ARGV[2]
local places = where(id, {KEYS[1], KEYS[2], KEYS[3], KEYS[12]})
if #places == 0 then
  if redis.call('ZSCORE', KEYS[5], id) then return 'in_flight' end
  return redis.call('ZSCORE', KEYS[4], id) and 'dead' or 'unknown'
end
local note, needs = ledger(KEYS[8], KEYS[9], now)
local groups = grouped(KEYS[10], KEYS[11], KEYS[12], KEYS[1], needs)
move(places, KEYS[4], {now, id}, function()
  redis.call('HSET', KEYS[6], id, ARGV[3])
  count(KEYS[7], 'died', 1)
  if note then note(id, 'died', nil, nil, nil, ARGV[3]) end
end)
ended(KEYS[10], KEYS[11], KEYS[12], KEYS[1], KEYS[13], groups, ARGV[1], {id}, true)
return 'buried'
