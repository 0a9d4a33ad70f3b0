-- append: records that were kept for later, and whose time has come, go to their topic, which is cut to its length.
--
-- State    pending -> stream
-- KEYS[1]  stream   stream  record id -> its envelope
-- KEYS[2]  pending  zset    id -> due, ms
-- KEYS[3..]         strings, the envelopes of the records, in their order
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  max_length  records to keep, '' for all
-- ARGV[3]  exact    '1' to keep no more; '' to keep up to a node of the stream more, which is much cheaper
-- ARGV[4..]         the ids of 1..500 records, earliest due first
-- Returns  {the number of records appended; the number of those whose envelope is gone}
-- Cost     O(n log m)
local now, appended, lost = clock(ARGV[1]), 0, 0
redis.call('XLEN', KEYS[1]) -- fails, before anything is taken away, when this is no stream any more
for i = 4, #ARGV do
  local due = redis.call('ZSCORE', KEYS[2], ARGV[i])
  if due and tonumber(due) <= now then
    local envelope = redis.call('GET', KEYS[i - 1])
    if envelope then
      redis.call('XADD', KEYS[1], '*', 'e', envelope)
      appended = appended + 1
    else
      lost = lost + 1
    end
    redis.call('ZREM', KEYS[2], ARGV[i])
    redis.call('UNLINK', KEYS[i - 1])
  end
end
if appended > 0 then cut(KEYS[1], ARGV[2], ARGV[3]) end
return {appended, lost}
