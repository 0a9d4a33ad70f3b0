-- stats: the queue's counts at one instant.
--
-- Reads    every structure
-- KEYS[1]  pending  zset
-- KEYS[2]  ready    zset
-- KEYS[3]  unack    zset
-- KEYS[4]  retry    zset
-- KEYS[5]  dead     zset
-- KEYS[6]  garbage  zset
-- KEYS[7]  held     zset  id -> since when it waits for a group, ms
-- KEYS[8]  stats    hash
-- KEYS[9]  meta     hash
-- ARGV[1]  now_ms   '' for the server's time
-- Returns  {now, ms; {since when it is paused, ms; until when, ms, or nil}, empty when it is not; {ids in pending, ready,
--          unack, retry, dead, garbage, held}; {lowest score in each of them or nil}; {counter, value, …}; {those due in
--          pending, in retry}}
-- Cost     O(log n)
local counts, heads = {}, {}
for i = 1, 7 do
  counts[i] = redis.call('ZCARD', KEYS[i])
  heads[i] = redis.call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2] or false
end
local now = clock(ARGV[1])
local due = {redis.call('ZCOUNT', KEYS[1], '-inf', now), redis.call('ZCOUNT', KEYS[4], '-inf', now)}
return {now, {paused(KEYS[9], now)}, counts, heads, redis.call('HGETALL', KEYS[8]), due}
