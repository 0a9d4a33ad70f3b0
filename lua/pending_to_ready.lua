-- pending_to_ready: promote messages that have become due, earliest first.
--
-- It does not ring: the caller claims next, and the claim rings if it leaves messages.
--
-- State    pending -> ready
-- KEYS[1]  pending  zset  id -> due, ms
-- KEYS[2]  ready    zset  id -> due, ms
-- KEYS[3]  stats    hash
-- KEYS[4]  meta     hash  events: how many events the ledger keeps
-- KEYS[5]  events   stream
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  limit    1..1000 messages
-- Returns  the number of messages promoted; if it is `limit`, more may be due
-- Cost     O(limit log n)
local now = clock(ARGV[1])
local due = math.min(redis.call('ZCOUNT', KEYS[1], '-inf', digits(now)), tonumber(ARGV[2]))
if due == 0 then return 0 end
local last = digits(due - 1)
probe()
local note = ledger(KEYS[4], KEYS[5], now)
local noted = note and redis.call('ZRANGE', KEYS[1], '0', last, 'WITHSCORES') or {}
if redis.call('ZCARD', KEYS[2]) == 0 then -- a copy within the server, at half the cost of one through this script
  redis.call('DEL', KEYS[2]) -- a server at its maxmemory refuses a script that begins with a ZRANGESTORE
  redis.call('ZRANGESTORE', KEYS[2], KEYS[1], '0', last)
else
  local entries = swapped(redis.call('ZRANGE', KEYS[1], '0', last, 'WITHSCORES'))
  put(KEYS[2], entries)
end
count(KEYS[3], 'promoted', due)
if note then
  local ids, dues = {}, {}
  for i = 1, #noted, 2 do ids[#ids + 1], dues[#dues + 1] = noted[i], noted[i + 1] end
  note(ids, 'promoted', nil, dues, true)
end
redis.call('ZREMRANGEBYRANK', KEYS[1], '0', last)
return due
