-- ack: remove records that a group has handled from its unacked list.
--
-- State    unacked -> (done)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  failures  hash    record id -> the errors of its failed deliveries
-- ARGV[1..]          the group, then the ids of 1..500 records
-- Returns  the number of records that were unacked until now
-- Cost     O(n)
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('HDEL', KEYS[2], unpack(ARGV, 2)) end
return redis.call('XACK', KEYS[1], unpack(ARGV))
