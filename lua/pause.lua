-- pause: hand out nothing for a time, or until resume; sending continues, and what runs is finished.
--
-- If the queue is paused already, the new end replaces the old one, and the beginning stays; or nothing changes, for who
-- has seen it running.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  meta    hash  paused: since, ms; paused_until: when it ends, ms, where it ends by itself
-- KEYS[2]  bell    list
-- ARGV[1]  now_ms  '' for the server's time
-- ARGV[2]  for_ms  1..31622400000; '' for a pause that `resume` ends
-- ARGV[3]  seen    '1' to change nothing when it is paused already; else ''
-- Returns  1; 0 when it was paused already
-- Cost     O(1)
local now = clock(ARGV[1])
local since = paused(KEYS[1], now)
if since and ARGV[3] == '1' then return 0 end
-- HSETNX, as its right is what an administrator has and a consumer has not.
if redis.call('HSETNX', KEYS[1], 'paused', now) == 0 and not since then redis.call('HSET', KEYS[1], 'paused', now) end
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[1], 'paused_until', now + ARGV[2])
else
  redis.call('HDEL', KEYS[1], 'paused_until')
end
if not since then return 1 end
ring(KEYS[2]) -- for consumers that sleep until the old end
return 0
