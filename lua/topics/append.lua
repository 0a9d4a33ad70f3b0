-- append: append delayed records that are due to their topic, and cut it to its maximum length.
--
-- A record whose envelope is gone, or was overwritten with another type, leaves pending too: else it would block the others
-- for ever. A key that another program has overwritten is left as it is. A call stops after 1 MB of records.
--
-- State    pending -> stream, or (gone)
-- KEYS[1]  stream   stream  record id -> its envelope
-- KEYS[2]  pending  zset    id -> due, ms
-- KEYS[3]  meta     hash    the mark of the stream, which is noted if it begins
-- KEYS[4..]         strings, the envelopes of the records, in the same order
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  max_length  records to keep, '' for all
-- ARGV[3]  exact    '1' to keep no more; '' to keep up to a node of the stream more, which is much cheaper
-- ARGV[4..]         the ids of 1..500 records, earliest due first
-- Returns  the ids of those without an envelope, in the same order
-- Cost     O(n log m)
local now, appended, lost, bytes = clock(ARGV[1]), 0, {}, 0
local mark = marking(KEYS[3], KEYS[1], redis.call('XLEN', KEYS[1]))
redis.call('ZREM', KEYS[2], '') -- never an id: after this write, a server without memory refuses no other
for i = 4, #ARGV do
  local due = redis.call('ZSCORE', KEYS[2], ARGV[i])
  if due and tonumber(due) <= now then
    local envelope = redis.pcall('GET', KEYS[i])
    if type(envelope) == 'string' then -- it is removed last: a user who may not append must not lose it
      mark(redis.call('XADD', KEYS[1], '*', 'e', envelope))
      redis.call('ZREM', KEYS[2], ARGV[i])
      redis.call('UNLINK', KEYS[i])
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
