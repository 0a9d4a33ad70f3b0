-- due: list the delayed records that are due, and say when the next one is.
--
-- Reads    pending, waking
-- KEYS[1]  pending  zset    id -> due, ms
-- KEYS[2]  waking   stream  what idle readers block on, beside the topic itself
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  limit    1..500 records
-- Returns  {{id, …}, earliest due first; ms until the next one, 0 when more are due, -1 when no other waits;
--          the last id of waking}
-- Cost     O(limit log n)
local now, limit = clock(ARGV[1]), tonumber(ARGV[2])
local rows, ids = redis.call('ZRANGE', KEYS[1], 0, limit, 'WITHSCORES'), {}
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
local seen = last and last[1] or '0-0'
for i = 1, #rows, 2 do
  local due = tonumber(rows[i + 1])
  if due > now then return {ids, math.ceil(due - now), seen} end
  if #ids == limit then return {ids, 0, seen} end
  ids[#ids + 1] = rows[i]
end
return {ids, -1, seen}
