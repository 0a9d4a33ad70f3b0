-- resume: hand out messages again after a pause.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  meta  hash
-- KEYS[2]  bell  list
-- ARGV[1]  seen  end only a pause that began by then, ms, which the caller has seen; '' for any
-- Returns  1; 0 when no such pause was stored
-- Cost     O(1)
local since = ARGV[1] ~= '' and tonumber(redis.call('HGET', KEYS[1], 'paused') or '')
if since and since > tonumber(ARGV[1]) then return 0 end
if redis.call('HDEL', KEYS[1], 'paused', 'paused_until') == 0 then return 0 end
ring(KEYS[2])
return 1
