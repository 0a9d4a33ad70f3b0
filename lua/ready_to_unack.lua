-- ready_to_unack: hand out messages that are due, new ones and retries, each under a lease.
--
-- If both wait, each gets half of the claim, and the odd one goes to each side in turn; one side takes what the other
-- leaves. A limit of the queue may leave messages behind that the caller has room for: then the bell rings only if other
-- consumers may take more.
--
-- State    ready, retry -> unack
-- KEYS[1]  ready     zset  id -> due, ms
-- KEYS[2]  retry     zset  id -> time of the next attempt, ms
-- KEYS[3]  unack     zset  id -> end of the lease, ms; its fraction is the microsecond of the delivery, see
--                    `marked`
-- KEYS[4]  attempts  hash  id -> past.released.attempts_reset.lost
-- KEYS[5]  meta      hash
-- KEYS[6]  stats     hash
-- KEYS[7]  bell      list
-- KEYS[8]  rate      zset  number of the delivery -> its time, microseconds
-- KEYS[9]  events    stream
-- KEYS[10] claim     string  the name of the last claim of this run of the consumer, then the reply to it
-- KEYS[11] replaced  zset    deliveries whose messages were replaced while they ran -> end of the lease, ms
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  limit     0..1000 messages; 0 only passes the bell on
-- ARGV[3]  lease_ms  1..86400000
-- ARGV[4]  consumer  its name, for the ledger; '' for none
-- ARGV[5]  name      of the claim, see `answered`: repeated after its reply was lost, it gets the same reply; '' for
--                    none, as for a program that calls `receive`
-- ARGV[6]  by_ms     hand out nothing after this time: a frozen server may run a call whose caller is gone; '' for none
-- Returns  {now, ms; its microseconds; {id, due, …}; {past.released.attempts_reset.lost or nil, …}}, retries first, each side
--          earliest first; empty lists if nothing is due or the queue is paused; the last one is also empty if no message
--          has an earlier delivery. With limits, a fifth: 1 if a limit has left messages behind, else 0; 2 during a pause
--          that ends by itself. With messages, a sixth: 1 if the queue may hold large envelopes, else 0
-- Cost     O(limit log n)
local known = answered(KEYS[10], ARGV[5])
if known then return known end
local now, micros = clock(ARGV[1])
if ARGV[6] ~= '' and now > tonumber(ARGV[6]) then return {now, micros, {}, {}} end
local free, opens, period = allowance(KEYS[5], KEYS[3], KEYS[8], KEYS[11], now, micros)
if not free then return answer(KEYS[10], ARGV[5], {now, micros, {}, {}, opens < math.huge and 2 or nil}) end
local limit = math.min(tonumber(ARGV[2]), free)
local waiting, due = redis.call('ZCARD', KEYS[1]), redis.call('ZCOUNT', KEYS[2], '-inf', digits(now))
local turn = limit % 2 == 1 and counted(KEYS[6], 'delivered') % 2 or 0
local retries = math.min(due, math.max(limit - waiting, math.floor((limit + turn) / 2)))
local fresh = math.min(waiting, limit - retries)
local leaves = waiting + due > retries + fresh
local rings, held = leaves and limit < free, nil
if free < math.huge then held = leaves and not rings and 1 or 0 end
if held then forget_ended(KEYS[11], now) end
if retries + fresh == 0 and rings then ring(KEYS[7]) end
if retries + fresh == 0 then return answer(KEYS[10], ARGV[5], {now, micros, {}, {}, held}) end
probe()
micros = marked(micros, ARGV[5] ~= '')
local note = ledger(KEYS[5], KEYS[9], now)
local claimed = retries > 0 and redis.call('ZRANGE', KEYS[2], '0', digits(retries - 1), 'WITHSCORES') or {}
local new = fresh > 0 and redis.call('ZRANGE', KEYS[1], '0', digits(fresh - 1), 'WITHSCORES') or {}
for _, field in ipairs(new) do claimed[#claimed + 1] = field end
local lease_end = digits(now + tonumber(ARGV[3])) .. string.format('.%03d', micros)
local ids, leases = {}, {}
for i = 1, #claimed, 2 do ids[#ids + 1], leases[i], leases[i + 1] = claimed[i], lease_end, claimed[i] end
local earlier = redis.call('EXISTS', KEYS[4]) == 1 and redis.call('HMGET', KEYS[4], unpack(ids)) or {}
put(KEYS[3], leases)
if rings then ring(KEYS[7]) end
local number = count(KEYS[6], 'delivered', #ids)
if period then spend(KEYS[8], period, now * 1000 + micros, number, #ids) end
count_late(KEYS[6], claimed, now)
local numbers, dues = {}, {}
for i = 1, note and #ids or 0 do numbers[i], dues[i] = earlier[i] and deliveries(earlier[i]) + 1 or 1, claimed[2 * i] end
if note then note(ids, 'delivered', numbers, dues, true, nil, ARGV[4]) end
if retries > 0 then redis.call('ZREMRANGEBYRANK', KEYS[2], '0', digits(retries - 1)) end
if fresh > 0 then redis.call('ZREMRANGEBYRANK', KEYS[1], '0', digits(fresh - 1)) end
local has_large = redis.call('HGET', KEYS[6], 'large') ~= '0' and 1 or 0
return answer(KEYS[10], ARGV[5], {now, micros, claimed, earlier, held or false, has_large})
