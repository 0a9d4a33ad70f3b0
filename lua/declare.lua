-- declare: store what a client was made with, as far as nothing is stored yet: afterwards, `configure` alone changes it.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  meta    hash  rate: messages in period_ms; concurrency; per_key; events, which the ledger keeps; removed:FIELD
--                        where `configure` has removed one
-- KEYS[2]  bell    list
-- ARGV[1..] field and value, for each that the client names; '' is for none, and 'N?' is N here
-- Returns  1; 0 when nothing was to be stored
-- Cost     O(1)
local changed = 0
for i = 1, #ARGV, 2 do
  local field, value = ARGV[i], string.match(ARGV[i + 1], '^[^?]*')
  local stored, removed = unpack(redis.call('HMGET', KEYS[1], field, 'removed:' .. field))
  if value ~= '' and not stored and not removed then
    redis.call('HDEL', KEYS[1], field) -- a server at its maxmemory refuses a script that begins with an HSET
    redis.call('HSET', KEYS[1], field, value)
    changed = 1
  end
end
if changed == 1 then ring(KEYS[2]) end
return changed
