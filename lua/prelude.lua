-- prelude: what the scripts share; the loader puts in front of each of them the paragraphs that it needs.

-- The time as whole milliseconds and the microseconds (0..999) past them: the server's, or what a test gives.
local function clock(given)
  if given ~= '' then
    local now = tonumber(given)
    return math.floor(now), math.min(999, math.floor((now % 1) * 1000 + 0.5))
  end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000), time[2] % 1000
end

-- A whole number, 0 or more, as text. To format it by '%.0f', or to leave it to Redis, takes ten times as long; '%d' alone
-- holds no more than 32 bits on some machines.
local function digits(number)
  if number < 1000000 then return string.format('%d', number) end
  return string.format('%d%06d', number / 1000000, number % 1000000)
end

-- The time, ms, in the 13 digits that lead each payload.
local function stamp(now)
  return string.format('%07d%06d', now / 1000000, now % 1000000)
end

-- A due time, ms, from '+delay_ms' or an absolute 'ms'. Part of a millisecond counts as a whole one, so that a
-- delay is never cut short.
local function due_time(given, now, micros)
  if string.sub(given, 1, 1) ~= '+' then return tonumber(given) end
  local delay = tonumber(string.sub(given, 2))
  if delay > 0 and micros > 0 then delay = delay + 1 end
  return now + delay
end

-- The lowest score of a sorted set, and whose it is; infinity and nil when it is empty.
local function head(zset)
  local first = redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')
  return tonumber(first[2] or math.huge), first[1]
end

-- When the holder of the timer wakes, ms, 0 when nobody holds it; and the holder's name.
local function timer(key)
  local wakes, holder = string.match(redis.call('GET', key) or '', '^(%d+) (.*)$')
  return tonumber(wakes or 0), holder
end

-- A script has no rollback: one that moves messages fails here, while nothing is changed yet, when the user may not run
-- one of its commands. Redis 6.2 cannot say what a user may do.
local function check_rights(...)
  for _, command in ipairs(redis.acl_check_cmd and {...} or {}) do
    if not redis.acl_check_cmd(command, KEYS[1]) then
      error({err = "NOPERM User has no permissions to run the '" .. string.lower(command) .. "' command"})
    end
  end
end

-- What another program has put in the place of a counter is replaced.
local function counted(stats, name)
  return tonumber(redis.call('HGET', stats, name) or 0) or 0
end

local function count(stats, name, by)
  local sum = redis.pcall('HINCRBY', stats, name, string.format('%d', by))
  if type(sum) ~= 'table' then return sum end
  if not string.find(sum.err, 'integer', 1, true) then return redis.call('HINCRBY', stats, name, by) end -- which fails
  redis.call('HSET', stats, name, by)
  return by
end

-- Count how late messages were handed out: id, due, … Most of a claim were due at the same time, which is read once.
local function count_late(stats, claimed, now)
  local late, due, bucket, _ = {}, nil, nil, nil
  for i = 2, #claimed, 2 do
    if claimed[i] ~= due then
      due = claimed[i]
      _, bucket = math.frexp(math.max(0, now - math.max(0, due)))
    end
    late[bucket] = (late[bucket] or 0) + 1
  end
  for bucket, times in pairs(late) do count(stats, 'late:' .. bucket, times) end
end

-- A list of members and scores as one of scores and members, or the other way round.
local function swapped(list)
  for i = 1, #list, 2 do list[i], list[i + 1] = list[i + 1], list[i] end
  return list
end

-- Put members into a sorted set: score, member, …
--
-- A server at its maxmemory refuses a script whose first write may take memory: the first one here cannot. Up to 128
-- entries, a sorted set is a list in which Redis looks for each new one's place from the head, reading scores as text. A
-- member of more than 64 bytes makes a tree of it: ten times as quick for hundreds.
local NOBODY = string.rep('\0', 65) -- what no id is

local function put(zset, entries)
  local many = #entries > 32
  redis.call('ZREM', zset, NOBODY)
  if many then redis.call('ZADD', zset, 0, NOBODY) end
  redis.call('ZADD', zset, unpack(entries))
  if many then redis.call('ZREM', zset, NOBODY) end
end

