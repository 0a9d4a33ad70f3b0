-- reconcile_stats: balance the counts; a difference that they cannot explain is counted as adjusted, permanently.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  pending  zset
-- KEYS[2]  ready    zset
-- KEYS[3]  unack    zset
-- KEYS[4]  retry    zset
-- KEYS[5]  dead     zset
-- KEYS[6]  held     zset  id -> since when it waits for a group, ms
-- KEYS[7]  stats    hash
-- Returns  the number of missing messages; below 0 if there were more than had been sent
-- Cost     O(1)
local missing = 0
for i = 1, 6 do missing = missing - redis.call('ZCARD', KEYS[i]) end
local counts = redis.call('HMGET', KEYS[7], 'sent', 'acked', 'cancelled', 'expired', 'purged', 'adjusted')
for i, sum in ipairs(counts) do missing = missing + (i == 1 and 1 or -1) * (tonumber(sum or 0) or 0) end
if missing ~= 0 then count(KEYS[7], 'adjusted', missing) end
return missing
