-- consumers: list the consumers that were seen within the last hour and have not left, with their documents.
--
-- Reads    consumers, reports
-- KEYS[1]  consumers  zset  name -> when it was last seen, ms
-- KEYS[2]  reports    hash  name -> its document: what it is, and what it holds
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  skip       how many an earlier call has looked at
-- Returns  {now, ms; {name; when it was last seen, ms; document; …}, latest first; how many have been looked at, 0 at the
--          end}
-- Cost     O(log n + skip), and up to 500 are read
local HOUR_MS, MOST = 3600000, 500
local now = clock(ARGV[1])
local since = '(' .. digits(now - HOUR_MS)
local seen = redis.call('ZRANGE', KEYS[1], now, since, 'BYSCORE', 'REV', 'LIMIT', ARGV[2], MOST, 'WITHSCORES')
local names, found = {}, {}
for i = 1, #seen, 2 do names[#names + 1] = seen[i] end
for i, document in ipairs(#names > 0 and redis.call('HMGET', KEYS[2], unpack(names)) or {}) do
  if document then
    for _, each in ipairs({names[i], seen[2 * i], document}) do found[#found + 1] = each end
  end
end
return {now, found, #names == MOST and ARGV[2] + MOST or 0}
