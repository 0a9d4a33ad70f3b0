-- fail: store the error of a failed delivery; the record stays with its consumer, to be tried again.
--
-- Only the last 8,000 bytes of a record's errors are kept.
--
-- State    unacked -> unacked
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  failures  hash    record id -> the errors of its failed deliveries
-- KEYS[3]  watch     hash    until when consumers of a group that was created again may bring back what they hold
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  id
-- ARGV[4]  error     one line
-- ARGV[5]  mark      of the group when it handed the record out, '*' if unknown; see `mark_of`
-- Returns  1; 0 when the consumer does not hold the record
-- Errors   GROUP     the topic has no such group
-- Cost     O(log n)
local MOST = 8000
local held = deliveries_of(KEYS[1], KEYS[3], ARGV[1], ARGV[2], ARGV[3], ARGV[5])
if type(held) ~= 'number' then return held or 0 end
local said = redis.call('HGET', KEYS[2], ARGV[3]) or ''
redis.call('HDEL', KEYS[2], ARGV[3]) -- after this write, a server without memory refuses no other
redis.call('HSET', KEYS[2], ARGV[3], string.sub(said .. ARGV[4], -MOST))
return 1
