-- send_group: put the messages of a new group into pending, and hold the one that waits for them to end; all or none.
--
-- An id exists as in send_unique. If a group of this name exists, nothing is changed: a repeated call finds its own group.
--
-- State    (none), garbage -> pending, held
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
-- KEYS[12] members  hash  id -> the group that it belongs to
-- KEYS[13] groups   hash  group -> see `group_of`
-- KEYS[14] rosters  hash  group -> the ids of all its members, one a line
-- KEYS[15..]        strings, the payload keys of the messages, in the same order
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  name     of the group
-- ARGV[3]  mode     'w' to wait for dead letters, 'c' to count them as ended
-- ARGV[4]  named    '1' when callers have chosen ids of messages, '' when they are random
-- ARGV[5]  waits    1 if the first message waits for the others, else 0
-- ARGV[6..]         three per message: id, due ('+delay_ms' or ms), envelope; all ids different, 0..1001 of them
-- Returns  the due times of the members, ms, in their order; if nothing was changed, {-1} as the group exists, {-2, id} as
--          an id exists, {-3, max_length} as the queue has no room for all
-- Cost     O(n log m)
local name, waits = ARGV[2], tonumber(ARGV[5])
if redis.call('HGET', KEYS[13], name) then return {-1} end
local now, micros = clock(ARGV[1])
local note, _, max_length = ledger(KEYS[9], KEYS[10], now, true)
local n, ids, before = (#ARGV - 5) / 3, {}, head(KEYS[1])
for i = 1, n do ids[i] = ARGV[3 * i + 3] end
local look = n > 0 and (ARGV[4] == '1' or redis.call('EXISTS', unpack(KEYS, 15)) > 0)
local taken = look and existing(ids, KEYS[2], {KEYS[1], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[11]}) or {}
for i, id in ipairs(ids) do if taken[i] then return {-2, id} end end
if max_length and room(max_length, KEYS[1], KEYS[5], KEYS[6], KEYS[7], KEYS[11]) < n then return {-3, max_length} end
local stamped, values, members, dues, roster, entries, largest = stamp(now), {}, {}, {}, {}, {}, 0
for i = 1, n do
  local due, envelope = due_time(ARGV[3 * i + 4], now, micros), ARGV[3 * i + 5]
  values[#values + 1], values[#values + 2] = KEYS[14 + i], stamped .. envelope
  largest = math.max(largest, #envelope)
  if i > waits then
    dues[i - waits], roster[i - waits] = due, ids[i]
    members[#members + 1], members[#members + 2] = ids[i], name
  end
  if i > waits or n == 1 then entries[#entries + 1], entries[#entries + 2] = digits(due), ids[i] end
end
local over, later, follows = #dues == 0 and now or 0, waits == 1 and ARGV[7] or '-', waits == 1 and ids[1] or ''
local hold = '\0' .. table.concat({ARGV[3], #dues, digits(now), later, name}, ' ')
if waits == 1 then members[#members + 1], members[#members + 2] = follows, hold end
if n > 0 then redis.call('MSET', unpack(values)) end -- first: at maxmemory it is refused, and nothing changes
need(KEYS[9], 5)
if look then ended(KEYS[12], KEYS[13], KEYS[11], KEYS[1], KEYS[4], true, now, ids) end -- as others', whom nobody counted
redis.call('HSET', KEYS[14], name, table.concat(roster, '\n'))
redis.call('HSET', KEYS[13], name, table.concat({ARGV[3], #dues, #dues, 0, digits(now), digits(over), later, follows}, ' '))
as_hashtable(KEYS[12], #dues)
if #dues > 0 then redis.call('HSET', KEYS[12], unpack(members)) end
if n > 0 then put(KEYS[1], entries) end
if waits == 1 and #dues > 0 then put(KEYS[11], {now, follows}) end
if n > 0 then redis.call('ZREM', KEYS[2], unpack(ids)) end
if n > 0 then count_stored(KEYS[3], 'sent', n, largest) end
local reason = 'of group ' .. name
if note and waits == 1 then note(follows, 'sent', nil, n == 1 and entries[1] or nil, nil, reason) end
if note then note(roster, 'sent', nil, dues, nil, reason) end
if head(KEYS[1]) < before then ring(KEYS[4]) end
return dues
