-- configure: set or remove limits of the queue, or the length of its ledger.
--
-- What a client was made with is stored only if there is neither a value nor a note that one was removed.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  meta    hash  rate: messages in period_ms; concurrency; per_key; events, the length of the ledger;
--                        max_dead; max_length; removed:FIELD if it was removed
-- KEYS[2]  bell    list
-- ARGV[1]  wishes  '1' for what a client was made with, '' for what an operator says
-- ARGV[2..] field and value, for each change; the value '' removes it, and 'N?' sets N only if there is none
-- Returns  1; 0 if nothing changed
-- Cost     O(1)
local FEATURES = {max_length = 2, events = 3} -- what the data need once the field is set, see `need`
local changed = 0
local needs = redis.call('HGET', KEYS[1], 'needs')
for i = 2, #ARGV, 2 do -- before any change
  if FEATURES[ARGV[i]] then understood(KEYS[1], needs) end
end
local packs = tonumber(string.match(needs or '', '^%d+') or 0) >= FEATURES.events
for i = 2, #ARGV, 2 do
  local field, default = ARGV[i], string.match(ARGV[i + 1], '^(.*)%?$')
  local stored, removed = unpack(redis.call('HMGET', KEYS[1], field, 'removed:' .. field))
  local value = default and (stored or default) or ARGV[i + 1]
  local stays = value == stored or (ARGV[1] == '1' and (stored or removed or value == ''))
  if value == '' and not stays then
    changed = math.max(changed, redis.call('HDEL', KEYS[1], field))
    redis.call('HSET', KEYS[1], 'removed:' .. field, 1)
  elseif not stays or (field == 'events' and value ~= '' and ARGV[1] == '' and not packs) then -- as in a ledger from before
    redis.call('HDEL', KEYS[1], field, 'removed:' .. field) -- a server at its maxmemory refuses a script that begins with an HSET
    if FEATURES[field] then need(KEYS[1], FEATURES[field]) end
    redis.call('HSET', KEYS[1], field, value)
    changed = 1
  end
end
if changed == 1 then ring(KEYS[2]) end
return changed
