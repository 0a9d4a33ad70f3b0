-- rest: tell an idle consumer how long it may sleep.
--
-- Of all that rest, one wakes for the next event: the timer names who, and when. The others sleep as long as they
-- may, so that a fleet does not rise for one message; should the timer's holder die, they find the work themselves.
-- Messages count when they are due after now: ask before the claim of the same round trip, which takes what is due
-- until then. A lease that has ended counts as well, since a claim alone does not take the delivery back.
--
-- Reads    pending, retry, unack
-- Writes   timer
-- KEYS[1]  pending  zset    id -> due, ms
-- KEYS[2]  retry    zset    id -> time of the next attempt, ms
-- KEYS[3]  unack    zset    id -> end of the lease, ms
-- KEYS[4]  timer    string  when its holder wakes, ms, and the holder's name
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  name     of the consumer
-- ARGV[3]  most_ms  1..60000, the longest sleep
-- Returns  {microseconds to sleep, 0..most_ms * 1000; the id of the message that is due then, '' when there is none}
-- Cost     O(log n)
local now, micros = clock(ARGV[1])
local name, most = ARGV[2], tonumber(ARGV[3])
local wake, message = math.min(math.max(now, math.ceil(head(KEYS[3]))), now + most), ''
for i = 1, 2 do
  local first = redis.call('ZRANGE', KEYS[i], '(' .. now, '(' .. wake, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  if first[1] then wake, message = math.ceil(tonumber(first[2])), first[1] end
end
local wakes, holder = timer(KEYS[4])
if holder == name then redis.call('DEL', KEYS[4]) end
if wake == now then return {0, ''} end
if wake >= now + most or (holder ~= name and wakes > now and wakes <= wake) then return {most * 1000, ''} end
redis.call('DEL', KEYS[4]) -- a server at its maxmemory refuses a script that begins with a SET
redis.call('SET', KEYS[4], wake .. ' ' .. name, 'PX', wake - now + most)
return {(wake - now) * 1000 - micros, message}
