-- trim: drop a bounded number of records from the beginning of a topic, or of a group's dead letters.
--
-- State    stream -> (gone)
-- KEYS[1]  stream  stream  record id -> its envelope; or the group's dead letters
-- ARGV[1]  how     MAXLEN or MINID
-- ARGV[2]  bound   how many records to keep; or the id of the oldest one to keep, or its age: '-ms' by the server's time
-- ARGV[3]  exact   '1' to keep no more; '' to keep up to a node of the stream more, which is much cheaper
-- Returns  {the number of records dropped; 1 when there may be more to drop}
-- Cost     O(records dropped)
local bound = ARGV[2]
if string.match(bound, '^%-%d+$') then bound = digits(math.max(0, clock('') + bound)) end
return {drop(KEYS[1], ARGV[1], bound, ARGV[3] == '1')}
