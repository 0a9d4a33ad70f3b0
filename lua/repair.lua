-- repair: repair one message; what is in order stays as it is.
--
-- A message must be in one structure only (the first of unack, retry, ready, pending, held, dead, garbage keeps it), with a score
-- that is a time, and with a payload unless it is dead or runs. Nothing may be stored about it that its state rules out.
--
-- State    any -> the same, dead or (gone)
-- KEYS[1]  pending    zset    id -> due, ms
-- KEYS[2]  ready      zset    id -> due, ms
-- KEYS[3]  unack      zset    id -> end of the lease, ms
-- KEYS[4]  retry      zset    id -> time of the next attempt, ms
-- KEYS[5]  dead       zset    id -> time of death, ms
-- KEYS[6]  garbage    zset    id -> since, ms
-- KEYS[7]  attempts   hash    id -> past.released.attempts_reset.lost
-- KEYS[8]  errors     hash    id -> the last error
-- KEYS[9]  reasons    hash    id -> why it died
-- KEYS[10] cancelled  set     ids in flight that must not be retried
-- KEYS[11] payload    string
-- KEYS[12] stats      hash
-- KEYS[13] meta       hash    events: how many events the ledger keeps
-- KEYS[14] events     stream
-- KEYS[15] held       zset  id -> since when it waits for a group, ms
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  latest_ms  the latest valid time
-- ARGV[4]  lease_ms   the longest lease
-- Returns  what was done, in words, in order; empty when nothing was wrong
-- Cost     O(log n)
local now, id, done, note = clock(ARGV[1]), ARGV[2], {}, ledger(KEYS[13], KEYS[14], ARGV[1])
local function say(changed, ...)
  if changed ~= 0 then done[#done + 1] = string.format(...) end
end
local names, kept, zset = {'pending', 'ready', 'unack', 'retry', 'dead', 'garbage', [15] = 'held'}, '', false
for _, i in ipairs({3, 4, 2, 1, 15, 5, 6}) do
  if zset then
    say(redis.call('ZREM', KEYS[i], id), 'removed from %s, kept in %s', names[i], kept)
  elseif redis.call('ZSCORE', KEYS[i], id) then
    kept, zset = names[i], KEYS[i]
  end
end
local payload, waits = redis.call('EXISTS', KEYS[11]) == 1, kept ~= '' and string.find('pending ready retry held', kept)
local reason = not zset and payload and 'orphan' or waits and not payload and 'payload-missing'
if reason then
  move(zset and {zset} or {}, KEYS[5], {now, id}, function()
    count(KEYS[12], 'died', 1)
    if note then note(id, 'died', nil, nil, nil, reason) end
  end)
  kept, zset = 'dead', KEYS[5]
elseif kept == 'dead' and not payload and redis.call('HGET', KEYS[9], id) ~= 'payload-missing' then
  reason = 'payload-missing'
end
if reason then say(redis.call('HSET', KEYS[9], id, reason) + 1, 'moved to the dead letters: %s', reason) end
local score = zset and (tonumber(redis.call('ZSCORE', zset, id)) or math.huge)
local latest = kept == 'unack' and now + ARGV[4] or tonumber(ARGV[3])
if score and (score < 0 or score >= latest + 1) then
  score = kept == 'unack' and now or math.min(math.max(score, 0), latest) -- an impossible lease ends now
  say(redis.call('ZADD', zset, score, id) + 1, 'score set to %.0f', score)
end
if kept ~= 'dead' then say(redis.call('HDEL', KEYS[9], id), 'reason removed') end
if kept ~= 'unack' then say(redis.call('SREM', KEYS[10], id), 'cancellation removed') end
local stored = redis.call('HGET', KEYS[7], id)
local readable = stored and string.match(stored, '^%d+%.%d+%.%d+%.%d+$')
if stored and not (readable and zset and kept ~= 'garbage') then
  say(redis.call('HDEL', KEYS[7], id), 'attempts removed')
end
if not zset or kept == 'garbage' then say(redis.call('HDEL', KEYS[8], id), 'last error removed') end
if note and #done > 0 then note(id, 'repaired', nil, nil, nil, table.concat(done, '; ')) end
return done
