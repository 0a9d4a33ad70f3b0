-- send_one: put a new message with a random id into pending, in a queue without a max_length.
--
-- It does what `send` does, with fewer keys and commands: most messages are sent one by one.
--
-- State    (none) -> pending
-- KEYS[1]  pending  zset    id -> due, ms
-- KEYS[2]  stats    hash
-- KEYS[3]  bell     list
-- KEYS[4]  meta     hash    events: how many events the ledger keeps; needs, max_length
-- KEYS[5]  events   stream
-- KEYS[6]  payload  string
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  due       '+delay_ms' or ms
-- ARGV[4]  envelope  one of more than 8,192 bytes has 13 more in front, over which the time is written
-- Returns  the due time, ms; -1, and no message is changed, if `send` must send it: the queue has a max_length, or the
--          payload key exists
-- Probes   none  the first write is to stats, pending is read before, and checking makes a single send a tenth slower
-- Cost     O(log n)
local now, micros = clock(ARGV[1])
local before, note, _, max_length = head(KEYS[1]), ledger(KEYS[4], KEYS[5], now, true)
if max_length then return -1 end
local due, stamped, size = due_time(ARGV[3], now, micros), stamp(now), #ARGV[4]
local score = digits(due)
count_stored(KEYS[2], 'sent', 1, size) -- first: at maxmemory it is refused, and nothing changes
local done = redis.pcall('SET', KEYS[6], dated(ARGV[4], stamped), 'NX')
local is_stored = done and done.ok
if is_stored and size > LARGE then done = date(KEYS[6], ARGV[4], stamped) end
if done and done.ok then done = redis.pcall('ZADD', KEYS[1], score, ARGV[2]) end
if type(done) ~= 'number' then
  count(KEYS[2], 'sent', -1)
  if is_stored then redis.pcall('SET', KEYS[6], '', 'PX', 1) end -- a producer has no right to UNLINK
  return done or -1
end
if note then note(ARGV[2], 'sent', nil, score) end
if due < before then ring(KEYS[3]) end
return due
