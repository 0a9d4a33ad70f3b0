-- lag: count the records of a topic after an id, a bounded number of them.
--
-- Reads    stream
-- KEYS[1]  stream  stream  record id -> its envelope
-- ARGV[1]  after   an id
-- ARGV[2]  limit   1..1000 records
-- Returns  {the number of records; the last one's id, '' when there is none; 1 when there may be more}
-- Cost     O(limit)
local after, limit, total, bytes, count, ended = ARGV[1], tonumber(ARGV[2]), 0, 0, 1, false
repeat
  local page = redis.call('XRANGE', KEYS[1], '(' .. after, '+', 'COUNT', count)
  for _, record in ipairs(page) do bytes = bytes + size_of(record) end
  total = total + #page
  if #page > 0 then after = page[#page][1] end
  ended = #page < count
  count = next_count(bytes, total, limit - total)
until ended or total >= limit or bytes >= RECORD_BYTES
return {total, total > 0 and after or '', ended and 0 or 1}
