-- usage: how much of a queue's limits is in use, and which schedules wait for a consumer, at one instant.
--
-- Reads    meta, unack, rate, replaced, slots, waiting, armed, pending, ready, retry, held
-- KEYS[1]  meta      hash
-- KEYS[2]  unack     zset  id -> end of the lease, ms
-- KEYS[3]  rate      zset  number of the delivery -> its time, microseconds
-- KEYS[4]  replaced  zset  deliveries whose messages were replaced while they ran -> end of the lease, ms
-- KEYS[5]  slots     zset  key, receipt and id of what runs under a key
-- KEYS[6]  waiting   zset  key, due and id of what waits for others of its key
-- KEYS[7]  armed     zset  name -> slot of the occurrence on its way, ms; 0 while paused, -1 when finished
-- KEYS[8]  pending   zset
-- KEYS[9]  ready     zset
-- KEYS[10] retry     zset
-- KEYS[11] held      zset  id -> since when it waits for a group, ms
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  late_ms   0..86400000: a schedule is late if its slot was longer ago than this
-- Returns  {{concurrency or nil, how many run}; {rate or nil, its period, ms, or nil, deliveries within the last period};
--          {concurrency of a key or nil, slots in use, messages that wait for one}; {schedules that are late, how late the
--          latest of them is, ms}; {max_length or nil, messages that count towards it, 0 without one}}
-- Cost     O(log n)
local now, micros = clock(ARGV[1])
local concurrency, most, ms, per_key, max_length =
  unpack(redis.call('HMGET', KEYS[1], 'concurrency', 'rate', 'period_ms', 'per_key', 'max_length'))
local running = redis.call('ZCARD', KEYS[2]) + redis.call('ZCOUNT', KEYS[4], '(' .. now, '+inf')
concurrency, most, ms, per_key = setting(concurrency), setting(most), setting(ms), setting(per_key)
local us, period, spent = now * 1000 + micros, (ms or 0) * 1000, 0
if period > 0 then spent = redis.call('ZCOUNT', KEYS[3], '(' .. digits(us - period), '(' .. digits(us + period)) end
max_length = setting(max_length)
local length = max_length and max_length - room(digits(max_length), KEYS[2], KEYS[8], KEYS[9], KEYS[10], KEYS[11]) or 0
local until_ms = '(' .. digits(now - ARGV[2])
local late = redis.call('ZCOUNT', KEYS[7], '1', until_ms)
local first = redis.call('ZRANGE', KEYS[7], '1', until_ms, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
return {
  {concurrency or false, running}, {most or false, ms or false, spent},
  {per_key or false, redis.call('ZCARD', KEYS[5]), redis.call('ZCARD', KEYS[6])},
  {late, first and now - first or 0}, {max_length or false, length}
}
