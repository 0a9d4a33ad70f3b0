-- pause: hand out nothing for a time, or until resume; sending continues, and running handlers finish.
--
-- If the queue is already paused, the new end replaces the old one and the start stays; with `seen`, nothing changes.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  meta    hash  paused: since, ms; paused_until: when it ends, ms, if it ends by itself; needs
-- KEYS[2]  bell    list
-- ARGV[1]  now_ms  '' for the server's time
-- ARGV[2]  for_ms  1..31622400000; '' for a pause that `resume` ends
-- ARGV[3]  seen    '1' to change nothing if it is already paused, for a caller that saw it running; else ''
-- Returns  1; 0 if it was already paused
-- Cost     O(1)
local now = clock(ARGV[1])
local since = paused(KEYS[1], now)
if since and ARGV[3] == '1' then return 0 end
redis.call('HDEL', KEYS[1], '') -- never a field: a server at its maxmemory refuses a script that begins with an HSET
if ARGV[2] ~= '' then
  need(KEYS[1], 1)
  redis.call('HSET', KEYS[1], 'paused_until', digits(now + ARGV[2])) -- first: or a pause whose end is refused never ends
else
  redis.call('HDEL', KEYS[1], 'paused_until')
end
-- HSETNX, since administrators have the right to it and consumers do not.
local text = digits(now)
if redis.call('HSETNX', KEYS[1], 'paused', text) == 0 and not since then redis.call('HSET', KEYS[1], 'paused', text) end
if not since then return 1 end
ring(KEYS[2]) -- for consumers that sleep until the old end
return 0
