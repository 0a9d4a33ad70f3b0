-- plan_sleep: tell an idle consumer how long it may sleep.
--
-- Of all sleeping consumers, one wakes for the next event: the timer says which one and when. The others sleep as long as
-- they may, so that a fleet does not wake for one message; if the timer's holder dies, they find the work themselves.
-- Only messages due after now count: ask before the claim of the same round trip, which takes those due until then. A lease
-- that has ended counts too, since a claim alone does not take the delivery back. For a consumer that found messages held
-- back by a limit, so does the moment when the rate allows the next one; for one that found the queue paused, the end of
-- the pause.
--
-- Reads    pending, retry, unack, watch, ready, meta, rate, replaced
-- Writes   timer
-- KEYS[1]  pending  zset    id -> due, ms
-- KEYS[2]  retry    zset    id -> time of the next attempt, ms
-- KEYS[3]  unack    zset    id -> end of the lease, ms
-- KEYS[4]  timer    string  when its holder wakes, ms, and the holder's name
-- KEYS[5]  watch    hash    when a consumer last looked for ended leases, and the last grace
-- KEYS[6]  ready    zset    id -> due, ms
-- KEYS[7]  meta     hash
-- KEYS[8]  rate     zset    number of the delivery -> its time, microseconds
-- KEYS[9]  replaced zset    deliveries whose messages were replaced while they ran -> end of the lease, ms
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  name     of the consumer
-- ARGV[3]  most_ms  1..60000, the longest sleep
-- ARGV[4]  held     '1' if a limit or a pause held messages back
-- Returns  {microseconds to sleep, 0..most_ms * 1000; the id of the message that is due then, '' when there is none}
-- Cost     O(log n)
local now, micros = clock(ARGV[1])
local name, most = ARGV[2], tonumber(ARGV[3])
local wake, message = math.min(math.max(now, next_end(KEYS[3], KEYS[5], now)), now + most), ''
for i = 1, 2 do
  local first = redis.call('ZRANGE', KEYS[i], '(' .. digits(now), '(' .. digits(wake), 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
  if first[1] then wake, message = math.ceil(tonumber(first[2])), first[1] end
end
if ARGV[4] == '1' then
  local free, opens = allowance(KEYS[7], KEYS[3], KEYS[8], KEYS[9], now, micros)
  if opens < wake then wake, message = opens, redis.call('ZRANGE', KEYS[6], free or 0, free or 0)[1] or '' end
end
local wakes, holder = timer(KEYS[4])
local promise = math.ceil(wake) -- the rate's moments have microseconds
if holder == name then redis.call('DEL', KEYS[4]) end
if wake == now then return {0, ''} end
if wake >= now + most or (holder ~= name and wakes > now and wakes <= promise) then return {most * 1000, ''} end
redis.call('DEL', KEYS[4]) -- a server at its maxmemory refuses a script that begins with a SET
redis.call('SET', KEYS[4], digits(promise) .. ' ' .. name, 'PX', digits(promise - now + most))
return {math.floor((wake - now) * 1000 - micros + 0.5), message}
