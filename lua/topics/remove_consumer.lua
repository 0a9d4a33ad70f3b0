-- remove_consumer: what a consumer of a group still holds goes to another one; then the consumer is removed.
--
-- From Redis 7.0 on, XCLAIM clears an unacked record that was trimmed or deleted: what its deliveries said goes with it.
--
-- State    unacked -> unacked, or (gone)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  failures  hash    record id -> what its failed deliveries said
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  heir      another consumer of the group, made when it is new; '' when there is to be nothing to hand over
-- ARGV[4]  limit     1..500 records
-- Returns  {the number of records handed over; 1 when the consumer is removed, 0 when it may hold more}
-- Errors   GROUP     the topic has no such group
--          CONSUMER  the group has no such consumer
--          HOLDS     the consumer holds records, and there is no heir
-- Cost     O(n)
local group, consumer, heir = ARGV[1], ARGV[2], ARGV[3]
local members, known = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], group), false
if members.err then return no_group(members, KEYS[1], group) end
for _, member in ipairs(members) do known = known or member[2] == consumer end
if not known then return redis.error_reply('CONSUMER group ' .. group .. ' has no consumer ' .. consumer) end
local rows, ids = redis.call('XPENDING', KEYS[1], group, '-', '+', ARGV[4], consumer), {}
if #rows > 0 and heir == '' then
  local remedy = ': name who is to have them, by to= or --to'
  return redis.error_reply('HOLDS consumer ' .. consumer .. ' of group ' .. group .. ' holds unacked records' .. remedy)
end
for i, row in ipairs(rows) do ids[i] = row[1] end
ids[#ids + 1] = 'JUSTID' -- which counts no delivery
local moved, is_moved = #rows > 0 and redis.call('XCLAIM', KEYS[1], group, heir, 0, unpack(ids)) or {}, {}
for _, id in ipairs(moved) do is_moved[id] = true end
for _, row in ipairs(rows) do if not is_moved[row[1]] then redis.call('HDEL', KEYS[2], row[1]) end end
if #rows == tonumber(ARGV[4]) then return {#moved, 0} end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], group, consumer)
return {#moved, 1}
