-- requeue_dead: let a group handle its dead letters once more, as if they had never been delivered.
--
-- A record that the topic still has goes back to the group's unacked list, to be reclaimed at once by an idle consumer,
-- which is woken. One that was trimmed is appended again, for this group alone. A call stops after a megabyte of records.
--
-- State    buried -> unacked, or stream
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  buried    stream  the group's dead letters
-- KEYS[3]  waking    stream  what idle readers block on, beside the topic itself
-- KEYS[4]  meta      hash    the mark of the stream, which is noted if it begins
-- ARGV[1]  group
-- ARGV[2]  consumer  that holds them until they are reclaimed; created if new
-- ARGV[3..]          the ids of 1..250 dead letters
-- Returns  1 per dead letter; 0 where there is none; in their order, of those that were looked at
-- Errors   GROUP     the topic has no such group
-- Cost     O(n log m)
local DAY = '86400000' -- ms
local results, group, bytes, left = {}, ARGV[1], 0, false
local known = redis.pcall('XPENDING', KEYS[1], group)
if known.err then return no_group(known, KEYS[1], group) end
local mark = marking(KEYS[4], KEYS[1], redis.call('XLEN', KEYS[1]))
for i = 3, #ARGV do
  local letter = redis.call('XRANGE', KEYS[2], ARGV[i], ARGV[i])[1] or {}
  local fields = letter[2] or {}
  local id, last = fields[2], fields[#fields - 1] == FOR and #fields - 2 or #fields
  local record = id and redis.call('XRANGE', KEYS[1], id, id)[1]
  for field = 11, record and last or 0 do -- a topic that was lost may have got another record with this id
    if record and record[2][field - 10] ~= fields[field] then record = nil end
  end
  left = left or record
  if record then
    redis.call('XCLAIM', KEYS[1], group, ARGV[2], 0, id, 'IDLE', DAY, 'RETRYCOUNT', 0, 'FORCE', 'JUSTID')
  elseif id then
    fields[last + 1], fields[last + 2] = FOR, group
    mark(redis.call('XADD', KEYS[1], '*', unpack(fields, 11, last + 2)))
  end
  results[#results + 1] = redis.call('XDEL', KEYS[2], ARGV[i])
  bytes = bytes + size_of(letter) + size_of(record or {})
  if bytes >= RECORD_BYTES then break end
end
if left then wake(KEYS[3], 'left', group) end
return results
