-- open_queue: check that this client agrees with the stored queue; record the queue if it is new.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  meta    hash  format, shards, since, needs, and the fields of the configuration
-- ARGV[1]  format  the newest format version that the caller reads
-- ARGV[2]  shards  1..1024, or '' to take what is recorded
-- ARGV[3]  create  '1' to record a queue that is new, '' to leave no trace
-- ARGV[4]  now_ms  '' for the server's time
-- ARGV[5..] fields of the configuration
-- Returns  {the number of shards; 1 if the queue was recorded, 2 if it is from now on, else 0; since when, ms, '' if
--          unknown; {the value of each field, or nil}}. A client that knows another `since` can tell that the queue's data
--          were lost
-- Errors   FORMAT  the stored format is newer
--          SHARDS  the queue has another number of shards
-- Cost     O(1)
local stored = redis.call('HMGET', KEYS[1], 'format', 'shards', 'since', 'needs')
understood(KEYS[1], stored[4])
local format, shards = stored[1] or '1', stored[2]
if (tonumber(format) or math.huge) > tonumber(ARGV[1]) then
  local newest = ', but this delayq reads only up to ' .. ARGV[1] .. ': use a newer delayq'
  return redis.error_reply('FORMAT ' .. KEYS[1] .. ' is stored in format ' .. format .. newest)
end
if shards and ARGV[2] ~= '' and shards ~= ARGV[2] then
  local remedy = ', not ' .. ARGV[2] .. ': open it with shards=' .. shards
  return redis.error_reply('SHARDS ' .. KEYS[1] .. ' has shards=' .. shards .. remedy)
end
local values = ARGV[5] and redis.call('HMGET', KEYS[1], unpack(ARGV, 5)) or {}
if not shards then
  shards = ARGV[2] == '' and '1' or ARGV[2]
  if ARGV[3] ~= '1' then return {tonumber(shards), 0, '', values} end
  local since = digits(clock(ARGV[4]))
  redis.call('HSET', KEYS[1], 'format', format, 'shards', shards, 'since', since)
  return {tonumber(shards), 2, since, values}
end
return {tonumber(shards), 1, stored[3] or '', values}
