-- prelude: code that the scripts share. The loader puts the paragraphs that a script needs in front of it.

-- The time in whole milliseconds and the microseconds (0..999) past them: the server's, or one given by a test.
local function clock(given)
  if given ~= '' then
    local now = tonumber(given)
    return math.floor(now), math.min(999, math.floor((now % 1) * 1000 + 0.5))
  end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000), time[2] % 1000
end

-- A whole number, 0 or more, as text. Formatting with '%.0f', or leaving that to Redis, takes ten times as long; Redis
-- 7.2 makes 1.7e+12 of 1700000000000; '%d' alone holds only 32 bits on some machines.
local function digits(number)
  if number < 1000000 then return string.format('%d', number) end
  return string.format('%d%06d', number / 1000000, number % 1000000)
end

-- The time, ms, as the 13 digits at the start of each payload.
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

-- The lowest score of a sorted set and its member; infinity and nil if the set is empty.
local function head(zset)
  local first = redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')
  return tonumber(first[2] or math.huge), first[1]
end

-- When the holder of the timer wakes, ms (0 if nobody holds it), and the holder's name.
local function timer(key)
  local wakes, holder = string.match(redis.call('GET', key) or '', '^(%d+) (.*)$')
  return tonumber(wakes or 0), holder
end

-- Scripts have no rollback. So a script that moves messages fails here, before it changes anything, if the user may not
-- run one of its commands. Redis 6.2 cannot check this.
local function check_rights(...)
  for _, command in ipairs(redis.acl_check_cmd and {...} or {}) do
    if not redis.acl_check_cmd(command, KEYS[1]) then
      error({err = "NOPERM User has no permissions to run the '" .. string.lower(command) .. "' command"})
    end
  end
end

-- A counter that another program has overwritten counts as 0.
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

local MOST_TASKS = 100

-- Count handlers that ended, in a field of stats: bucket b of "took:b" took 2^(b-1) up to 2^b ms; "task:acked:NAME",
-- "task:failed:NAME" and "task:dead:NAME" are the runs of a task. "tasks" counts the names: beyond MOST_TASKS, new ones are
-- counted together as "other".
local function count_run(stats, field, by)
  local outcome, name = string.match(field, '^task:(%l+):(.*)$')
  if outcome and name ~= 'other' and not redis.call('HGET', stats, 'task:acked:' .. name) then
    if counted(stats, 'tasks') < MOST_TASKS then
      count(stats, 'tasks', 1)
      count(stats, 'task:acked:' .. name, 0)
    else
      field = 'task:' .. outcome .. ':other'
    end
  end
  count(stats, field, by)
end

-- Above this, bytes, an envelope is large. While a queue has never had one, claims read envelopes without asking for sizes.
local LARGE = 8192

-- An envelope with the time in front. A large one has 13 bytes in front, over which `date` writes the time once it is
-- stored: here, Lua would copy it.
local function dated(envelope, stamped)
  return #envelope > LARGE and envelope or stamped .. envelope
end

-- Write the time into a large envelope that was just stored; a user without the right to SETRANGE stores it again.
local function date(key, envelope, stamped)
  local done = redis.pcall('SETRANGE', key, 0, stamped)
  return type(done) == 'table' and redis.pcall('SET', key, stamped .. string.sub(envelope, 14)) or {ok = 'OK'}
end

-- Count messages whose envelopes were stored, the largest of this many bytes. If a queue's first messages came from a
-- version that does not note sizes, nothing is known of them.
local function count_stored(stats, event, n, largest)
  local sum = count(stats, event, n)
  if largest > LARGE or (event == 'sent' and sum == n) then count(stats, 'large', largest > LARGE and 1 or 0) end
end

-- Count how late messages were handed out: id, due, … Most of a claim have the same due time, which is read once.
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

-- For how long nobody may look for ended leases, ms. Consumers look every second, so after a longer gap the server was
-- away, or its clock was set.
local GAP = 3000

-- How long the holders of leases then have to renew them, ms: longer than a call of theirs can take, 5 s, with the half
-- second until the next one.
local GRACE = 6000

-- What `watch` says, ms: when a consumer last looked for ended leases, 0 if none is at work; and the last grace, which is
-- for leases that ended after its start, until its end.
local function watched(watch)
  local noted = redis.pcall('HGET', watch, 'looked') -- another program may have overwritten it
  local seen, from, till = string.match(type(noted) == 'string' and noted or '', '^(%d+) (%d+) (%d+)$')
  return tonumber(seen or 0), tonumber(from or 0), tonumber(till or 0)
end

