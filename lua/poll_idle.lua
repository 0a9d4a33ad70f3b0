-- poll_idle: tell an idle consumer, at the end of a sleep, whether there is anything to do.
--
-- Of all idle consumers, one watches for all: the timer says which one and until when. The others only look at the timer,
-- so that a fleet costs little more than one. If the watcher dies, the next to wake takes its place.
--
-- Reads    pending, retry, unack, ready, garbage, meta, rate, replaced
-- Writes   timer, watch
-- KEYS[1]  pending  zset    id -> due, ms
-- KEYS[2]  retry    zset    id -> time of the next attempt, ms
-- KEYS[3]  unack    zset    id -> end of the lease, ms
-- KEYS[4]  timer    string  when its holder wakes, ms, and the holder's name
-- KEYS[5]  ready    zset    id -> due, ms
-- KEYS[6]  garbage  zset
-- KEYS[7]  meta     hash
-- KEYS[8]  rate     zset    number of the delivery -> its time, microseconds
-- KEYS[9]  replaced zset    deliveries whose messages were replaced while they ran -> end of the lease, ms
-- KEYS[10] watch    hash    when a consumer last looked for ended leases, and the last grace
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  name     of the consumer
-- ARGV[3]  most_ms  1..60000, the longest sleep
-- Returns  {microseconds to sleep, 0 when there is something to do, else up to most_ms * 1000; the id of the message that
--          is due then, '' when there is none}
-- Cost     O(log n)
local now, micros = clock(ARGV[1])
local name, most = ARGV[2], tonumber(ARGV[3])
local wakes, holder = timer(KEYS[4])
look(KEYS[10], now, '', true)
-- A timer later than anybody sleeps is from before the server's clock was set back: its holder may be long gone.
if holder ~= name and wakes > now and wakes <= now + most then return {most * 1000, ''} end
if redis.call('ZCARD', KEYS[6]) > 0 then return {0, ''} end
local free, opens = allowance(KEYS[7], KEYS[3], KEYS[8], KEYS[9], now, micros)
if free and free > 0 then opens = now end
local wake, message = math.min(next_end(KEYS[3], KEYS[10], now), now + most), ''
for _, i in ipairs({5, 1, 2}) do
  local due, id = head(KEYS[i])
  due = math.max(math.ceil(due), (free or i ~= 1) and opens or due) -- a paused queue still promotes what falls due
  if due < wake then wake, message = due, id end
end
if wake <= now then return {0, ''} end
local promise = math.ceil(wake) -- the rate's moments have microseconds
redis.call('DEL', KEYS[4]) -- a server at its maxmemory refuses a script that begins with a SET
redis.call('SET', KEYS[4], digits(promise) .. ' ' .. name, 'PX', digits(promise - now + most))
return {wake < now + most and math.floor((wake - now) * 1000 - micros + 0.5) or most * 1000, message}
