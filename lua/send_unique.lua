-- send_unique: put a new message into pending and reserve its id for a time, unless the id exists or is reserved.
--
-- The reservation counts from the send and outlives the message. Its value says until when it holds, by the clock that
-- the scripts go by; its expiry only clears it away. Other sends do not look at it.
--
-- State    (none), garbage -> pending
-- KEYS[1]  pending      zset    id -> due, ms
-- KEYS[2]  garbage      zset    id -> since, ms
-- KEYS[3]  stats        hash
-- KEYS[4]  bell         list
-- KEYS[5]  ready        zset
-- KEYS[6]  unack        zset
-- KEYS[7]  retry        zset
-- KEYS[8]  dead         zset
-- KEYS[9]  payload      string
-- KEYS[10] reservation  string  until when the id is reserved, ms
-- KEYS[11] meta         hash    events: how many entries the ledger keeps
-- KEYS[12] events       stream
-- ARGV[1]  now_ms       '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  due          '+delay_ms' or ms
-- ARGV[4]  envelope
-- ARGV[5]  unique_for   '+ms', 1 or more
-- Returns  {due, ms}; {-1} when the id existed or was reserved
-- Cost     O(log n)
local now, micros = clock(ARGV[1])
local id, due, before = ARGV[2], due_time(ARGV[3], now, micros), head(KEYS[1])
if (tonumber(redis.call('GET', KEYS[10])) or 0) > now then return {-1} end
local garbage = redis.call('ZSCORE', KEYS[2], id)
local exists = redis.call('EXISTS', KEYS[9]) == 1 and not garbage
for _, key in ipairs({1, 5, 6, 7, 8}) do exists = redis.call('ZSCORE', KEYS[key], id) or exists end
if exists then return {-1} end
local note = ledger(KEYS[11], KEYS[12], now)
redis.call('HGET', KEYS[3], '') -- fails before the id is reserved, should the key have been overwritten
-- First, since at maxmemory it is refused, and nothing changes.
redis.call('SET', KEYS[9], string.format('%013.0f', now) .. ARGV[4])
local ends = due_time(ARGV[5], now, micros)
redis.call('SET', KEYS[10], string.format('%.0f', ends), 'PX', string.format('%.0f', ends - now))
redis.call('ZREM', KEYS[2], id)
redis.call('ZADD', KEYS[1], due, id)
redis.call('HINCRBY', KEYS[3], 'sent', 1)
if note then note(id, 'sent', nil, due) end
if due < before then ring(KEYS[4]) end
return {due}
