-- consumers: list the consumers that were seen within the last hour and have not left, with their documents.
--
-- Reads    consumers, reports
-- KEYS[1]  consumers  zset  name -> when it was last seen, ms
-- KEYS[2]  reports    hash  name -> its document: what it is, and what it holds
-- ARGV[1]  now_ms     '' for the server's time
-- Returns  {now, ms; {name; when it was last seen, ms; document; …}}, the latest 1000 of them, latest first
-- Cost     O(log n), and up to 1000 are read
local HOUR_MS, MOST = 3600000, 1000
local now = clock(ARGV[1])
local since = '(' .. digits(now - HOUR_MS)
local seen = redis.call('ZRANGE', KEYS[1], now, since, 'BYSCORE', 'REV', 'LIMIT', 0, MOST, 'WITHSCORES')
local names, found = {}, {}
for i = 1, #seen, 2 do names[#names + 1] = seen[i] end
for i, document in ipairs(#names > 0 and redis.call('HMGET', KEYS[2], unpack(names)) or {}) do
  if document then
    for _, each in ipairs({names[i], seen[2 * i], document}) do found[#found + 1] = each end
  end
end
return {now, found}
