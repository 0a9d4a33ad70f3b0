-- replace: send a message again under its id, in any state; its retries start again.
--
-- A running delivery loses its lease: its receipt becomes stale. It still counts against the queue's limits until it ends.
-- If the queue is full, a new id is refused, as send does, and so is a dead letter's, since dead letters do not count.
--
-- State    pending, ready, unack, retry, dead, held -> pending (a new id: as send does)
-- KEYS[1]  pending   zset
-- KEYS[2]  garbage   zset
-- KEYS[3]  stats     hash
-- KEYS[4]  bell      list
-- KEYS[5]  ready     zset
-- KEYS[6]  unack     zset
-- KEYS[7]  retry     zset
-- KEYS[8]  dead      zset
-- KEYS[9]  attempts  hash
-- KEYS[10] errors    hash
-- KEYS[11] reasons   hash
-- KEYS[12] cancelled set
-- KEYS[13] payload   string
-- KEYS[14] meta      hash  events: how many events the ledger keeps; max_length
-- KEYS[15] events    stream
-- KEYS[16] replaced  zset    deliveries whose messages were replaced while they ran -> end of the lease, ms
-- KEYS[17] members   hash  id -> the group that it belongs to
-- KEYS[18] groups    hash  group -> see `group_of`
-- KEYS[19] held      zset  id -> since when it waits for a group, ms
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  due       '+delay_ms' or ms
-- ARGV[4]  envelope
-- Returns  {due, ms; 1 when the id was new, else 0}; {-1 - max_length, 0} if the queue had no room for it
-- Cost     O(log n)
local now, micros = clock(ARGV[1])
local id, due, before = ARGV[2], due_time(ARGV[3], now, micros), head(KEYS[1])
local places, note, needs, max_length =
  where(id, {KEYS[6], KEYS[1], KEYS[5], KEYS[7], KEYS[19], KEYS[8]}), ledger(KEYS[14], KEYS[15], now, true)
local groups = grouped(KEYS[17], KEYS[18], KEYS[19], KEYS[1], needs)
local is_added = (places[1] or KEYS[8]) == KEYS[8]
if is_added and max_length and room(max_length, KEYS[1], KEYS[5], KEYS[6], KEYS[7], KEYS[19]) <= 0 then
  return {-1 - max_length, 0}
end
local running, event = places[1] == KEYS[6] and 1 or 0, #places > 0 and 'replaced' or 'sent'
if running == 1 then keep_place(KEYS[16], KEYS[14], KEYS[6], KEYS[9], id, now) end
-- First: at maxmemory it is refused, and nothing changes. A consumer that was handed the old message in this very
-- millisecond, and fetches the new one, must see that it was stored later.
redis.call('SET', KEYS[13], stamp(now + running) .. ARGV[4])
move({KEYS[2], unpack(places)}, KEYS[1], {due, id}, function()
  redis.call('HDEL', KEYS[10], id)
  redis.call('HDEL', KEYS[11], id)
  redis.call('SREM', KEYS[12], id)
  count_stored(KEYS[3], event, 1, #ARGV[4])
  if note then note(id, event, nil, due) end
  start_anew(id, running, event == 'replaced', KEYS[9])
end)
if event == 'replaced' then ended(KEYS[17], KEYS[18], KEYS[19], KEYS[1], KEYS[4], groups, ARGV[1], {id}) end
if due < before then ring(KEYS[4]) end
return {due, event == 'sent' and 1 or 0}
