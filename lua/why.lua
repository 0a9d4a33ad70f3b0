-- why: what may keep a message that waits from being handed out, at one instant.
--
-- Reads    pending, ready, retry, unack, meta, rate, parked, replaced
-- KEYS[1]  pending  zset  id -> due, ms
-- KEYS[2]  ready    zset  id -> due, ms
-- KEYS[3]  retry    zset  id -> time of the next attempt, ms
-- KEYS[4]  unack    zset  id -> end of the lease, ms
-- KEYS[5]  meta     hash
-- KEYS[6]  rate     zset  number of the hand-out -> its time, microseconds
-- KEYS[7]  parked   hash  id -> until when it waits at the longest, ms, and its due time, ms
-- KEYS[8]  replaced zset  deliveries of messages that were replaced while they ran -> end of the lease, ms
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  id
-- Returns  {now, ms; {since when the queue is paused, ms; until when, ms, or nil}, empty when it is not; how many
--          messages that wait are due earlier; how many run; how many may go now by the queue's limits, nil without any;
--          when the rate lets the next one go behind those, ms, nil where it is not the rate; {until when it waits for
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
