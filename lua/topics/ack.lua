-- ack: records that a group has done with leave its unacked list.
--
-- State    unacked -> (done)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  failures  hash    record id -> what its failed deliveries said
-- ARGV[1..]          the group, then the ids of 1..500 records
-- Returns  the number of records that were unacked, and are no longer
-- Cost     O(n)
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('HDEL', KEYS[2], unpack(ARGV, 2)) end
return redis.call('XACK', KEYS[1], unpack(ARGV))