-- Note a look for ended leases. Return the time, ms, by which a lease must have ended to be taken back, and how much is
-- left of a grace, ms.
--
-- A grace begins if consumers are at work, and nobody has looked for too long, the clock was set back, or the look comes
-- later than `by`, ms: then a frozen server has executed it late, or the clock was set forward. A look without a consumer
-- ends the watch if it finds a gap, so that programs that only receive wait for consumers that are gone only once.
--
-- Consumers of a topic look less often, and renew without asking: `rarely` and `slowly` are added to the gap and the grace.
--
-- A server at its maxmemory refuses a script that begins with an HSET, so this begins with an HDEL. If the note is refused,
-- there is no grace.
local function look(watch, now, by, is_consumer, rarely, slowly)
  local seen, from, till = watched(watch)
  local grace, left = GRACE + (slowly or 0), till - now
  if left > grace then left = 0 end -- it is from before the clock was set back
  local gap, late = now < seen or now > seen + GAP + (rarely or 0), by ~= '' and now > tonumber(by)
  local begins = seen > 0 and (gap or (late and left <= 0))
  if begins then from, till, left = math.min(now, gap and seen < till and from or seen), now + grace, grace end
  if begins or (is_consumer and now > seen + 200) then
    if is_consumer then seen = now elseif gap then seen = 0 end
    redis.pcall('HDEL', watch, 'looked')
    redis.pcall('HSET', watch, 'looked', digits(seen) .. ' ' .. digits(from) .. ' ' .. digits(till))
  end
  return left > 0 and math.min(now, from) or now, math.max(0, left)
end

-- When the first lease will count as ended, ms.
local function next_end(unack, watch, now)
  local first, _, from, till = math.ceil(head(unack)), watched(watch)
  return first > from and till <= now + GRACE and math.max(first, till) or first
end

-- Swap the members and scores of a list.
local function swapped(list)
  for i = 1, #list, 2 do list[i], list[i + 1] = list[i + 1], list[i] end
  return list
end

-- Add members to a sorted set: score, member, …
--
-- A server at its maxmemory refuses a script whose first write may need memory, so the first one here needs none. A
-- sorted set of up to 128 entries is a list: Redis searches it from the head for the place of each new entry, parsing
-- scores from text. A member of more than 64 bytes turns it into a tree, which is ten times as fast for hundreds of
-- entries.
local NOBODY = string.rep('\0', 65) -- never an id

local function put(zset, entries)
  local many = #entries > 32
  redis.call('ZREM', zset, NOBODY)
  if many then redis.call('ZADD', zset, 0, NOBODY) end
  redis.call('ZADD', zset, unpack(entries))
  if many then redis.call('ZREM', zset, NOBODY) end
end

-- Let a hash be a table before it is asked for many of its fields. One of up to 512 short entries is a list, which Redis
-- searches from the head for each field; a long name turns it into a table.
local function as_hashtable(hash, many)
  if many <= 32 then return end
  redis.call('HSET', hash, NOBODY, '')
  redis.call('HDEL', hash, NOBODY)
end

-- Move messages to another sorted set, with their new scores: score, id, … They are added there first; then `note`
-- records the rest of the move; last they are removed from where they were. A failure in between leaves them in two
-- places, never in none, and the next move out of either repairs that.
local function move(places, target, entries, note)
  put(target, entries)
  note()
  local ids = {}
  for i = 2, #entries, 2 do ids[#ids + 1] = entries[i] end
  for _, place in ipairs(places) do
    if place ~= target then redis.call('ZREM', place, unpack(ids)) end
  end
end

