-- cancel_group: cancel the message that waits for a group, and say which members have not ended, for the caller to cancel.
--
-- State    held -> garbage
-- KEYS[1]  garbage   zset  id -> since, ms
-- KEYS[2]  attempts  hash
-- KEYS[3]  errors    hash
-- KEYS[4]  reasons   hash
-- KEYS[5]  stats     hash
-- KEYS[6]  meta      hash  events: how many events the ledger keeps
-- KEYS[7]  events    stream
-- KEYS[8]  members   hash  id -> the group that it belongs to
-- KEYS[9]  groups    hash  group -> see `group_of`
-- KEYS[10] held      zset  id -> since when it waits for a group, ms
-- KEYS[11] rosters   hash  group -> the ids of all its members, one a line
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  name      of the group
-- Returns  nil if there is none, or {1 if the message that waits was cancelled, else 0; the ids of the members left; 1 if
--          the ids of its members are lost, else 0}
-- Cost     O(n), up to 1000 members
local now, name = clock(ARGV[1]), ARGV[2]
local mode, total, left, dead, since, over, due, id = group_of(redis.call('HGET', KEYS[9], name))
if not mode then return false end
local roster, ids = lines(redis.call('HGET', KEYS[11], name)), {}
for i, each in ipairs(#roster > 0 and redis.call('HMGET', KEYS[8], unpack(roster)) or {}) do
  if each == name then ids[#ids + 1] = roster[i] end
end
local waits = #awaiting(KEYS[8], KEYS[10], id ~= '' and {{id, name, since}} or {})
if waits == 1 then
  local note = ledger(KEYS[6], KEYS[7], now)
  discard({KEYS[10]}, KEYS[1], {KEYS[2], KEYS[3], KEYS[4], KEYS[8]}, KEYS[5], {id}, now, note, 'cancelled')
end
if waits == 1 or #ids > 0 then
  redis.call('ZREM', KEYS[10], '') -- never an id: a server at its maxmemory refuses a script that begins with an HSET
  redis.call('HSET', KEYS[9], name, table.concat({'x', total, left, dead, since, over, due, id}, ' '))
end
return {waits, ids, #roster == 0 and total ~= '0' and 1 or 0}
