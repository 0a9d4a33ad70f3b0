-- remove_if_unchanged: remove messages of one structure, each only if it has not changed since the caller read it.
--
-- The stamp of the envelope shows whether the message was replaced, its score whether it has moved.
--
-- State    pending, ready, retry or dead -> garbage
-- KEYS[1]  source    zset  one of pending, ready, retry, dead
-- KEYS[2]  garbage   zset  id -> since, ms
-- KEYS[3]  attempts  hash
-- KEYS[4]  errors    hash
-- KEYS[5]  reasons   hash
-- KEYS[6]  stats     hash
-- KEYS[7]  meta      hash  events: how many events the ledger keeps
-- KEYS[8]  events    stream
-- KEYS[9]  members   hash  id -> the group that it belongs to
-- KEYS[10] groups    hash  group -> see `group_of`
-- KEYS[11] held      zset  id -> since when it waits for a group, ms
-- KEYS[12] pending   zset  id -> due, ms
-- KEYS[13] bell      list
-- KEYS[14..]         strings, the payload keys of the messages, in the same order
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2..]          three per message: id, score (ms), the 13 digits before its envelope ('' when that is gone); all ids
--                    different, 1..500 of them
-- Returns  1 per message, or 0 where it has moved or was replaced; in the same order
-- Cost     O(n log m)
local now, results, ids, found = clock(ARGV[1]), {}, {}, {}
for i = 2, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
for i, score in ipairs(redis.call('ZMSCORE', KEYS[1], unpack(ids))) do
  local same = score and tonumber(score) == tonumber(ARGV[3 * i])
  results[i] = same and redis.call('GETRANGE', KEYS[13 + i], 0, 12) == ARGV[3 * i + 1] and 1 or 0
  if results[i] == 1 then found[#found + 1] = ids[i] end
end
if #found == 0 then return results end
local note, needs = ledger(KEYS[7], KEYS[8], now)
local groups = grouped(KEYS[9], KEYS[10], KEYS[11], KEYS[12], needs)
discard({KEYS[1]}, KEYS[2], {KEYS[3], KEYS[4], KEYS[5]}, KEYS[6], found, now, note, 'purged', 'drained')
ended(KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13], groups, ARGV[1], found)
return results
