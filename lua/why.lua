-- why: what may keep a waiting message from being handed out, at one instant.
--
-- Reads    pending, ready, retry, unack, meta, rate, parked, replaced
-- KEYS[1]  pending  zset  id -> due, ms
-- KEYS[2]  ready    zset  id -> due, ms
-- KEYS[3]  retry    zset  id -> time of the next attempt, ms
-- KEYS[4]  unack    zset  id -> end of the lease, ms
-- KEYS[5]  meta     hash
-- KEYS[6]  rate     zset  number of the delivery -> its time, microseconds
-- KEYS[7]  parked   hash  id -> until when it waits at most, ms, and its due time, ms
-- KEYS[8]  replaced zset  deliveries whose messages were replaced while they ran -> end of the lease, ms
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  id
-- Returns  {now, ms; {since when the queue is paused, ms; until when, ms, or nil}, empty when it is not; how many
--          waiting messages are due earlier; how many run; how many the queue's limits allow now, nil without limits;
--          when the rate allows the next one after those, ms, nil if the rate is not the limit; {until when it waits for
--          others of its key, ms; its due time, ms} or nil}
-- Cost     O(log n)
local now, micros = clock(ARGV[1])
local id, due, earlier = ARGV[2], nil, 0
for i = 1, 3 do due = due or redis.call('ZSCORE', KEYS[i], id) end
if due then
  for i = 1, 3 do earlier = earlier + redis.call('ZCOUNT', KEYS[i], '-inf', '(' .. due) end
end
local free, opens = allowance(KEYS[5], KEYS[4], KEYS[6], KEYS[8], now, micros)
local till, due_before = waits(KEYS[7], id)
return {
  now, {paused(KEYS[5], now)}, earlier, redis.call('ZCARD', KEYS[4]),
  free and free < math.huge and free or false, free and opens < math.huge and math.ceil(opens) or false,
  till and {till, due_before} or false
}
