-- upcoming: count the messages that fall due in each of the next spans of time.
--
-- What is due already counts in the first span.
--
-- Reads    pending, retry
-- KEYS[1]  pending    zset  id -> due, ms
-- KEYS[2]  retry      zset  id -> due, ms
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  bucket_ms  the length of a span, 1 or more
-- ARGV[3]  count      1..500 spans
-- Returns  {now, ms; {those in pending, those in retry, of each span in turn}}
-- Cost     O(count log n)
local now, counts, from = clock(ARGV[1]), {}, '-inf'
for span = 1, tonumber(ARGV[3]) do
  local to = digits(now + span * tonumber(ARGV[2]))
  for i = 1, 2 do counts[#counts + 1] = redis.call('ZCOUNT', KEYS[i], from, '(' .. to) end
  from = to
end
return {now, counts}
