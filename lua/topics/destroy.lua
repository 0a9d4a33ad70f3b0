-- destroy: delete a group of a topic, with its dead letters and the errors of its failed deliveries.
--
-- A mark stays for a month, so that consumers of a group that was lost create it again, but not one that was destroyed.
-- A user who may not set expiries leaves a mark that stays until the group is created.
--
-- State    (the group itself)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  buried    stream  the group's dead letters
-- KEYS[3]  failures  hash    record id -> the errors of its failed deliveries
-- KEYS[4]  watch     hash    what consumers note; afterwards, when the group was destroyed, ms
-- ARGV[1]  group
-- Returns  1; 0 when there was no such group
-- Cost     O(unacked): 400,000 hold the server for about 30 ms, since Redis cannot delete a group in parts
local MONTH = 30 * 86400000
acknowledge_nothing(KEYS[1], ARGV[1])
local gone = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XGROUP', 'DESTROY', KEYS[1], ARGV[1]) or 0
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
redis.call('HSET', KEYS[4], 'destroyed', digits(clock('')))
redis.pcall('PEXPIRE', KEYS[4], MONTH)
return gone
