-- pause: hand out nothing until resume; sending goes on, and what runs is finished.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  meta    hash  paused: since, ms
-- ARGV[1]  now_ms  '' for the server's time
-- Returns  1; 0 when it was paused already
-- Cost     O(1)
local now = clock(ARGV[1])
return redis.call('HSETNX', KEYS[1], 'paused', now)