-- Make messages garbage: count them under the name of the event, and delete what is stored about them.
local function discard(places, garbage, known, stats, ids, now, note, event, reason)
  local since = {}
  for i, id in ipairs(ids) do since[2 * i - 1], since[2 * i] = now, id end
  move(places, garbage, since, function()
    for _, hash in ipairs(known) do redis.call('HDEL', hash, unpack(ids)) end
    count(stats, event, #ids)
    if note then note(ids, event, nil, nil, nil, reason) end
  end)
end

-- Which of some ids exist, since a structure holds them, and which are garbage. A payload alone is what a refused send has
-- left: a repeated send must not find it. After a failed script, an id may be in a structure and in garbage: it is removed
-- from garbage, to keep its payload.
local function existing(ids, garbage, zsets)
  local found, since = {}, redis.call('ZMSCORE', garbage, unpack(ids))
  for _, zset in ipairs(zsets) do
    for i, score in ipairs(redis.call('ZMSCORE', zset, unpack(ids))) do found[i] = found[i] or score end
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

-- One token is enough: the consumer that takes it looks at everything, and rings again if it leaves work behind. A server
-- at its maxmemory may refuse the token, and rights may be missing; that must not fail the script, which has changed
-- something, and the fallback poll makes up for it.
local function ring(bell)
  if redis.pcall('EXISTS', bell) == 0 then redis.pcall('LPUSH', bell, 1) end
end

-- The reply to the call of this name, if it was the last one. A name is 16 characters for a run of the caller, and 16 for
-- a rising number. If a call arrives after a later one, the caller already has its reply, and there is nothing to do.
local function answered(key, name)
  local last = name ~= '' and redis.call('GET', key)
  if not last or string.sub(last, 1, 16) ~= string.sub(name, 1, 16) then return nil end
  if string.sub(last, 1, 32) == name then return cjson.decode(string.sub(last, 33)) end
  if string.sub(last, 1, 32) > name then return {0, 0, {}, {}} end
end

-- Return the reply to a call; if the call has a name, also keep the reply, for a day: its caller repeats it after any
-- outage, and makes sure that the leases in it are still its own. A reply without messages is kept for a minute: a
-- repetition may get a new answer, but a copy of the call that a frozen server executes late may not.
local function answer(key, name, reply)
  local ms = #reply[3] > 0 and '86400000' or '60000'
  if name ~= '' then redis.pcall('SET', key, name .. cjson.encode(reply), 'PX', ms) end -- refused without memory
  return reply
end

-- What is stored about a message's earlier deliveries: how many counted, how many were handed back uncounted, how many of
-- the counted ones a requeue has set aside, and how many since then lost their lease. Nothing is stored while all are 0.
local FRESH = '0.0.0.0'

local function deliveries(stored) -- another program may have overwritten it
  local past, released, attempts_reset, lost = string.match(stored or '', '^(%d+)%.(%d+)%.(%d+)%.(%d+)$')
  return tonumber(past or 0), tonumber(released or 0), tonumber(attempts_reset or 0), tonumber(lost or 0)
end

local function keep_deliveries(attempts, id, ...)
  redis.call('HSET', attempts, id, table.concat({...}, '.'))
end

-- The retries of a replaced message start again; its attempt numbers keep rising.
local function start_anew(id, running, found, attempts)
  local stored = redis.call('HGET', attempts, id)
  if running == 0 and not (stored and found) then return end
  local past, released = deliveries(stored)
  keep_deliveries(attempts, id, past + running, released, past + running, 0)
end

-- The receipt of the running delivery. The fraction of a lease's end is the microsecond of its delivery: it distinguishes
-- the deliveries of two messages that had the same id one after the other. If another program has overwritten `stored`,
-- it is ignored.
local function receipt(lease_end, stored)
  local known = stored and string.match(stored, '^%d+%.%d+%.%d+%.%d+$') or FRESH
  return known .. string.format('-%d', (lease_end % 1) * 1000 + 0.5)
end

-- The microsecond of a delivery, made odd for a consumer, which can stop its handlers, and even for a program that calls
-- `receive`: so each receipt says whether its delivery can be stopped, and nothing more is stored.
local function marked(micros, is_consumer)
  return micros - micros % 2 + (is_consumer and 1 or 0)
end

local function can_stop(given)
  return string.find(given, '[13579]$') ~= nil
end

-- Forget deliveries whose messages were replaced while they ran, and whose leases have ended.
local function forget_ended(replaced, now)
  local over = redis.call('ZRANGE', replaced, '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)
  if #over > 0 then redis.call('ZREM', replaced, unpack(over)) end
end

-- Keep counting the running delivery of a replaced message against the queue's limits, until its lease ends or its
-- consumer settles it.
local function keep_place(replaced, meta, unack, attempts, id, now)
  local most, per_key = unpack(redis.call('HMGET', meta, 'concurrency', 'per_key'))
  if not (most or per_key) then return end
  local lease_end = redis.call('ZSCORE', unack, id)
  redis.call('ZADD', replaced, lease_end, receipt(lease_end, redis.call('HGET', attempts, id)) .. '\0' .. id)
  forget_ended(replaced, now)
end

-- When the lease ends, ms, of a delivery whose message was replaced while it ran; 0 for any other.
local function kept_until(replaced, id, given)
  return tonumber(redis.call('ZSCORE', replaced, given .. '\0' .. id) or 0)
end

local HAS_ENDED = ' was settled, or its lease ran out; nothing was changed'

-- Whether `given` is the receipt of the running delivery of `id`, and what is stored about the earlier ones.
local function held(unack, attempts, id, given)
  local lease_end = redis.call('ZSCORE', unack, id)
  local stored = redis.call('HGET', attempts, id)
  return lease_end and receipt(lease_end, stored) == given, stored
end

-- What the data of a queue may need that an older delayq would misread, in the order in which it came: the first version
-- that knows it. Its number and version are noted in meta's `needs` when it is first used. 1: a pause that ends by itself.
-- 2: a limit on the queue's length. 3: packed entries of the ledger. 4: results. 5: groups of messages.
local NEEDS = {'0.1.0', '0.1.0', '0.1.0', '0.1.0', '0.1.0'}

-- Fail if the queue needs something that this client lacks.
local function understood(meta, needs)
  local number, version = string.match(needs or '', '^(%d+) (%S+)$')
  if number and tonumber(number) > #NEEDS then
    local remedy = ' holds what this delayq would misread: use delayq ' .. version .. ' or newer'
    local refusal = redis.error_reply('NEEDS ' .. meta .. remedy)
    error(redis.acl_check_cmd and refusal or refusal.err, 0) -- Redis 6.2 raises only text
  end
end

-- Note that the queue needs a feature from now on. A delayq from before `needs` knows the first one; the others stop it by
-- the format.
local function need(meta, number)
  local needs = redis.call('HGET', meta, 'needs')
  understood(meta, needs)
  if tonumber(string.match(needs or '', '^%d+') or 0) >= number then return end
  redis.call('HSET', meta, 'needs', number .. ' ' .. NEEDS[number])
  if number > 1 then redis.call('HSET', meta, 'format', 2) end
end

-- How many more messages the queue takes, given the sorted sets that count, with a max_length as stored in meta: 1 to
-- 999,999,999. Infinity if another program has put anything else there.
local function room(max_length, ...)
  if #max_length > 9 or not string.match(max_length, '^[1-9]%d*$') then return math.huge end
  local free = tonumber(max_length)
  for _, zset in ipairs({...}) do free = free - redis.call('ZCARD', zset) end
  return free
end

-- What a field of a packed entry says of the events `from` to `to`: one value if all have the same, else a line for each.
local function column(values, from, to)
  if type(values) ~= 'table' then return values or '' end
  for i = from + 1, to do
    if values[i] ~= values[from] then return table.concat(values, '\n', from, to) end
  end
  return values[from]
end

-- How many events an entry of the ledger holds, and by how many the events exceeded the entries up to it, with it, since
-- the first packed one. Nothing for an entry of one event.
local function packed(entry)
  if entry and entry[2][1] == 'ids' then return string.match(entry[2][#entry[2]], '^(%d+) (%d+)$') end
end

-- By how many a ledger's events exceeded its entries before the first packed entry that is left, given by how many they
-- ever have; nil if up to a thousand entries of one event come first, and -1 if the user may not read them. Searched is
-- from `packed_from`, before which no packed entry is left. Return also from where to continue.
local function exceeded(meta, events, excess, from)
  from = from or redis.call('HMGET', meta, 'packed_from')[1] or '-' -- see `ledger_extent`
  for i = 0, 10 do
    local count = i == 0 and 1 or 100
    local page = redis.pcall('XRANGE', events, from, '+', 'COUNT', count)
    if page.err and from == '-' then return -1, from end
    if page.err then return exceeded(meta, events, excess, '-') end -- another program has overwritten where to begin
    for _, entry in ipairs(page) do
      local n, upto = packed(entry)
      if n then return upto - n + 1, entry[1] end
    end
    if #page < count then return excess, from end
    from = '(' .. page[count][1]
  end
  return nil, from
end

-- Drop the oldest entries of a ledger that may have packed ones, while it has `kept` events without them. Given is by how
-- many events have ever exceeded entries. Return false if the user may not do that.
local function shorten(meta, events, kept, excess)
  local most = tonumber(kept) or math.huge
  for _ = 1, 8 do
    local length = redis.call('XLEN', events)
    if length + excess <= most or length == 0 then return true end
    local page, from = redis.pcall('XRANGE', events, '-', '+', 'COUNT', 1), nil
    local n, upto = packed(page[1])
    local before = n and upto - n + 1
    if not n then
      before, from = exceeded(meta, events, excess)
      redis.pcall('HSET', meta, 'packed_from', from)
      if not before or before < 0 then return not before end
    end
    local over, drops = length + excess - before - most, 0
    if over > 0 and tonumber(n or 0) < 25 then page = redis.pcall('XRANGE', events, '-', '+', 'COUNT', 100) end
    for _, entry in ipairs(page) do
      over = over - (packed(entry) or 1)
      if over < 0 then break end
      drops = drops + 1
    end
    if drops == 0 then return true end
    if type(redis.pcall('XTRIM', events, 'MAXLEN', '=', length - drops)) == 'table' then return false end
  end
  return true
end

-- Append several events to the ledger as one entry; return its id, false if it was refused: the clock may have been set back.
--
-- Its fields are those of an entry of one event, with a line for each event where these differ, and without `late`. The
-- last one says what `packed` returns. Each of the n events has an id of its own, the last one that of the entry, and the
-- others those right before it. Ids of packed entries rise in steps, which leave room for entries in between.
local function pack(meta, events, kept, at, from, to, ids, event, attempts, dues, reason, consumer)
  local STEP = 10000
  local n, named = to - from + 1, cjson.encode(#ids > to - from + 1 and {unpack(ids, from, to)} or ids)
  local excess = redis.pcall('HINCRBY', meta, 'packed', n - 1)
  if type(excess) == 'table' then return false end -- a right is missing, or another program has overwritten it
  local id, done = digits(clock('')) .. '-' .. digits(excess * STEP), {}
  if excess % 256 >= n - 1 or shorten(meta, events, kept, excess) then
    done = redis.pcall('XADD', events, 'MAXLEN', '~', kept, id, 'ids', named, 'event', event, 'at', at, 'attempt',
      column(attempts, from, to), 'due', column(dues, from, to), 'consumer', consumer or '', 'reason', reason or '',
      'events', n .. ' ' .. digits(excess))
  end
  if type(done) == 'table' then redis.pcall('HINCRBY', meta, 'packed', 1 - n) end
  return type(done) ~= 'table' and done
end

-- Whether the ledger of a queue may have packed entries, by what the queue needs.
local function may_pack(needs)
  return tonumber(string.match(needs or '', '^%d+') or 0) >= 3
end

-- Note a transition of several messages, in packed entries if that is allowed, or one by one; `mark` is given the ids of the
-- former.
local function note_all(meta, events, kept, needs, now, note, mark, ids, event, attempts, dues, late, reason, consumer)
  local LEAST, MOST = 4, 100
  local done, packs = 0, #ids >= LEAST and may_pack(needs)
  while packs and #ids - done >= LEAST do
    local to = math.min(done + MOST, #ids)
    packs = mark(pack(meta, events, kept, digits(now), done + 1, to, ids, event, attempts, dues, reason, consumer))
    if packs then done = to end
  end
  for i = done + 1, #ids do
    local due = type(dues) == 'table' and dues[i] or dues
    local attempt = type(attempts) == 'table' and attempts[i] or attempts
    note(ids[i], event, attempt, due, late and now - due, reason, consumer)
  end
end

-- The mark of a stream, which tells it from a later one with its name: the id of its first entry, and when that was
-- appended. A script notes it in meta when it appends to a stream that is not there, so a mark ends with its stream.
--
-- Return a function for the id of what was appended, which notes the first one as a mark if the stream, of this length,
-- begins with it. A stream may be there without entries: they were trimmed, or a group has created it. Without the right to
-- see that, it counts as begun.
local function marking(meta, stream, length)
  local begins = length == 0 and (redis.call('EXISTS', stream) == 0 or not redis.pcall('HMGET', meta, 'mark')[1])
  local info = length == 0 and not begins and redis.pcall('XINFO', 'STREAM', stream) or {}
  for i = 1, #info, 2 do begins = begins or (info[i] == 'last-generated-id' and info[i + 1] == '0-0') end
  local time = begins and redis.call('TIME') -- here, as a script without the right fails before it changes anything
  return function(id)
    if time and type(id) == 'string' then
      redis.pcall('HSET', meta, 'mark', id .. ' ' .. time[1] .. '.' .. time[2])
      time = nil
    end
    return id
  end
end

-- Return a function that notes a transition in the queue's ledger, nil if the queue keeps none; what the queue needs, and
-- its max_length, both as stored. `given` is a time, as for `clock`. This fails, before anything is changed, if
-- the key is not a stream or (Redis 7.0 and newer) if the user may not append to it, or if what `sends` messages lacks
-- what the queue needs: a delivery can still be settled. Later, an entry that fails must not stop the script.
--
-- Each entry has the same fields, even empty ones, so that the stream stores their names once. The function also notes a
-- transition of several messages, given a list of their ids; `attempt` and `due` are then values or lists, and `late` is
-- true to note how late they are. Such a call appends packed entries if it may.
local function ledger(meta, events, given, sends)
  local kept, needs, max_length = unpack(redis.call('HMGET', meta, 'events', 'needs', 'max_length'))
  if sends and needs then understood(meta, needs) end
  if not kept then return nil, needs, max_length end
  local length, now = redis.call('XLEN', events), clock(given)
  if redis.acl_check_cmd and not redis.acl_check_cmd('XADD', events) then
    error({err = "NOPERM User has no permissions to run the 'xadd' command"})
  end
  local texts = {} -- Redis takes much longer to write numbers than Lua takes to look them up
  local function text(value)
    if type(value) ~= 'number' then return value or '' end
    texts[value] = texts[value] or digits(value)
    return texts[value]
  end
  local at, mark = text(now), marking(meta, events, length)
  local function note(id, event, attempt, due, late, reason, consumer)
    if type(id) == 'table' then
      return note_all(meta, events, kept, needs, now, note, mark, id, event, attempt, due, late, reason, consumer)
    end
    mark(redis.pcall('XADD', events, 'MAXLEN', '~', kept, '*', 'id', id, 'event', event, 'at', at, 'attempt', text(attempt),
      'due', text(due), 'late', text(late), 'consumer', consumer or '', 'reason', reason or ''))
  end
  if length % 64 == 0 and length > 0 and may_pack(needs) then
    shorten(meta, events, kept, counted(meta, 'packed'))
  end
  return note, needs, max_length
end

-- Whether messages may belong to groups, by what the queue needs. If so, this fails, before anything is changed, if a key
-- of the groups has another type, or if the user may not run what `ended` does. Other queues pay nothing for groups.
--
-- Redis 6.2 cannot say what a user may run, so it does it here, without effect; the first of these needs no memory.
local function grouped(members, groups, waiting, pending, needs)
  if not needs or (tonumber(string.match(needs, '^%d+')) or 0) < 5 then return false end
  redis.call('HGET', members, '')
  redis.call('HGET', groups, '')
  redis.call('ZMSCORE', waiting, '')
  head(pending)
  check_rights('HDEL', 'HSET', 'ZADD', 'ZREM')
  if not redis.acl_check_cmd then
    redis.call('HDEL', members, '')
    redis.call('HSET', members, '', '')
    redis.call('HDEL', members, '')
    redis.call('ZADD', waiting, 'XX', 0, NOBODY)
    redis.call('ZREM', waiting, NOBODY)
  end
  return true
end

-- A group as stored: 'w' if it waits for dead letters, 'c' if these count as ended, 'x' if it was cancelled; how many
-- members it has had, how many have not ended, and how many have ended by death; when it was sent, and when its last
-- member ended, ms, 0 before; and when its message is due then, as in `due_time`, and the id of that message, '' for none.
-- Nothing if it is not as delayq writes it.
local function group_of(stored)
  return string.match(stored or '', '^(%l) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
end

-- What `members` says of the message that waits for a group: the parts of the group's record that never change, its mode,
-- how many members it has had, when it was sent, ms, and when the message is due then; and its name. Nothing for others:
-- of a member it says the name alone. So a record that another program has deleted can be restored.
local function hold_of(stored)
  return string.match(stored or '', '^%z(%l) (%d+) (%d+) (%S+) (.*)$')
end

-- Which of some messages still wait for their groups, rather than later messages with their ids for other groups: a list
-- of {id, name of the group, when it was sent, …}.
local function awaiting(members, waiting, holds)
  local ids, found = {}, {}
  for i, hold in ipairs(holds) do ids[i] = hold[1] end
  if #ids == 0 then return found end
  local known, scores = redis.call('HMGET', members, unpack(ids)), redis.call('ZMSCORE', waiting, unpack(ids))
  for i, hold in ipairs(holds) do
    local _, _, _, _, name = hold_of(known[i])
    local right = not name or name == hold[2] -- another program may have removed or overwritten it
    if right and tonumber(scores[i] or '') == tonumber(hold[3]) then found[#found + 1] = hold end
  end
  return found
end

-- Make those of some messages due that wait for their groups, which have ended: {id, name, when sent, due}.
local function let_go(members, waiting, pending, bell, now, micros, holds)
  local entries, ids, first, before = {}, {}, math.huge, nil
  for i, hold in ipairs(awaiting(members, waiting, holds)) do
    local due = due_time(hold[4], now, micros)
    entries[2 * i - 1], entries[2 * i], ids[i] = due, hold[1], hold[1]
    first = math.min(first, due)
  end
  if #ids == 0 then return end
  before = head(pending)
  put(pending, entries)
  redis.call('ZREM', waiting, unpack(ids))
  if first < before then ring(bell) end
end

-- The lines of a text, or of none.
local function lines(text)
  local found = {}
  for line in string.gmatch(text or '', '[^\n]+') do found[#found + 1] = line end
  return found
end

-- Let groups know that messages have ended, if the queue is `grouped`. With `died`, the messages are dead letters now, which
-- end as members only if their groups do not wait for those. A member counts once, as it then leaves its group. The last
-- one makes the message due that waits for the group. `given` is a time, as for `clock`.
--
-- A member whose group is unknown, as another program has removed the record, stays one, for `sweep_groups`.
local function ended(members, groups, waiting, pending, bell, is_grouped, given, ids, died)
  if not is_grouped or #ids == 0 then return 0 end
  local of, names, gone, seen = {}, {}, {}, {}
  for i, name in ipairs(redis.call('HMGET', members, unpack(ids))) do
    local id = ids[i]
    if name and not seen[id] and string.find(name, '^%c') then
      gone[#gone + 1] = id -- it waited for a group, or was to be sent with one
    elseif name and not seen[id] then
      if not of[name] then of[name], names[#names + 1] = {}, name end
      table.insert(of[name], id)
    end
    seen[id] = true
  end
  local now, micros = clock(given)
  local records, holds = {}, {}
  as_hashtable(groups, #names)
  for i, stored in ipairs(#names > 0 and redis.call('HMGET', groups, unpack(names)) or {}) do
    local name, mode, total, left, dead, since, over, due, id = names[i], group_of(stored)
    if mode and not (mode == 'w' and died) then
      local n = #of[name]
      for _, each in ipairs(of[name]) do gone[#gone + 1] = each end
      left, dead = math.max(0, left - n), dead + (died and n or 0)
      if left == 0 and over == '0' then over = digits(now) end
      local numbers = {mode, total, digits(left), digits(dead), since, over, due, id}
      records[#records + 1], records[#records + 2] = name, table.concat(numbers, ' ')
      if left == 0 and id ~= '' then holds[#holds + 1] = {id, name, since, due} end
    end
  end
  if #gone > 0 then redis.call('HDEL', members, unpack(gone)) end
  if #records > 0 then redis.call('HSET', groups, unpack(records)) end
  let_go(members, waiting, pending, bell, now, micros, holds)
  return #gone
end

-- Where a sweep of groups is, as noted in a field of `groups` that no group can have: the cursor of its page, and after which
-- group of the page it continues. Nothing for half a minute after the last page.
local function sweep_place(groups, field, now)
  local cursor, since, last = string.match(redis.call('HGET', groups, field) or '', '^(%d*) (%d+) (.*)$')
  if cursor == '' and now >= tonumber(since) and now < since + 30000 then return nil end
  return cursor and cursor ~= '' and cursor or '0', last or ''
end

-- Note where a sweep of groups is; return 1 if it is not at its end, else 0.
local function note_sweep(groups, field, now, cursor, last)
  local ends = cursor == '0' and last == ''
  redis.call('HSET', groups, field, (ends and '' or cursor) .. ' ' .. digits(now) .. ' ' .. last)
  return ends and 0 or 1
end

-- How many messages a group was sent with, how many of them are members, and those that belong to no group.
local function look_at_roster(members, rosters, name)
  local roster, left, lost = lines(redis.call('HGET', rosters, name)), 0, {}
  for i, of in ipairs(#roster > 0 and redis.call('HMGET', members, unpack(roster)) or {}) do
    if of == name then left = left + 1 elseif not of then lost[#lost + 1] = roster[i] end
  end
  return #roster, left, lost
end

-- Store the record of a group with this many members left: the parts of `group_of`. If none is left, it has ended, and the
-- message becomes due that waits for it.
local function keep_group(members, groups, waiting, pending, bell, given, name, left, mode, total, dead, since, due, id)
  local now, micros = clock(given)
  local over = left == 0 and digits(now) or '0'
  redis.call('HSET', groups, name, table.concat({mode, total, digits(left), dead, since, over, due, id}, ' '))
  if left == 0 then let_go(members, waiting, pending, bell, now, micros, {{id, name, since, due}}) end
end

-- Messages that were cancelled in flight become garbage when they leave unack.
local function forget_cancelled(ids, cancelled, attempts, errors, stats, note, reason)
  redis.call('HDEL', errors, unpack(ids))
  count(stats, 'cancelled', #ids)
  if note then note(ids, 'cancelled', nil, nil, nil, reason) end
  redis.call('SREM', cancelled, unpack(ids))
  redis.call('HDEL', attempts, unpack(ids)) -- last: receipts are computed from it
end

-- A number of the configuration, as stored in meta: 1 to 999,999,999; nil if there is none, or if another program has put
-- anything else there.
local function setting(stored)
  local digits = string.match(stored or '', '^[1-9]%d*$')
  if digits and #digits < 10 then return tonumber(digits) end
end

-- When a pause ends, ms; infinity if only `resume` ends it; nil if there is none, or it is over.
local function pause_end(since, till, now)
  till = tonumber(till or '') or math.huge
  if since and till > now then return till end
end

-- Since when and until when a queue is paused, ms, as stored; the end is false for a pause without one. Nothing if it is
-- not paused.
local function paused(meta, now)
  local since, till = unpack(redis.call('HMGET', meta, 'paused', 'paused_until'))
  if pause_end(since, till, now) then return since, till end
end

-- What a queue allows: how many messages may be handed out now (infinity without limits, nil while it is paused); when
-- the next one after those may be, ms, later than now (infinity if unknown); and the rate's period, microseconds, if
-- there is one.
--
-- `meta` holds the limits, `rate` a number for each delivery and its time, microseconds. Two deliveries share a period if
-- they are less than a period apart; either may be the earlier one, since the server's clock may be set back. `replaced`
-- holds deliveries whose messages were replaced while they ran: each counts until its lease ends.
local function allowance(meta, unack, rate, replaced, now, micros)
  local since, till, most, ms, places, needs =
    unpack(redis.call('HMGET', meta, 'paused', 'paused_until', 'rate', 'period_ms', 'concurrency', 'needs'))
  if needs then understood(meta, needs) end
  local ends = pause_end(since, till, now)
  if ends then return nil, ends end
  most, ms, places = setting(most), setting(ms), setting(places)
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

-- Count `count` deliveries of now, the last with this `number`, against the rate, and remove up to twice as many old ones.
-- The key lives a minute longer than it must: it expires by the server's clock, and a test uses another one.
local function spend(rate, period, us, number, count)
  local spent = {}
  for i = 1, count do spent[2 * i - 1], spent[2 * i] = us, number - count + i end
  redis.call('ZADD', rate, unpack(spent))
  local over = redis.call('ZCOUNT', rate, '-inf', us - period)
  if over > 0 then redis.call('ZREMRANGEBYRANK', rate, 0, math.min(over, 2 * count) - 1) end
  redis.call('PEXPIRE', rate, digits(period / 1000 + 60000))
end

-- Take one delivery of a moment, microseconds, off the rate, because it was undone. Any delivery of that moment will do.
local function give_back(rate, us)
  local spent = redis.call('ZRANGE', rate, us, us, 'BYSCORE', 'LIMIT', 0, 1)[1]
  if spent then redis.call('ZREM', rate, spent) end
end

-- The range of a key's members in a sorted set whose scores are all 0 and whose members begin with keys.
local function bounds(key)
  return '[' .. key .. '\0', '(' .. key .. '\1'
end

-- How many deliveries of a key run, or are about to. If that leaves no room, up to `most` of them are checked, different
-- ones each time, and those that are gone are removed: their consumer was lost, or could not report their end.
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

-- Until when, at most, a message waits for others of its key, and when it was due, ms; nil if it does not wait.
local function waits(parked, id)
  local till, due = string.match(redis.call('HGET', parked, id) or '', '^(%d+) (%d+)$')
  if till then return tonumber(till), tonumber(due) end
end

-- Keep how the task of a message ended, or failed for now: a hash that expires. `envelope` is the stored message, or ''
-- if it stays where it is. From `at` on, or else from 1, `given` has: how long to keep the record, ms; the message's
-- token; the status; when the delivery was handed out, ms; its attempt number; its consumer, or ''; the value or the
-- error, as JSON. A record with another token is of an earlier message with this id. Waiting programs read the ids in
-- `finished`.
--
-- A server at its maxmemory refuses a script that begins with an HSET, so the first write here is another one.
local function keep_result(envelope, result, finished, id, now, given, at)
  local ms, token, status, started, attempt, consumer, text = unpack(given, at or 1, (at or 1) + 6)
  local known = redis.pcall('HMGET', result, 'token', 'started', 'consumers')
  local is_first = known.err or known[1] ~= token
  if is_first then redis.call('UNLINK', result) else redis.call('HDEL', result, '') end
  local consumers = not is_first and known[3] or ''
  if consumer ~= '' then consumers = string.sub(consumers .. consumer .. '\n', -4096) end
  redis.call('HSET', result, 'token', token, 'status', status, 'started', not is_first and known[2] or started,
    'attempted', started, 'attempts', attempt, 'consumers', consumers, status == 'done' and 'value' or 'error', text,
    'at', digits(now), 'message', envelope or '')
  redis.call('PEXPIRE', result, ms)
  if status ~= 'retry' then redis.pcall('XADD', finished, 'MAXLEN', '~', 1000, '*', 'id', id) end
end

-- Count an acked delivery and end it.
local function end_delivery(unack, attempts, stats, id)
  count(stats, 'acked', 1)
  redis.call('ZREM', unack, id)
  redis.call('HDEL', attempts, id)
end
