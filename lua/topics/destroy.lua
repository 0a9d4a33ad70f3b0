-- destroy: delete a group of a topic, with its dead letters and the errors of its failed deliveries.
--
-- Redis deletes a group with all that it has not acked in one step. So as long as the group holds more than `limit`
-- records, a call only takes that many of them from it.
--
-- A mark stays for a month, so that consumers of a group that was lost create it again, but not one that was destroyed.
-- A user who may not set expiries leaves a mark that stays until the group is created.
--
-- State    unacked -> (gone); then the group itself
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  buried    stream  the group's dead letters
-- KEYS[3]  failures  hash    record id -> the errors of its failed deliveries
-- KEYS[4]  watch     hash    what consumers note; afterwards, when the group was destroyed, ms
-- ARGV[1]  group
-- ARGV[2]  limit     1..500 records
-- Returns  1 when the group was deleted; 0 when there was none; -1 when it holds more records: call again
-- Cost     O(limit log n + consumers)
local MONTH = '2592000000' -- ms
acknowledge_nothing(KEYS[1], ARGV[1])
local rows, ids = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[2] + 1), {}
if #rows > tonumber(ARGV[2]) then
  for i = 1, #rows - 1 do ids[i] = rows[i][1] end
  redis.call('XACK', KEYS[1], ARGV[1], unpack(ids))
  redis.call('HDEL', KEYS[3], unpack(ids))
  return -1
end
local gone = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XGROUP', 'DESTROY', KEYS[1], ARGV[1]) or 0
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
redis.call('HSET', KEYS[4], 'destroyed', digits(clock('')))
redis.pcall('PEXPIRE', KEYS[4], MONTH)
return gone
