-- configure: set limits of the queue, or how long its ledger is, or remove them.
--
-- What a client was made with is stored only where nothing is: neither a value nor that one was removed.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  meta    hash  rate: messages in period_ms; concurrency; per_key; events, which the ledger keeps; max_dead;
--                        removed:FIELD where one was removed
-- KEYS[2]  bell    list
-- ARGV[1]  wishes  '1' for what a client was made with, '' for what an operator says
-- ARGV[2..] field and value, for each that is to change; the value '' removes it, and 'N?' stays out when there is one
-- Returns  1; 0 when all was so before
-- Cost     O(1)
local changed = 0
for i = 2, #ARGV, 2 do
  local field, default = ARGV[i], string.match(ARGV[i + 1], '^(.*)%?$')
  local stored, removed = unpack(redis.call('HMGET', KEYS[1], field, 'removed:' .. field))
  local value = default and (stored or default) or ARGV[i + 1]
  local stays = value == stored or (ARGV[1] == '1' and (stored or removed or value == ''))
  if value == '' and not stays then
    changed = math.max(changed, redis.call('HDEL', KEYS[1], field))
    redis.call('HSET', KEYS[1], 'removed:' .. field, 1)
  elseif not stays then
    redis.call('HDEL', KEYS[1], field, 'removed:' .. field) -- a server at its maxmemory refuses a script that begins with an HSET
    redis.call('HSET', KEYS[1], field, value)
    changed = 1
  end
end
if changed == 1 then ring(KEYS[2]) end
return changed
