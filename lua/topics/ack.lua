-- ack: remove records that a group has handled from its unacked list.
--
-- State    unacked -> (done)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  failures  hash    record id -> the errors of its failed deliveries
-- KEYS[3]  watch     hash    the mark of the group's creation
-- ARGV[1]  mark      of the group when it handed them out, '*' if unknown; see `mark_of`
-- ARGV[2..]          the group, then the ids of 1..500 records
-- Returns  the number of records that were unacked until now; -1 if the mark is another one: nothing is acked
-- Cost     O(n)
if not has_mark(KEYS[3], ARGV[1]) then return -1 end
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('HDEL', KEYS[2], unpack(ARGV, 3)) end
return redis.call('XACK', KEYS[1], unpack(ARGV, 2))
