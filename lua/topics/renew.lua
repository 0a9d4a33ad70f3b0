-- renew: reset the idle time of records that a consumer holds.
--
-- State    unacked -> unacked, or (gone)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  failures  hash    record id -> the errors of its failed deliveries
-- KEYS[3]  watch     hash    when a consumer last looked for records to take over, and the last grace; until when
--          consumers of a group that was created again may bring back what they hold
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  idle_ms   the time after which others may take the records over
-- ARGV[4]  by_ms     the server's time by which the call should be executed; '' if the caller does not know
-- ARGV[5]  mark      of the group when it handed them out, '*' if unknown; see `mark_of`
-- ARGV[6..]          the ids of 1..500 records
-- Returns  1 per record, or 0 where the consumer does not hold it, in the same order
-- Errors   GROUP     the topic has no such group
-- Cost     O(n)
look_at(KEYS[3], ARGV[3], ARGV[4], true)
local results = {}
for i = 6, #ARGV do
  local held = deliveries_of(KEYS[1], KEYS[3], ARGV[1], ARGV[2], ARGV[i], ARGV[5])
  if type(held) == 'table' then return held end
  results[#results + 1] = held and hold(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[i], 'JUSTID') and 1 or 0
end
return results
