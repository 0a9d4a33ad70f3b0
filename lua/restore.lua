-- restore: put messages back into the structures they were in, with the record of their deliveries.
--
-- An id that exists, as in send, is left as it is: an interrupted restore may be run again.
--
-- State    (none), garbage -> pending, ready, retry or dead
-- KEYS[1]  target    zset  one of pending, ready, retry, dead
-- KEYS[2]  garbage   zset
-- KEYS[3]  stats     hash
-- KEYS[4]  bell      list
-- KEYS[5]  pending   zset
-- KEYS[6]  ready     zset
-- KEYS[7]  unack     zset
-- KEYS[8]  retry     zset
-- KEYS[9]  dead      zset
-- KEYS[10] attempts  hash  id -> past.released.attempts_reset.lost
-- KEYS[11] errors    hash  id -> the last error
-- KEYS[12] reasons   hash  id -> why it died
-- KEYS[13] meta      hash  events: how many events the ledger keeps
-- KEYS[14] events    stream
-- KEYS[15] held      zset  id -> since when it waits for a group, ms
-- KEYS[16..]         strings, the payload keys of the messages, in the same order
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2..]          six per message: id, score in target (ms), envelope with its stamp, past.released.attempts_reset.lost, error,
--                    reason; '' for what is missing; all ids different, 1..500 of them
-- Returns  1 per message, or 0 for an id that existed; in the same order
-- Cost     O(n log m)
local before, n, ids = head(KEYS[1]), (#ARGV - 1) / 6, {}
for i = 1, n do ids[i] = ARGV[6 * i - 4] end
local taken = existing(ids, KEYS[2], {KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[15]})
local results, new, values, members, first, largest = {}, 0, {}, {}, math.huge, 0
local fresh, dues = {}, {}
for i = 1, n do
  results[i] = taken[i] and 0 or 1
  if not taken[i] then
    new, first = new + 1, math.min(first, tonumber(ARGV[6 * i - 3]))
    members[#members + 1], members[#members + 2] = ARGV[6 * i - 3], ids[i]
    largest = math.max(largest, #ARGV[6 * i - 2])
    if ARGV[6 * i - 2] ~= '' then values[#values + 1], values[#values + 2] = KEYS[15 + i], ARGV[6 * i - 2] end
  end
end
if new == 0 then return results end
local note, waits = ledger(KEYS[13], KEYS[14], ARGV[1]), KEYS[1] ~= KEYS[9]
if #values > 0 then redis.call('MSET', unpack(values)) end -- first, since at maxmemory it is refused, and nothing changes
redis.call('ZADD', KEYS[1], unpack(members))
redis.call('ZREM', KEYS[2], unpack(ids))
count_stored(KEYS[3], 'sent', new, largest)
for i = 1, n do
  if results[i] == 1 then
    if ARGV[6 * i - 2] == '' then redis.call('UNLINK', KEYS[15 + i]) end -- what garbage of this id may have left
    if ARGV[6 * i - 1] ~= '' then redis.call('HSET', KEYS[10], ids[i], ARGV[6 * i - 1]) end
    if ARGV[6 * i] ~= '' then redis.call('HSET', KEYS[11], ids[i], ARGV[6 * i]) end
    if ARGV[6 * i + 1] ~= '' then redis.call('HSET', KEYS[12], ids[i], ARGV[6 * i + 1]) end
    fresh[#fresh + 1], dues[#dues + 1] = ids[i], waits and ARGV[6 * i - 3] or ''
  end
end
if note then note(fresh, 'sent', nil, dues, nil, 'restored') end
if waits and first < before then ring(KEYS[4]) end
return results
