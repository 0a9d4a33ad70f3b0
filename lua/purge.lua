-- purge: discard messages of one structure, those with the lowest scores first.
--
-- State    pending, ready, retry, dead or held -> garbage
-- KEYS[1]  source    zset  one of pending, ready, retry, dead, held
-- KEYS[2]  garbage   zset  id -> since, ms
-- KEYS[3]  attempts  hash
-- KEYS[4]  errors    hash
-- KEYS[5]  reasons   hash
-- KEYS[6]  stats     hash
-- KEYS[7]  meta      hash  events: how many events the ledger keeps; max_dead: how many dead letters the queue keeps
-- KEYS[8]  events    stream
-- KEYS[9]  members   hash  id -> the group that it belongs to
-- KEYS[10] groups    hash  group -> see `group_of`
-- KEYS[11] held      zset  id -> since when it waits for a group, ms
-- KEYS[12] pending   zset  id -> due, ms
-- KEYS[13] bell      list
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  up_to     highest score, ms, or '-ms' before now; '+inf' for any, '-inf' for none
-- ARGV[3]  limit     1..1000 messages
-- ARGV[4]  shards    also discard the lowest ones beyond max_dead / shards, but keep one; '' to ignore max_dead
-- Returns  the number of messages discarded; if it is `limit`, there may be more
-- Cost     O(limit log n)
local now = clock(ARGV[1])
local up_to = string.match(ARGV[2], '^%-%d+$') and now + ARGV[2] or ARGV[2]
local most = redis.call('ZCOUNT', KEYS[1], '-inf', up_to)
local max_dead = setting(ARGV[4] ~= '' and redis.call('HGET', KEYS[7], 'max_dead'))
if max_dead then most = math.max(most, redis.call('ZCARD', KEYS[1]) - math.max(1, math.floor(max_dead / ARGV[4]))) end
most = math.min(most, tonumber(ARGV[3]))
if most == 0 then return 0 end
probe()
local ids, note, needs = redis.call('ZRANGE', KEYS[1], 0, most - 1), ledger(KEYS[7], KEYS[8], now)
local groups = grouped(KEYS[9], KEYS[10], KEYS[11], KEYS[12], needs)
discard({KEYS[1]}, KEYS[2], {KEYS[3], KEYS[4], KEYS[5]}, KEYS[6], ids, now, note, 'purged')
ended(KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13], groups, ARGV[1], ids)
return most
