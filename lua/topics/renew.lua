-- renew: let records that a consumer holds count as handed out just now.
--
-- From Redis 7.0 on, XCLAIM clears an unacked record that was trimmed or deleted: what its deliveries said goes with it.
--
-- State    unacked -> unacked, or (gone)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  failures  hash    record id -> what its failed deliveries said
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3..]          the ids of 1..500 records
-- Returns  1 a record, or 0 where the consumer does not hold it any more, in their order
-- Errors   GROUP     the topic has no such group
-- Cost     O(n)
local results = {}
for i = 3, #ARGV do
  local held = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)
  if held.err then return no_group(held, KEYS[1], ARGV[1]) end
  local ours = held[1] and held[1][2] == ARGV[2]
  if ours and #redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'JUSTID') == 0 then
    redis.call('HDEL', KEYS[2], ARGV[i])
    ours = false
  end
  results[#results + 1] = ours and 1 or 0
end
return results
