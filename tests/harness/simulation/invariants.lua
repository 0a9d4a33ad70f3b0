-- What must hold of a shard after each call (DESIGN, 1). Returns {what is wrong or ''; a digest of all that the shard
-- holds but for its bell and timer; the tokens in its bell; the ids of
-- its garbage}.
-- KEYS   pending ready unack retry dead garbage held attempts errors reasons stats meta cancelled bell
-- ARGV   what the keys of payloads begin with
local names = {
  'pending', 'ready', 'unack', 'retry', 'dead', 'garbage', 'held', 'attempts', 'errors', 'reasons', 'stats', 'meta',
}
local where, all, wrong, inside = {}, {}, '', 0
for i = 1, 7 do
  local found = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
  for j = 1, #found, 2 do
    if where[found[j]] then wrong = found[j] .. ' is in ' .. where[found[j]] .. ' and in ' .. names[i] end
    where[found[j]] = names[i]
    if redis.call('EXISTS', ARGV[1] .. found[j]) == 0 then wrong = found[j] .. ' in ' .. names[i] .. ' has no payload' end
    if names[i] ~= 'garbage' then inside = inside + 1 end
  end
  all[i] = table.concat(found, ' ')
end
local payloads = redis.call('KEYS', ARGV[1] .. '*')
for _, key in ipairs(payloads) do
  local id = string.sub(key, #ARGV[1] + 1)
  if not where[id] then wrong = 'payload of ' .. id .. ', which is in no structure' end
end
local hashes = {}
for i = 8, 12 do
  local found, pairs_of, hash = redis.call('HGETALL', KEYS[i]), {}, {}
  for j = 1, #found, 2 do
    pairs_of[#pairs_of + 1], hash[found[j]] = found[j] .. '=' .. found[j + 1], found[j + 1]
    local state = where[found[j]]
    if i < 11 and (not state or state == 'garbage' or (i == 10 and state ~= 'dead')) then
      wrong = names[i] .. ' of ' .. found[j] .. ' in ' .. (state or 'no structure')
    end
  end
  table.sort(pairs_of)
  all[i], hashes[names[i]] = table.concat(pairs_of, ' '), hash
end
for id, state in pairs(where) do
  if state == 'dead' and not hashes.reasons[id] then wrong = id .. ' is dead without a reason' end
end
local cancelled = redis.call('SMEMBERS', KEYS[13])
table.sort(cancelled)
all[13] = table.concat(cancelled, ' ')
for _, id in ipairs(cancelled) do
  if where[id] ~= 'unack' then wrong = id .. ' is cancelled in flight, and in ' .. (where[id] or 'no structure') end
end
local missing = (hashes.stats.sent or 0) - inside
for _, name in ipairs({'acked', 'cancelled', 'expired', 'purged', 'adjusted'}) do
  missing = missing - (hashes.stats[name] or 0)
end
if missing ~= 0 then wrong = 'the books miss ' .. missing .. ' messages' end
local tokens = redis.call('LLEN', KEYS[14])
if tokens > 1 then wrong = tokens .. ' tokens in the bell' end
return {wrong, redis.sha1hex(table.concat(all, '|')), tokens, redis.call('ZCARD', KEYS[6])}
