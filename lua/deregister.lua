-- deregister: remove a consumer that ends in good order; when it was last seen stays known.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  reports  hash  name -> its document
-- KEYS[2]  stats    hash
-- ARGV[1]  name     of the consumer
-- ARGV[2..]  field, count  of stats: handlers that ended since its last note, as `count_run` takes them
-- Returns  1, or 0 if it was not registered
-- Cost     O(1)
local left = redis.call('HDEL', KEYS[1], ARGV[1])
if #ARGV > 1 then redis.call('HGET', KEYS[2], 'tasks') end -- without the right to it, nothing is counted, not a part
for i = 2, #ARGV, 2 do count_run(KEYS[2], ARGV[i], ARGV[i + 1]) end
return left
