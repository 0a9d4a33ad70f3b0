-- publish_later: store delayed records for a topic; an id that exists is left as it is.
--
-- State    (none) -> pending
-- KEYS[1]  pending  zset    id -> due, ms
-- KEYS[2]  waking   stream  what idle readers block on, beside the topic itself
-- KEYS[3..]         strings, the envelopes of the records, in the same order
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2..]         three per record: id, due ('+delay_ms' or ms), envelope; all ids different, 1..500 of them
-- Returns  the due times, ms, in the records' order; -1 for an id that existed
-- Cost     O(n log m)
local now, micros = clock(ARGV[1])
local before, dues = head(KEYS[1]), {}
for i = 2, #ARGV, 3 do
  local envelope, due = KEYS[2 + (i + 1) / 3], due_time(ARGV[i + 1], now, micros)
  if redis.call('EXISTS', envelope) == 1 then
    dues[#dues + 1] = -1
  else
    redis.call('SET', envelope, ARGV[i + 2])
    redis.call('ZADD', KEYS[1], due, ARGV[i])
    dues[#dues + 1] = due
  end
end
if head(KEYS[1]) < before then wake(KEYS[2], 'due', (head(KEYS[1]))) end
return dues
