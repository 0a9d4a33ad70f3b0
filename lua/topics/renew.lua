-- renew: let records that a consumer holds count as handed out just now.
--
-- State    unacked -> unacked
-- KEYS[1]  stream    stream  record id -> its envelope
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
  if ours then redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'JUSTID') end
  results[#results + 1] = ours and 1 or 0
end
return results
