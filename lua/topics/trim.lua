-- trim: drop records from the beginning of a topic, a bounded number.
--
-- State    stream -> (gone)
-- KEYS[1]  stream  stream  record id -> its envelope
-- ARGV[1]  how     MAXLEN or MINID
-- ARGV[2]  bound   how many records to keep; or the id of the oldest one to keep
-- ARGV[3]  exact   '1' to keep no more; '' to keep up to a node of the stream more, which is much cheaper
-- Returns  {the number of records dropped; 1 when there may be more to drop}
-- Cost     O(records dropped)
return {drop(KEYS[1], ARGV[1], ARGV[2], ARGV[3] == '1')}