-- Move messages to another sorted set, with their new scores: score, id, … They are put there first; then `note` says all
-- that is to be known of it; last they leave the places where they were. What fails in between leaves them in two places,
-- never in none, and the next move out of either heals that.
local function move(places, target, entries, note)
  put(target, entries)
  note()
  local ids = {}
  for i = 2, #entries, 2 do ids[#ids + 1] = entries[i] end
  for _, place in ipairs(places) do
    if place ~= target then redis.call('ZREM', place, unpack(ids)) end
  end
end

-- Make messages garbage: they are counted under the name of the event, and nothing is known of them any more.
local function discard(places, garbage, known, stats, ids, now, note, event, reason)
  local since = {}
  for i, id in ipairs(ids) do since[2 * i - 1], since[2 * i] = now, id end
  move(places, garbage, since, function()
    for _, hash in ipairs(known) do redis.call('HDEL', hash, unpack(ids)) end
    count(stats, event, #ids)
    for _, id in ipairs(note and ids or {}) do note(id, event, nil, nil, nil, reason) end
  end)
end

-- Which of some ids exist: a structure holds them, or their payload is there and they are not garbage; and which are garbage.
-- One that a structure holds and garbage too, after a script has failed, is taken out of garbage: else its payload would go.
local function existing(ids, garbage, zsets, payloads)
  local found, since = {}, redis.call('ZMSCORE', garbage, unpack(ids))
  for _, zset in ipairs(zsets) do
    for i, score in ipairs(redis.call('ZMSCORE', zset, unpack(ids))) do found[i] = found[i] or score end
  end
  for i, payload in ipairs(payloads) do
    if not (found[i] or since[i]) then found[i] = redis.call('EXISTS', payload) == 1 end
  end
  for i, id in ipairs(ids) do
    if found[i] and since[i] then redis.call('ZREM', garbage, id) end
  end
  return found, since
end

-- Those of the sorted sets that hold an id.
local function where(id, zsets)
  local found = {}
  for _, zset in ipairs(zsets) do
    if redis.call('ZSCORE', zset, id) then found[#found + 1] = zset end
  end
  return found
end

-- One token is enough: who takes it looks at everything, and rings again when it leaves work behind. A server at
-- its maxmemory may refuse the token; that must not undo the script, and the fallback poll makes up for it.
local function ring(bell)
  if redis.call('EXISTS', bell) == 0 then redis.pcall('LPUSH', bell, 1) end
end

-- The reply to a call of this name, when it was the last one. A name is 16 characters for a run of the caller, and 16 for
-- a number that rises: of a call that comes behind a later one, the caller has had the reply, and nothing is to be done.
local function answered(key, name)
  local last = name ~= '' and redis.call('GET', key)
  if not last or string.sub(last, 1, 16) ~= string.sub(name, 1, 16) then return nil end
  if string.sub(last, 1, 32) == name then return cjson.decode(string.sub(last, 33)) end
  if string.sub(last, 1, 32) > name then return {0, 0, {}, {}} end
end

-- Keep the reply to a call that has a name for some time, ms, and return it.
local function answer(key, name, reply, ms)
  if name ~= '' then redis.pcall('SET', key, name .. cjson.encode(reply), 'PX', ms) end -- refused without memory
  return reply
end

-- What is known of a message's earlier deliveries: how many counted, how many were handed back uncounted, how many
-- of the counted ones a requeue has set aside, and how many of those since then lost their lease. It is stored only
-- once there is something to tell.
local FRESH = '0.0.0.0'

local function deliveries(stored) -- another program may have overwritten it
  local past, released, attempts_reset, lost = string.match(stored or '', '^(%d+)%.(%d+)%.(%d+)%.(%d+)$')
  return tonumber(past or 0), tonumber(released or 0), tonumber(attempts_reset or 0), tonumber(lost or 0)
end

local function keep_deliveries(attempts, id, ...)
  redis.call('HSET', attempts, id, table.concat({...}, '.'))
end

-- The retries of a message that is replaced start again, and its attempt numbers go on rising.
local function start_anew(id, running, found, attempts)
  local stored = redis.call('HGET', attempts, id)
  if running == 0 and not (stored and found) then return end
  local past, released = deliveries(stored)
  keep_deliveries(attempts, id, past + running, released, past + running, 0)
end

-- The receipt of the running delivery. The fraction of a lease's end is the microsecond of its hand-out: it tells
-- the deliveries of two messages apart that had the same id one after the other. What another program has put in the
-- place of `stored` counts as nothing.
local function receipt(lease_end, stored)
  local known = stored and string.match(stored, '^%d+%.%d+%.%d+%.%d+$') or FRESH
  return known .. string.format('-%d', (lease_end % 1) * 1000 + 0.5)
end

-- Forget deliveries that were replaced while they ran, and whose leases have ended.
local function forget_ended(replaced, now)
  local over = redis.call('ZRANGE', replaced, '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)
  if #over > 0 then redis.call('ZREM', replaced, unpack(over)) end
end

-- Let the running delivery of a message that is replaced keep its place among those that a queue's limits allow, until its
-- lease ends or its consumer has settled it.
local function keep_place(replaced, meta, unack, attempts, id, now)
  local most, per_key = unpack(redis.call('HMGET', meta, 'concurrency', 'per_key'))
  if not (most or per_key) then return end
  local lease_end = redis.call('ZSCORE', unack, id)
  redis.call('ZADD', replaced, lease_end, receipt(lease_end, redis.call('HGET', attempts, id)) .. '\0' .. id)
  forget_ended(replaced, now)
end

-- When the lease of a delivery ends whose message was replaced while it ran, ms; 0 for any other.
local function kept_until(replaced, id, given)
  return tonumber(redis.call('ZSCORE', replaced, given .. '\0' .. id) or 0)
end

local NO_LONGER_OURS = ' is no longer ours: it was settled, or its lease ran out; nothing was changed'

-- Whether `given` is the receipt of the running delivery of `id`, and what is stored of the earlier ones.
local function held(unack, attempts, id, given)
  local lease_end = redis.call('ZSCORE', unack, id)
  local stored = redis.call('HGET', attempts, id)
  return lease_end and receipt(lease_end, stored) == given, stored
end

-- What notes a transition in the queue's ledger, nil when the queue keeps none; `given` is a time, as for `clock`. It
-- fails, before anything is changed, when the key is no stream any more or, as far as the server can say it (Redis 7.0
-- and newer), when the user may not append to it; later, no entry may stop the script.
--
-- An entry always has the same fields, also empty ones, so that the stream keeps their names once.
local function ledger(meta, events, given)
  local kept = redis.call('HGET', meta, 'events')
  if not kept then return nil end
  redis.call('XLEN', events)
  if redis.acl_check_cmd and not redis.acl_check_cmd('XADD', events) then
    error({err = "NOPERM User has no permissions to run the 'xadd' command"})
  end
  local texts = {} -- Redis takes much longer to write numbers than Lua takes to look them up
  local function text(value)
    if type(value) ~= 'number' then return value or '' end
    texts[value] = texts[value] or digits(value)
    return texts[value]
  end
  local at = text(clock(given))
  return function(id, event, attempt, due, late, reason, consumer)
    redis.pcall('XADD', events, 'MAXLEN', '~', kept, '*', 'id', id, 'event', event, 'at', at, 'attempt', text(attempt),
      'due', text(due), 'late', text(late), 'consumer', consumer or '', 'reason', reason or '')
  end
end

-- Messages that were cancelled in flight become garbage when they leave unack.
local function forget_cancelled(ids, cancelled, attempts, errors, stats, note)
  redis.call('HDEL', errors, unpack(ids))
  count(stats, 'cancelled', #ids)
  for _, id in ipairs(note and ids or {}) do note(id, 'cancelled') end
  redis.call('SREM', cancelled, unpack(ids))
  redis.call('HDEL', attempts, unpack(ids)) -- last: the receipts are made of it
end

-- When a pause ends, ms, infinity for one that `resume` ends; nil when there is none, or it is over.
local function pause_end(since, till, now)
  till = tonumber(till or '') or math.huge
  if since and till > now then return till end
end

-- Since when a queue is paused, and until when, ms and as they are stored, false for a pause without an end; nothing when
-- it is not paused.
local function paused(meta, now)
  local since, till = unpack(redis.call('HMGET', meta, 'paused', 'paused_until'))
  if pause_end(since, till, now) then return since, till end
end

-- What a queue allows: how many messages may go now, infinity without limits, nil while it is paused; when the next may
-- that those leave, ms and after now, infinity where nobody can tell; and the rate's period, microseconds, if there is one.
--
-- `meta` holds the limits, `rate` a number for each hand-out and when that was, microseconds. Two hand-outs share a period
-- when less than it lies between them; either may be the earlier one, since the server's clock may be set back. `replaced`
-- holds deliveries whose messages were replaced while they ran: each keeps its place until its lease ends.
local function allowance(meta, unack, rate, replaced, now, micros)
  local since, till, most, ms, places =
    unpack(redis.call('HMGET', meta, 'paused', 'paused_until', 'rate', 'period_ms', 'concurrency'))
  local ends = pause_end(since, till, now)
  if ends then return nil, ends end
  local free, opens, period = math.huge, math.huge, nil
  if most and ms then
    period = ms * 1000
    local us = now * 1000 + micros
    local from, to = '(' .. digits(us - period), '(' .. digits(us + period)
    local count = redis.call('ZCOUNT', rate, from, to)
    local over = redis.call('ZCOUNT', rate, '-inf', string.sub(from, 2)) + math.max(0, count - most)
    local last = redis.call('ZRANGE', rate, over, over, 'WITHSCORES')[2]
    free, opens = math.max(0, most - count), ((count > 0 and last or us) + period) / 1000
  end
  if not places then return free, opens, period end
  places = places - redis.call('ZCARD', unack) - redis.call('ZCOUNT', replaced, '(' .. now, '+inf')
  if places > 0 then return math.min(free, places), opens, period end
  local next_end = redis.call('ZRANGE', replaced, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  return 0, tonumber(next_end or math.huge), period
end

-- Note `count` hand-outs of now, of which `number` is the last one's, against the rate, and forget as many as are over
-- and more. The key lives a minute longer than it must: it ends by the server's clock, whose time a test does not take.
local function spend(rate, period, us, number, count)
  local spent = {}
  for i = 1, count do spent[2 * i - 1], spent[2 * i] = us, number - count + i end
  redis.call('ZADD', rate, unpack(spent))
  local over = redis.call('ZCOUNT', rate, '-inf', us - period)
  if over > 0 then redis.call('ZREMRANGEBYRANK', rate, 0, math.min(over, 2 * count) - 1) end
  redis.call('PEXPIRE', rate, period / 1000 + 60000)
end

-- Let the rate count one hand-out of a moment, microseconds, no more: nothing came of it. Any of that moment will do.
local function give_back(rate, us)
  local spent = redis.call('ZRANGE', rate, us, us, 'BYSCORE', 'LIMIT', 0, 1)[1]
  if spent then redis.call('ZREM', rate, spent) end
end

-- Where the members of a key begin and end in a sorted set whose scores are all 0 and whose members are led by keys.
local function bounds(key)
  return '[' .. key .. '\0', '(' .. key .. '\1'
end

-- How many deliveries of a key run, or are on their way to run. Where that leaves no room, up to `most` of them are
-- looked at, others each time, and those that are gone are removed: their consumer was lost, or could not say it.
local function running(slots, unack, ready, attempts, replaced, key, limit, most, now, turn)
  local from, to = bounds(key)
  local count = redis.call('ZLEXCOUNT', slots, from, to)
  if count < limit then return count end
  local skip = turn % (math.max(0, count - most) + 1)
  for _, slot in ipairs(redis.call('ZRANGEBYLEX', slots, from, to, 'LIMIT', skip, most)) do
    local cut = string.find(slot, '\0', #key + 2, true) or #slot + 1
    local given, id = string.sub(slot, #key + 2, cut - 1), string.sub(slot, cut + 1)
    local lives = held(unack, attempts, id, given) or kept_until(replaced, id, given) > now
    if given == '' then lives = redis.call('ZSCORE', ready, id) or redis.call('ZSCORE', unack, id) end
    if not lives then
      count = count - redis.call('ZREM', slots, slot)
      redis.call('ZREM', replaced, given .. '\0' .. id)
    end
  end
  return count
end

-- Until when a message waits for others of its key at the longest, and when it was due, ms; nil when it does not wait.
local function waits(parked, id)
  local till, due = string.match(redis.call('HGET', parked, id) or '', '^(%d+) (%d+)$')
  if till then return tonumber(till), tonumber(due) end
end
