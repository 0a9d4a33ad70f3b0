-- destroy: delete a group of a topic, with its dead letters and the errors of its failed deliveries.
--
-- State    (the group itself)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  buried    stream  the group's dead letters
-- KEYS[3]  failures  hash    record id -> the errors of its failed deliveries
-- KEYS[4]  watch     hash    when a consumer last looked for records to take over
-- ARGV[1]  group
-- Returns  1; 0 when there was no such group
-- Cost     O(unacked)
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
acknowledge_nothing(KEYS[1], ARGV[1])
local gone = redis.call('XGROUP', 'DESTROY', KEYS[1], ARGV[1])
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
return gone
