-- heartbeat: note that a consumer lives, what it is and what it holds, and how long its handlers have run.
--
-- It keeps every consumer that was seen within the last 30 seconds, and of the others the latest that were seen within
-- the last hour, up to a thousand in all. The very last one stays, to show since when there is none. A time later than
-- now is from before the server's clock was set back: it is removed, and a consumer that lives is back with its next
-- heartbeat.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  consumers  zset  name -> when it was last seen, ms
-- KEYS[2]  reports    hash  name -> its document
-- KEYS[3]  stats      hash
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  name       of the consumer
-- ARGV[3]  document   what it is, and what it holds
-- ARGV[4..]  field, count  of stats: handlers that ended since its last note, as `count_run` takes them
-- Returns  how many others were removed
-- Cost     O(log n), and up to 2000 are removed
local HOUR_MS, UNSEEN_MS, MOST = 3600000, 30000, 1000
local now = clock(ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[2]) -- a server at its maxmemory refuses a script that begins with a ZADD
local removed = 0
local function remove(from, to)
  local names = redis.call('ZRANGE', KEYS[1], from, to)
  redis.call('ZREMRANGEBYRANK', KEYS[1], from, to)
  redis.call('HDEL', KEYS[2], unpack(names))
  removed = removed + #names
end
local future = redis.call('ZCOUNT', KEYS[1], '(' .. digits(now), '+inf')
if future > 0 then remove(-math.min(future, MOST), -1) end
local past = redis.call('ZCOUNT', KEYS[1], '-inf', now - HOUR_MS)
local silent = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. digits(now - UNSEEN_MS))
local gone = math.min(math.max(past, math.min(silent, redis.call('ZCARD', KEYS[1]) - MOST + 1)), MOST)
if gone > 0 then remove(0, gone - 1) end
redis.call('ZADD', KEYS[1], now, ARGV[2])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
if #ARGV > 3 then redis.call('HGET', KEYS[3], 'tasks') end -- without the right to it, nothing is counted, not a part
for i = 4, #ARGV, 2 do count_run(KEYS[3], ARGV[i], ARGV[i + 1]) end
return removed
