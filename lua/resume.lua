-- resume: hand out messages again after a pause.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  meta  hash
-- KEYS[2]  bell  list
-- Returns  1; 0 when no pause was stored
-- Cost     O(1)
if redis.call('HDEL', KEYS[1], 'paused', 'paused_until') == 0 then return 0 end
ring(KEYS[2])
return 1
