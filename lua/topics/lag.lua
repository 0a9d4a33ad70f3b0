-- lag: count the records of a topic after an id, a bounded number of them.
--
-- Reads    stream
-- KEYS[1]  stream  stream  record id -> its envelope
-- ARGV[1]  after   an id
-- ARGV[2]  limit   1..1000 records
-- Returns  {the number of records; the last one's id, '' when there is none}
-- Cost     O(limit)
local limit, total, bytes, count, last = tonumber(ARGV[2]), 0, 0, 1, ''
local after = ARGV[1]
repeat
  local page = redis.call('XRANGE', KEYS[1], '(' .. after, '+', 'COUNT', count)
  for _, record in ipairs(page) do bytes = bytes + size_of(record) end
  total, last = total + #page, #page > 0 and page[#page][1] or ''
  local ended = #page < count
  if ended then return {total, ''} end
  after, count = last, next_count(bytes, total, limit - total)
until total >= limit or bytes >= RECORD_BYTES
return {total, last}
