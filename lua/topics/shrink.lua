-- shrink: cut a topic to the records that came since the last shrink.
--
-- State    stream -> (gone)
-- KEYS[1]  stream  stream  record id -> its envelope
-- KEYS[2]  sizes   hash    name -> the last id that the next shrink drops
-- ARGV[1]  name    of the topic
-- Returns  {the number of records dropped; 1 when there is more to drop}
-- Cost     O(records dropped)
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local upto = redis.call('HGET', KEYS[2], ARGV[1]) or '0-0'
local ms, number = string.match(upto, '^(%d+)-(%d+)$')
local least = ms .. string.format('-%.0f', number + 1)
local dropped, more = drop(KEYS[1], 'MINID', least, true)
if newest and more == 0 then redis.call('HSET', KEYS[2], ARGV[1], newest[1]) end
return {dropped, more}
