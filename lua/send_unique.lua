-- send_unique: put new messages into pending and reserve their ids for a time, unless an id exists or is reserved.
--
-- A reservation counts from the send and outlives its message. Its value says until when it holds, by the scripts' clock;
-- its expiry only cleans up. Other sends do not look at it. A message that the queue has no room for reserves nothing. If
-- the queue has a max_length, pending, ready, unack, retry and held count towards it.
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
-- KEYS[12..]        strings, two per message: its payload key, its reservation: until when, ms
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2..]         four per message: id, due ('+delay_ms' or ms), envelope, unique_for ('+ms', 1 or more); all ids
--                   different, 1..1000 of them
-- Returns  the due times, ms, in the messages' order; -1 for an id that existed or was reserved, -1 - max_length if the
--          queue was full
-- Cost     O(n log m)
local now, micros = clock(ARGV[1])
local stamped, before, n = stamp(now), head(KEYS[1]), (#ARGV - 1) / 4
local ids = {}
for i = 1, n do ids[i] = ARGV[4 * i - 2] end
local taken = existing(ids, KEYS[2], {KEYS[1], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[11]})
for i = 1, n do taken[i] = taken[i] or (tonumber(redis.call('GET', KEYS[11 + 2 * i])) or 0) > now end
local note, _, max_length = ledger(KEYS[9], KEYS[10], now, true)
local free = max_length and room(max_length, KEYS[1], KEYS[5], KEYS[6], KEYS[7], KEYS[11]) or math.huge
local values, members, new, starts, dues, first, largest = {}, {}, {}, {}, {}, math.huge, 0
for i = 1, n do
  if taken[i] or #new >= free then
    dues[i] = taken[i] and -1 or -1 - max_length
  else
    dues[i] = due_time(ARGV[4 * i - 1], now, micros)
    first, new[#new + 1] = math.min(first, dues[i]), ids[i]
    values[#values + 1], values[#values + 2] = KEYS[10 + 2 * i], stamped .. ARGV[4 * i]
    members[#members + 1], members[#members + 2] = digits(dues[i]), ids[i]
    largest = math.max(largest, #ARGV[4 * i])
  end
end
if #new == 0 then return dues end
redis.call('MSET', unpack(values)) -- first, since at maxmemory it is refused, and nothing changes
redis.call('ZADD', KEYS[1], unpack(members))
redis.call('ZREM', KEYS[2], unpack(new)) -- garbage whose id is reserved stays, to be collected
count_stored(KEYS[3], 'sent', #new, largest)
for i = 1, n do
  if dues[i] >= 0 then
    local ends = due_time(ARGV[4 * i + 1], now, micros)
    redis.call('SET', KEYS[11 + 2 * i], digits(ends), 'PX', digits(ends - now))
    starts[#starts + 1] = dues[i]
  end
end
if note then note(new, 'sent', nil, starts) end
if first < before then ring(KEYS[4]) end
return dues
