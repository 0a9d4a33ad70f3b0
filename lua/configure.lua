-- configure: set limits of the queue, or how long its ledger is, or remove them.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  meta    hash  rate: messages in period_ms; concurrency; per_key; events, which the ledger keeps; max_dead;
--                        removed:FIELD where one was removed, so that `declare` does not store it again
-- KEYS[2]  bell    list
-- ARGV[1..] field and value, for each that is to change; the value '' removes it, and 'N?' stays out when there is one
-- Returns  1; 0 when all was so before
-- Cost     O(1)
local changed = 0
for i = 1, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  local default = string.match(value, '^(.*)%?$')
  if default then
    value = redis.call('HGET', KEYS[1], field) or default
  end
  if value == '' then
    changed = math.max(changed, redis.call('HDEL', KEYS[1], field))
    redis.call('HSET', KEYS[1], 'removed:' .. field, 1)
  elseif redis.call('HGET', KEYS[1], field) ~= value then
    redis.call('HDEL', KEYS[1], field, 'removed:' .. field) -- a server at its maxmemory refuses a script that begins with an HSET
    redis.call('HSET', KEYS[1], field, value)
    changed = 1
  end
end
if changed == 1 then ring(KEYS[2]) end
return changed
