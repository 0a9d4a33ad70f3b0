-- cancel: withdraw a delayed record that still waits.
--
-- State    pending -> (gone)
-- KEYS[1]  pending   zset    id -> due, ms
-- KEYS[2]  envelope  string  of the record
-- ARGV[1]  id
-- Returns  1; 0 if it does not wait
-- Cost     O(log n)
local waited = redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('UNLINK', KEYS[2])
return waited
