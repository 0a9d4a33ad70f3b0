-- appear: note that a consumer lives.
--
-- Kept are those that were seen within the last hour, the latest thousand of them. The last one of all is never struck
-- off, so that it can be told since when there is none. Who was seen later than now, was so before the server's clock was
-- set back: one that lives appears anew.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  consumers  zset  name -> when it was last seen, ms
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  name       of the consumer
-- Returns  how many others were struck off
-- Cost     O(log n), and up to 1000 are struck off
local HOUR_MS, MOST = 3600000, 1000
local now = clock(ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[2]) -- a server at its maxmemory refuses a script that begins with a ZADD
local future = redis.call('ZCOUNT', KEYS[1], string.format('(%.0f', now), '+inf')
if future > 0 then redis.call('ZREMRANGEBYRANK', KEYS[1], -future, -1) end
local past = redis.call('ZCOUNT', KEYS[1], '-inf', now - HOUR_MS)
local gone = math.max(past, redis.call('ZCARD', KEYS[1]) - MOST + 1)
if gone > 0 then redis.call('ZREMRANGEBYRANK', KEYS[1], 0, gone - 1) end
redis.call('ZADD', KEYS[1], now, ARGV[2])
return future + math.max(0, gone)
