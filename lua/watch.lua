-- watch: tell an idle consumer, at the end of a sleep, whether there is anything to do.
--
-- Of all that idle, one watches for all: the timer names who, and until when. The others look at the timer only, so that
-- a fleet costs little more than one. Should the watcher die, the next to wake takes its place.
--
-- Reads    pending, retry, unack, ready, garbage
-- Writes   timer
-- KEYS[1]  pending  zset    id -> due, ms
-- KEYS[2]  retry    zset    id -> time of the next attempt, ms
-- KEYS[3]  unack    zset    id -> end of the lease, ms
-- KEYS[4]  timer    string  when its holder wakes, ms, and the holder's name
-- KEYS[5]  ready    zset
-- KEYS[6]  garbage  zset
-- KEYS[7]  meta     hash
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  name     of the consumer
-- ARGV[3]  most_ms  1..60000, the longest sleep
-- Returns  {microseconds to sleep, 0 when there is something to do, else up to most_ms * 1000; the id of the message that
--          is due then, '' when there is none}
-- Cost     O(log n)
local now, micros = clock(ARGV[1])
local name, most = ARGV[2], tonumber(ARGV[3])
local wakes, holder = timer(KEYS[4])
-- A promise for later than anybody sleeps was given before the server's clock was set back: its holder may be long gone.
if holder ~= name and wakes > now and wakes <= now + most then return {most * 1000, ''} end
local paused = redis.call('HEXISTS', KEYS[7], 'paused') == 1
if redis.call('ZCARD', KEYS[6]) > 0 or (not paused and redis.call('ZCARD', KEYS[5]) > 0) then return {0, ''} end
local wake, message = math.min(math.ceil(head(KEYS[3])), now + most), ''
for i = 1, 2 do
  local due, id = head(KEYS[i])
  if math.ceil(due) < wake and not (paused and i == 2) then wake, message = math.ceil(due), id end
end
if wake <= now then return {0, ''} end
redis.call('DEL', KEYS[4]) -- a server at its maxmemory refuses a script that begins with a SET
redis.call('SET', KEYS[4], wake .. ' ' .. name, 'PX', wake - now + most)
return {wake < now + most and (wake - now) * 1000 - micros or most * 1000, message}
