-- trim: drop records from the beginning of a topic.
--
-- State    stream -> (gone)
-- KEYS[1]  stream  stream  record id -> its envelope
-- ARGV[1..]        the words of XTRIM behind the key
-- Returns  the number of records dropped
-- Cost     O(records dropped)
return redis.call('XTRIM', KEYS[1], unpack(ARGV))
