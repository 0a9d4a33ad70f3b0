-- unacked: list the records that a group, or one of its consumers, was handed and has not acked.
--
-- Reads    stream
-- KEYS[1]  stream    stream  record id -> its envelope
-- ARGV[1]  group
-- ARGV[2]  consumer  '' for all of the group
-- ARGV[3]  idle_ms   the shortest time since they were last handed out
-- ARGV[4]  after     '-' or '(' and the id up to which an earlier call has looked
-- ARGV[5]  limit     1..500 records
-- Returns  {{id, consumer, idle ms, deliveries}, …}, oldest id first
-- Errors   GROUP     the topic has no such group
-- Cost     O(limit log n)
local words = ARGV[3] == '0' and {ARGV[4], '+', ARGV[5]} or {'IDLE', ARGV[3], ARGV[4], '+', ARGV[5]}
if ARGV[2] ~= '' then words[#words + 1] = ARGV[2] end
local found = redis.pcall('XPENDING', KEYS[1], ARGV[1], unpack(words))
return found.err and no_group(found, KEYS[1], ARGV[1]) or found
