-- requeue: move dead letters back to pending; their retries start again, their attempt numbers keep rising.
--
-- A dead letter whose payload is gone stays dead.
--
-- State    dead -> pending
-- KEYS[1]  dead      zset
-- KEYS[2]  pending   zset  id -> due, ms
-- KEYS[3]  attempts  hash  id -> past.released.attempts_reset.lost
-- KEYS[4]  reasons   hash
-- KEYS[5]  stats     hash
-- KEYS[6]  bell      list
-- KEYS[7]  meta      hash  events: how many events the ledger keeps
-- KEYS[8]  events    stream
-- KEYS[9..]          strings, the payload keys of the messages, in the same order
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  due       '+delay_ms' or ms, the same for all
-- ARGV[3]  up_to     the latest time of death, ms; '' for any
-- ARGV[4..]          ids, 1..1000 of them
-- Returns  1 per message, or 0 where it was not dead, has died since, or its payload is gone; in the same order
-- Cost     O(n log m)
local due, before = due_time(ARGV[2], clock(ARGV[1])), head(KEYS[2])
local ids, up_to = {unpack(ARGV, 4)}, tonumber(ARGV[3]) or math.huge
local dead, stored = redis.call('ZMSCORE', KEYS[1], unpack(ids)), redis.call('HMGET', KEYS[3], unpack(ids))
local whole = redis.call('EXISTS', unpack(KEYS, 9)) == #ids
local results, found, attempts, dues, taken = {}, {}, {}, {}, {}
for i, id in ipairs(ids) do
  results[i] = 0
  if dead[i] and tonumber(dead[i]) <= up_to and not taken[id] and (whole or redis.call('EXISTS', KEYS[i + 8]) == 1) then
    local past, released = deliveries(stored[i])
    local n = #dues
    attempts[n + 1], attempts[n + 2] = id, table.concat({past, released, past, 0}, '.')
    dues[n + 1], dues[n + 2] = due, id
    results[i], found[#found + 1], taken[id] = 1, id, true
  end
end
if #found == 0 then return results end
local note = ledger(KEYS[7], KEYS[8], ARGV[1])
move({KEYS[1]}, KEYS[2], dues, function()
  redis.call('HSET', KEYS[3], unpack(attempts))
  redis.call('HDEL', KEYS[4], unpack(found))
  count(KEYS[5], 'requeued', #found)
  if note then note(found, 'requeued', nil, due) end
end)
if due < before then ring(KEYS[6]) end
return results
