-- remove_queue: delete a queue that holds no messages, with its limits, schedules, counts and ledger.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  pending  zset
-- KEYS[2]  ready    zset
-- KEYS[3]  unack    zset
-- KEYS[4]  retry    zset
-- KEYS[5]  dead     zset
-- KEYS[6]  garbage  zset
-- KEYS[7]  held     zset  id -> since when it waits for a group, ms
-- KEYS[8]  removed  string  says for three minutes that it was removed: clients look once a minute
-- KEYS[9..]         all other keys of the queue, of any type
-- Returns  the number of messages that it holds; if above 0, nothing was removed
-- Cost     O(1), and the server frees the ledger on another thread
local held = 0
for i = 1, 7 do held = held + redis.call('ZCARD', KEYS[i]) end
if held > 0 then return held end -- an empty sorted set has no key
if redis.call('EXISTS', unpack(KEYS, 9)) > 0 then
  redis.call('SET', KEYS[8], 1, 'PX', 180000) -- first: if this is refused, nothing is removed
  redis.call('UNLINK', unpack(KEYS, 9))
end
return 0
