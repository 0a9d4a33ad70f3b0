-- remove_consumer: hand the records that a consumer of a group holds to another one, then remove the consumer.
--
-- State    unacked -> unacked, or (gone)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  failures  hash    record id -> the errors of its failed deliveries
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  heir      another consumer of the group, created if new; '' if there should be nothing to hand over
-- ARGV[4]  limit     1..500 records
-- Returns  {the number of records handed over; 1 if the consumer is removed, 0 if it may hold more}
-- Errors   GROUP     the topic has no such group
--          CONSUMER  the group has no such consumer
--          HOLDS     the consumer holds records, and there is no heir
-- Cost     O(consumers + limit log n)
local group, consumer, heir = ARGV[1], ARGV[2], ARGV[3]
local members, known = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], group), false
if members.err then return no_group(members, KEYS[1], group) end
for _, member in ipairs(members) do known = known or member[2] == consumer end
if not known then return redis.error_reply('CONSUMER group ' .. group .. ' has no consumer ' .. consumer) end
local rows, moved = redis.call('XPENDING', KEYS[1], group, '-', '+', ARGV[4], consumer), 0
if #rows > 0 and heir == '' then
  local remedy = ': name the consumer to hand them to, by to= or --to'
  return redis.error_reply('HOLDS consumer ' .. consumer .. ' of group ' .. group .. ' holds unacked records' .. remedy)
end
for _, row in ipairs(rows) do -- JUSTID counts no delivery
  if hold(KEYS[1], KEYS[2], group, heir, row[1], 'JUSTID') then moved = moved + 1 end
end
if #rows == tonumber(ARGV[4]) then return {moved, 0} end
acknowledge_nothing(KEYS[1], group)
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], group, consumer)
return {moved, 1}
