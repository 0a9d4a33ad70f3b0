-- reschedule: give a waiting message another due time; its attempts stay counted.
--
-- State    pending, ready, retry, held -> pending
-- KEYS[1]  pending  zset  id -> due, ms
-- KEYS[2]  ready    zset
-- KEYS[3]  retry    zset
-- KEYS[4]  unack    zset
-- KEYS[5]  dead     zset
-- KEYS[6]  stats    hash
-- KEYS[7]  bell     list
-- KEYS[8]  meta     hash  events: how many events the ledger keeps
-- KEYS[9]  events   stream
-- KEYS[10] held     zset  id -> since when it waits for a group, ms
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  due      '+delay_ms' or ms
-- Returns  'rescheduled', or why not: 'in_flight', 'dead', 'unknown'
-- Cost     O(log n)
local now, micros = clock(ARGV[1])
local id, note = ARGV[2], ledger(KEYS[8], KEYS[9], now)
local places = where(id, {KEYS[1], KEYS[2], KEYS[3], KEYS[10]})
if #places == 0 then
  if redis.call('ZSCORE', KEYS[4], id) then return 'in_flight' end
  return redis.call('ZSCORE', KEYS[5], id) and 'dead' or 'unknown'
end
local due, before = due_time(ARGV[3], now, micros), head(KEYS[1])
move(places, KEYS[1], {due, id}, function()
  count(KEYS[6], 'rescheduled', 1)
  if note then note(id, 'rescheduled', nil, due) end
end)
if due < before then ring(KEYS[7]) end
return 'rescheduled'
