-- resume: hand out messages again after a pause.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  meta  hash
-- KEYS[2]  bell  list
-- Returns  1; 0 when it was not paused
-- Cost     O(1)
local resumed = redis.call('HDEL', KEYS[1], 'paused')
if resumed == 1 then ring(KEYS[2]) end
return resumed
