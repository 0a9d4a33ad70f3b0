-- give_up_place: free the place in the queue's limits of an ended delivery whose message was replaced while it ran.
--
-- State    (no message moves)
-- KEYS[1]  replaced  zset  deliveries whose messages were replaced while they ran -> end of the lease, ms
-- KEYS[2]  bell      list
-- ARGV[1]  id
-- ARGV[2]  receipt
-- Returns  1; 0 if it had no place
-- Cost     O(log n)
local freed = redis.call('ZREM', KEYS[1], ARGV[2] .. '\0' .. ARGV[1])
if freed > 0 then ring(KEYS[2]) end -- what waits for the place may be due
return freed
