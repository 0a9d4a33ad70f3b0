-- replace: send a message anew under its id, whatever state it is in; its retries start again.
--
-- A delivery that runs meanwhile loses its lease: its receipt becomes stale.
--
-- State    pending, ready, unack, retry, dead -> pending (a new id: as send does)
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
-- KEYS[14] meta      hash  events: how many entries the ledger keeps
-- KEYS[15] events    stream
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  due       '+delay_ms' or ms
-- ARGV[4]  envelope
-- Returns  {due, ms; 1 when the id was new, else 0}
-- Cost     O(log n)
local now, micros = clock(ARGV[1])
local id, due, before = ARGV[2], due_time(ARGV[3], now, micros), head(KEYS[1])
local running = redis.call('ZSCORE', KEYS[6], id) and 1 or 0
-- Another program may have overwritten any of these: better fail before anything is changed.
for _, i in ipairs({2, 5, 7, 8}) do redis.call('ZSCORE', KEYS[i], id) end
for _, i in ipairs({3, 9, 10, 11}) do redis.call('HGET', KEYS[i], '') end
redis.call('SISMEMBER', KEYS[12], '')
local note = ledger(KEYS[14], KEYS[15], now)
-- First, since at maxmemory it is refused, and nothing changes. Whoever has been handed the old message within this very
-- millisecond, and fetches the new one, is to see that it was stored later.
redis.call('SET', KEYS[13], string.format('%013.0f', now + running) .. ARGV[4])
local found = start_anew(id, KEYS[6], {KEYS[1], KEYS[5], KEYS[7], KEYS[8]}, KEYS[9])
redis.call('ZREM', KEYS[2], id)
redis.call('HDEL', KEYS[10], id)
redis.call('HDEL', KEYS[11], id)
redis.call('SREM', KEYS[12], id)
redis.call('ZADD', KEYS[1], due, id)
local event = found and 'replaced' or 'sent'
redis.call('HINCRBY', KEYS[3], event, 1)
if note then note(id, event, nil, due) end
if due < before then ring(KEYS[4]) end
return {due, found and 0 or 1}
