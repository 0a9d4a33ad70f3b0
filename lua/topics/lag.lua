-- lag: count the records of a topic between two ids, up to a limit.
--
-- Reads    stream
-- KEYS[1]  stream  stream  record id -> its envelope
-- ARGV[1]  after   an id, which is not counted
-- ARGV[2]  limit   1..1000 records; fewer if they exceed a megabyte
-- ARGV[3]  to      '+', the id of the last one to be counted, or '(' and an id to leave that one out
-- Returns  {the number of records; the last one's id, '' when there is none; 1 when there may be more}
-- Cost     O(limit)
local found, more = read(KEYS[1], '(' .. ARGV[1], ARGV[3], tonumber(ARGV[2]), 1)
return {#found, #found > 0 and found[#found][1] or '', more}
