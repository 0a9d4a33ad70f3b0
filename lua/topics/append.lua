-- append: records that were kept for later, and whose time has come, go to their topic, which is cut to its length.
--
-- One whose envelope is gone, or was overwritten with another type, leaves the structure all the same: it would keep the
-- others waiting for ever. What another program has stored is left to it. A call stops after 1 MB of records.
--
-- State    pending -> stream, or (gone)
-- KEYS[1]  stream   stream  record id -> its envelope
-- KEYS[2]  pending  zset    id -> due, ms
-- KEYS[3..]         strings, the envelopes of the records, in their order
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  max_length  records to keep, '' for all
-- ARGV[3]  exact    '1' to keep no more; '' to keep up to a node of the stream more, which is much cheaper
-- ARGV[4..]         the ids of 1..500 records, earliest due first
-- Returns  the ids of those without an envelope, in their order
-- Cost     O(n log m)
local now, appended, lost, bytes = clock(ARGV[1]), 0, {}, 0
redis.call('ZREM', KEYS[2], '') -- what no id is: behind it, a server without memory refuses no write
for i = 4, #ARGV do
  local due = redis.call('ZSCORE', KEYS[2], ARGV[i])
  if due and tonumber(due) <= now then
    local envelope = redis.pcall('GET', KEYS[i - 1])
    if type(envelope) == 'string' then -- it is taken away last: who may not append must not lose it
      redis.call('XADD', KEYS[1], '*', 'e', envelope)
      redis.call('ZREM', KEYS[2], ARGV[i])
      redis.call('UNLINK', KEYS[i - 1])
      appended, bytes = appended + 1, bytes + #envelope
      if bytes >= RECORD_BYTES then break end
    else
      redis.call('ZREM', KEYS[2], ARGV[i])
      lost[#lost + 1] = ARGV[i]
    end
  end
end
if appended > 0 then cut(KEYS[1], ARGV[2], ARGV[3], appended) end
return lost
