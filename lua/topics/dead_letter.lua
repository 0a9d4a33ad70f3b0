-- dead_letter: make a record that a consumer holds a dead letter of its group.
--
-- State    unacked -> buried
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  buried    stream  the group's dead letters
-- KEYS[3]  failures  hash    record id -> the errors of its failed deliveries
-- KEYS[4]  watch     hash    until when consumers of a group that was created again may bring back what they hold
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  id
-- ARGV[4]  reason
-- ARGV[5]  error     of this delivery, in the form in which the hash holds earlier ones
-- ARGV[6]  mark      of the group when it handed the record out, '*' if unknown; see `mark_of`
-- Returns  1; 0 when the consumer does not hold the record, or its record is gone
-- Errors   GROUP     the topic has no such group
-- Cost     O(log n)
local group, consumer, id = ARGV[1], ARGV[2], ARGV[3]
local held = deliveries_of(KEYS[1], KEYS[4], group, consumer, id, ARGV[6])
if type(held) ~= 'number' then return held or 0 end
if ARGV[5] ~= '' then
  local said = redis.call('HGET', KEYS[3], id) or ''
  redis.call('HDEL', KEYS[3], id) -- after this write, a server without memory refuses no other
  redis.call('HSET', KEYS[3], id, said .. ARGV[5])
end
return bury(KEYS[1], KEYS[2], KEYS[3], group, id, consumer, held, ARGV[4]) and 1 or 0
