-- send: put new messages into pending; an id that exists is left as it is.
--
-- State    (none), garbage -> pending
-- KEYS[1]  pending  zset  id -> due, ms
-- KEYS[2]  garbage  zset  id -> since, ms
-- KEYS[3]  stats    hash
-- KEYS[4]  bell     list
-- KEYS[5..]         strings, the payload keys of the messages, in their order
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2..]         three a message: id, due ('+delay_ms' or ms), envelope; ids all different, 1..1000 of them
-- Returns  the due times, ms, in the messages' order; -1 for an id that existed
-- Cost     O(n log m)
local now, micros = clock(ARGV[1])
local stamp = string.format('%013.0f', now)
local before = head(KEYS[1])
local exist = redis.call('EXISTS', unpack(KEYS, 5)) > 0
local values, members, dues, first = {}, {}, {}, math.huge
for i = 2, #ARGV, 3 do
  local key, id, due = KEYS[4 + (i + 1) / 3], ARGV[i], due_time(ARGV[i + 1], now, micros)
  if exist and redis.call('EXISTS', key) == 1 and redis.call('ZREM', KEYS[2], id) == 0 then
    due = -1
  else
    values[#values + 1], values[#values + 2] = key, stamp .. ARGV[i + 2]
    members[#members + 1], members[#members + 2] = due, id
    first = math.min(first, due)
  end
  dues[#dues + 1] = due
end
if #members > 0 then
  redis.call('MSET', unpack(values))
  redis.call('ZADD', KEYS[1], unpack(members))
  redis.call('HINCRBY', KEYS[3], 'sent', #members / 2)
  if first < before then ring(KEYS[4]) end
end
return dues
