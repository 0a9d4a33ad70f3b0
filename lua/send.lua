-- send: put new messages into pending; an id that exists is left as it is.
--
-- An id exists while any structure holds it, except garbage. A random one is looked up only if it has a payload. If the
-- server refuses one of the writes, all are taken back: no right to do that is needed, and Redis 6.2 can do it, too.
-- If the queue has a max_length, pending, ready, unack, retry and held count towards it.
--
-- State    (none), garbage -> pending
-- KEYS[1]  pending  zset  id -> due, ms
-- KEYS[2]  garbage  zset  id -> since, ms
-- KEYS[3]  stats    hash
-- KEYS[4]  bell     list
-- KEYS[5]  ready    zset
-- KEYS[6]  unack    zset
-- KEYS[7]  retry    zset
-- KEYS[8]  dead     zset
-- KEYS[9]  meta     hash  events: how many events the ledger keeps; max_length
-- KEYS[10] events   stream
-- KEYS[11] held     zset  id -> since when it waits for a group, ms
-- KEYS[12..]        strings, the payload keys of the messages, in the same order
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  named    '1' when callers have chosen the ids, '' when they are random
-- ARGV[3..]         three per message: id, due ('+delay_ms' or ms), envelope; all ids different, 1..1000 of them. An
--                   envelope of more than 8,192 bytes has 13 more in front, over which the time is written
-- Returns  the due times, ms, in the messages' order; -1 for an id that existed, -1 - max_length if the queue was full
-- Probes   none  the first write is to stats, pending is read before, and checking makes a single send a tenth slower
-- Cost     O(n log m)
local now, micros = clock(ARGV[1])
local stamped, before, note, needs, max_length = stamp(now), head(KEYS[1]), ledger(KEYS[9], KEYS[10], now, true)
local free = max_length and room(max_length, KEYS[1], KEYS[5], KEYS[6], KEYS[7], KEYS[11]) or math.huge
local ids, taken, garbage, look = {}, {}, {}, ARGV[2] == '1' or redis.call('EXISTS', unpack(KEYS, 12)) > 0
for i = 3, look and #ARGV or 0, 3 do ids[i / 3] = ARGV[i] end
if look then taken, garbage = existing(ids, KEYS[2], {KEYS[1], KEYS[5], KEYS[6], KEYS[7], KEYS[8], needs and KEYS[11] or nil}) end
local values, members, new, scores, dues, first, n, largest = {}, {}, {}, {}, {}, math.huge, 0, 0
local given, due, score -- most messages of a call are due at the same time: read and write it once
for i = 3, #ARGV, 3 do
  if taken[i / 3] or n / 2 >= free then
    dues[i / 3] = taken[i / 3] and -1 or -1 - max_length
  else
    if ARGV[i + 1] ~= given then
      given, due = ARGV[i + 1], due_time(ARGV[i + 1], now, micros)
      score, first = digits(due), math.min(first, due)
    end
    values[#values + 1], values[#values + 2] = KEYS[11 + i / 3], dated(ARGV[i + 2], stamped)
    members[n + 1], members[n + 2], new[n / 2 + 1], scores[n / 2 + 1] = score, ARGV[i], ARGV[i], score
    if #ARGV[i + 2] > largest then largest = #ARGV[i + 2] end
    dues[i / 3], n = due, n + 2
  end
end
if n == 0 then return dues end
count_stored(KEYS[3], 'sent', n / 2, largest) -- first: at maxmemory it is refused, and nothing changes
local done = redis.pcall('MSET', unpack(values))
for i = 1, largest > LARGE and #dues or 0 do
  if done.ok and dues[i] >= 0 and #ARGV[3 * i + 2] > LARGE then done = date(KEYS[11 + i], ARGV[3 * i + 2], stamped) end
end
if done.ok then done = redis.pcall('ZADD', KEYS[1], unpack(members)) end
if type(done) == 'table' then -- an error
  count(KEYS[3], 'sent', -n / 2)
  for i = 1, #dues do -- a producer has no right to UNLINK
    if dues[i] >= 0 then redis.pcall('SET', KEYS[11 + i], '', 'PX', 1) end
  end
  return done
end
if note then note(new, 'sent', nil, scores) end
if first < before then ring(KEYS[4]) end
for i in pairs(garbage) do if garbage[i] and dues[i] >= 0 then redis.pcall('ZREM', KEYS[2], ARGV[3 * i]) end end
return dues
