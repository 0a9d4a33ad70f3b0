-- edit: requeue a dead letter with another envelope; its retries start again, its attempt numbers keep rising.
--
-- The time of death says which death is meant: a message that has died again since the caller looked is left alone.
--
-- State    dead -> pending
-- KEYS[1]  dead      zset  id -> time of death, ms
-- KEYS[2]  pending   zset  id -> due, ms
-- KEYS[3]  attempts  hash  id -> past.released.attempts_reset.lost
-- KEYS[4]  reasons   hash
-- KEYS[5]  stats     hash
-- KEYS[6]  bell      list
-- KEYS[7]  payload   string
-- KEYS[8]  meta      hash  events: how many events the ledger keeps
-- KEYS[9]  events    stream
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  died_ms   the time of death that was seen
-- ARGV[4]  due       '+delay_ms' or ms
-- ARGV[5]  envelope
-- ARGV[6]  stamp     when the message was sent, as in `stamp`; '' if that is lost
-- Returns  1, or 0 when it is not dead or has died again
-- Cost     O(log n)
local now, micros = clock(ARGV[1])
local id, died = ARGV[2], redis.call('ZSCORE', KEYS[1], ARGV[2])
if not died or tonumber(died) ~= tonumber(ARGV[3]) then return 0 end
local due, before = due_time(ARGV[4], now, micros), head(KEYS[2])
local past, released = deliveries(redis.call('HGET', KEYS[3], id))
local note = ledger(KEYS[8], KEYS[9], now)
redis.call('SET', KEYS[7], (ARGV[6] ~= '' and ARGV[6] or stamp(now)) .. ARGV[5]) -- first: at maxmemory it is refused
move({KEYS[1]}, KEYS[2], {due, id}, function()
  keep_deliveries(KEYS[3], id, past, released, past, 0)
  redis.call('HDEL', KEYS[4], id)
  count_stored(KEYS[5], 'requeued', 1, #ARGV[5])
  if note then note(id, 'requeued', nil, due, nil, 'edited') end
end)
if due < before then ring(KEYS[6]) end
return 1
