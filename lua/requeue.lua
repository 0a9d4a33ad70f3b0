-- requeue: bring dead letters back; their retries start again, and their attempt numbers go on rising.
--
-- A dead letter whose payload is gone stays dead.
--
-- State    dead -> pending
-- KEYS[1]  dead      zset
-- KEYS[2]  pending   zset  id -> due, ms
-- KEYS[3]  attempts  hash  id -> past.released.forgiven.lost
-- KEYS[4]  reasons   hash
-- KEYS[5]  stats     hash
-- KEYS[6]  bell      list
-- KEYS[7..]          strings, the payload keys of the messages, in their order
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  due       '+delay_ms' or ms, the same for all
-- ARGV[3..]          ids, 1..1000 of them
-- Returns  1 a message, or 0 where it was not dead or its payload is gone, in their order
-- Cost     O(n log m)
local due, before = due_time(ARGV[2], clock(ARGV[1])), head(KEYS[2])
local results, count = {}, 0
for i = 3, #ARGV do
  local id = ARGV[i]
  local found = redis.call('EXISTS', KEYS[i + 4]) == 1 and redis.call('ZREM', KEYS[1], id) or 0
  if found == 1 then
    local past, released = deliveries(redis.call('HGET', KEYS[3], id))
    keep_deliveries(KEYS[3], id, past, released, past, 0)
    redis.call('HDEL', KEYS[4], id)
    redis.call('ZADD', KEYS[2], due, id)
  end
  results[#results + 1], count = found, count + found
end
if count > 0 then
  redis.call('HINCRBY', KEYS[5], 'requeued', count)
  if due < before then ring(KEYS[6]) end
end
return results
