-- destroy: take a group, its dead letters and what its failed deliveries said away from a topic.
--
-- State    (the group itself)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  buried    stream  the group's dead letters
-- KEYS[3]  failures  hash    record id -> what its failed deliveries said
-- ARGV[1]  group
-- Returns  1; 0 when there was no such group
-- Cost     O(unacked)
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local gone = redis.call('XGROUP', 'DESTROY', KEYS[1], ARGV[1])
redis.call('UNLINK', KEYS[2], KEYS[3])
return gone
