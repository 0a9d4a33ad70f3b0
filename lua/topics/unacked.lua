-- unacked: list the records that a group, or one of its consumers, was handed and has not acked.
--
-- Reads    stream
-- KEYS[1]  stream    stream  record id -> its envelope
-- ARGV[1]  group
-- ARGV[2]  consumer  '' for all of the group
-- ARGV[3]  idle_ms   the shortest time since they were last handed out
-- ARGV[4]  after     '-' or '(' and the id up to which an earlier call has looked
-- ARGV[5]  limit     1..500 records
-- Returns  {the id up to which this call has looked, '' when that is the end;
--          {{id, consumer, idle ms, deliveries}, …}, oldest id first}
-- Errors   GROUP     the topic has no such group
-- Cost     O(limit log n), and O(20,000) to find them by their idle time
local words = {ARGV[5], ARGV[2] ~= '' and ARGV[2] or nil}
local found, upto = stale(KEYS[1], ARGV[1], ARGV[3], ARGV[4], unpack(words))
return found.err and no_group(found, KEYS[1], ARGV[1]) or {upto, found}
