-- get: everything stored about one message, at one instant.
--
-- Reads    every structure
-- KEYS[1]  pending    zset
-- KEYS[2]  ready      zset
-- KEYS[3]  unack      zset
-- KEYS[4]  retry      zset
-- KEYS[5]  dead       zset
-- KEYS[6]  garbage    zset
-- KEYS[7]  attempts   hash
-- KEYS[8]  errors     hash
-- KEYS[9]  reasons    hash
-- KEYS[10] cancelled  set
-- KEYS[11] payload    string
-- ARGV[1]  id
-- Returns  {{score or nil in pending, ready, unack, retry, dead, garbage}; past.released.attempts_reset.lost or nil;
--          last error or nil; reason of death or nil; 1 when cancelled in flight, else 0; stored envelope or nil}
-- Cost     O(1)
local id, scores = ARGV[1], {}
for i = 1, 6 do scores[i] = redis.call('ZSCORE', KEYS[i], id) end
local known = {}
for i = 7, 9 do known[i - 6] = redis.call('HGET', KEYS[i], id) end
return {scores, known[1], known[2], known[3], redis.call('SISMEMBER', KEYS[10], id), redis.call('GET', KEYS[11])}
