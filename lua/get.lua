-- get: everything stored about one message, at one instant.
--
-- Reads    every structure
-- KEYS[1]  pending    zset
-- KEYS[2]  ready      zset
-- KEYS[3]  unack      zset
-- KEYS[4]  retry      zset
-- KEYS[5]  dead       zset
-- KEYS[6]  garbage    zset
-- KEYS[7]  held       zset  id -> since when it waits for a group, ms
-- KEYS[8]  attempts   hash
-- KEYS[9]  errors     hash
-- KEYS[10] reasons    hash
-- KEYS[11] cancelled  set
-- KEYS[12] payload    string
-- KEYS[13] members    hash  id -> the group that it belongs to
-- KEYS[14] progress   hash  see `progress`
-- ARGV[1]  id
-- Returns  {{score or nil in pending, ready, unack, retry, dead, garbage, held}; past.released.attempts_reset.lost or
--          nil; last error or nil; reason of death or nil; 1 when cancelled in flight, else 0; stored envelope or nil; the
--          group that it belongs to, or nil; what its running delivery has reported, or nil}
-- Cost     O(1)
local id, scores = ARGV[1], {}
for i = 1, 7 do scores[i] = redis.call('ZSCORE', KEYS[i], id) end
local known = {}
for i = 8, 10 do known[i - 7] = redis.call('HGET', KEYS[i], id) end
local cancelled, group = redis.call('SISMEMBER', KEYS[11], id), redis.call('HGET', KEYS[13], id)
local reported, progress = redis.pcall('HMGET', KEYS[14], 'receipt', 'progress'), false -- another program may own the key
if reported[1] and held(KEYS[3], KEYS[8], id, reported[1]) then progress = reported[2] end
if group and string.find(group, '^%c') then group = false end -- it waits for one, or is to be sent with one
return {scores, known[1], known[2], known[3], cancelled, redis.call('GET', KEYS[12]), group, progress}
