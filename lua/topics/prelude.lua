-- prelude: code that the scripts of topics share, beside what all scripts share.

-- Whether one record id is greater than another. Lua's numbers are exact up to 2^53. No clock, and no counter within a
-- millisecond, comes near that; own ids may not exceed it.
local function comes_after(id, other)
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  local other_ms, other_number = string.match(other, '^(%d+)-(%d+)$')
  if ms ~= other_ms then return tonumber(ms) > tonumber(other_ms) end
  return tonumber(number) > tonumber(other_number)
end

-- The error GROUP if a command has found no group; any other error as it is.
local function no_group(reply, stream, group)
  local remedy = ': create it with topic.group(…), or delayq topic group create'
  for _, sign in ipairs({'NOGROUP', 'no such key', 'requires the key'}) do
    local is_it = string.find(tostring(reply.err), sign, 1, true)
    if is_it then return redis.error_reply('GROUP ' .. stream .. ' has no group ' .. group .. remedy) end
  end
  return reply
end

-- Redis 6.2 at its maxmemory refuses every XGROUP, unless the script has written before: this changes nothing.
local function acknowledge_nothing(stream, group)
  redis.call('XACK', stream, group, '0-0')
end

-- A list of names and values as a table.
local function as_table(list)
  local found = {}
  for i = 1, #list, 2 do found[list[i]] = list[i + 1] end
  return found
end

-- Let a consumer hold an unacked record; return whether it does. From Redis 7.0 on, XCLAIM removes a record that was
-- trimmed or deleted from the list: then the errors of its deliveries go, too.
local function hold(stream, failures, group, consumer, id, ...)
  if #redis.call('XCLAIM', stream, group, consumer, 0, id, ...) > 0 then return true end
  redis.call('HDEL', failures, id)
  return false
end

-- The mark of a group's creation, '' if another program has created the group. A group that begins again with the first
-- record has another mark: what its consumers held before may differ from the later records with the same ids.
local function mark_of(watch)
  return redis.call('HGET', watch, 'made') or ''
end

-- Whether records that were handed out under a mark, '*' for an unknown one, are those that the group has now.
local function has_mark(watch, mark)
  local known = mark_of(watch)
  return mark == '*' or mark == known
end

local function mark_anew(watch)
  local time = redis.call('TIME')
  redis.call('HSET', watch, 'made', time[1] .. '.' .. time[2])
end

-- How often a record that a consumer holds was delivered; nil if it does not hold it, or was handed it under another mark
-- of the group; an error table without the group.
--
-- A group that was created again has lost its unacked list. So for some time, consumers bring back what they hold, as
-- delivered once, unless another one has it.
local function deliveries_of(stream, watch, group, consumer, id, mark)
  local found = redis.pcall('XPENDING', stream, group, id, id, 1)
  if found.err then return no_group(found, stream, group) end
  if not has_mark(watch, mark) then return nil end
  if found[1] then return found[1][2] == consumer and found[1][4] or nil end
  local till = redis.call('HGET', watch, 'regained')
  if not till or clock('') > tonumber(till) then return nil end
  return #redis.call('XCLAIM', stream, group, consumer, 0, id, 'FORCE', 'JUSTID') > 0 and 1 or nil
end

-- Wake idle readers: the topic's waking, the reason, and a value.
local function wake(waking, reason, value)
  redis.call('XADD', waking, 'MAXLEN', 1, '*', reason, value)
end

-- A list without its gaps, which are false: older servers reply so for records that are gone.
local function present(list)
  local kept = {}
  for _, each in ipairs(list) do if each then kept[#kept + 1] = each end end
  return kept
end

-- Up to `limit` records after an id that a group, or the consumer behind the limit, has left unacked for at least `idle`,
-- ms, and the last id searched, '' at the end. The server's own search takes 0.1 us for each record of the list, so a
-- call searches a part of a long one.
local function stale(stream, group, idle, after, ...)
  local WALKED, PART, limit = 20000, 1000, ...
  if idle == '0' then
    local page = redis.pcall('XPENDING', stream, group, after, '+', ...)
    return page, not page.err and #page == tonumber(limit) and page[#page][1] or ''
  end
  local rows, found = redis.pcall('XPENDING', stream, group), {}
  if rows.err then return rows end
  if rows[1] <= WALKED then
    found = redis.call('XPENDING', stream, group, 'IDLE', idle, after, '+', ...)
    return found, #found == tonumber(limit) and found[#found][1] or ''
  end
  rows = redis.call('XPENDING', stream, group, after, '+', PART, select(2, ...))
  for _, row in ipairs(rows) do
    if row[3] >= tonumber(idle) then found[#found + 1] = row end
    if #found == tonumber(limit) then return found, row[1] end
  end
  return found, #rows == PART and rows[PART][1] or ''
end

-- Look for records to take over that were idle for some time, ms. Return how long they must have been idle: longer during
-- a grace; the time, ms; and how much is left of the grace, ms. Consumers look after half of that time, and renew after a
-- third.
local function look_at(watch, idle, by, is_member)
  local now = clock('')
  local ended, grace = look(watch, now, by, is_member, idle / 2, math.ceil(idle / 3))
  return digits(idle + now - ended), now, grace
end

-- About how many bytes of records pass through one call of a script: a megabyte takes some milliseconds.
local RECORD_BYTES = 1000000

local function size_of(record)
  local size = 0
  for _, word in ipairs(record[2] or {}) do size = size + #word end
  return size
end

-- How many of `left` records to read next: as many as fit into the remaining bytes if they are as large as the `seen`
-- ones on average, but only a few, since large ones may follow small ones.
local function next_count(bytes, seen, left)
  local FEW = 8
  return math.max(1, math.min(left, FEW, math.floor((RECORD_BYTES - bytes) * seen / math.max(1, bytes))))
end

-- Read up to `limit` records from one bound to another, which comes before it if `backwards`. `least` of them are read
-- however large they are. Return them, and 1 if there may be more.
local function read(stream, from, to, limit, least, backwards)
  local found, bytes, count = {}, 0, 1
  repeat
    local page = backwards and redis.call('XREVRANGE', stream, from, to, 'COUNT', count)
      or redis.call('XRANGE', stream, from, to, 'COUNT', count)
    for _, record in ipairs(page) do found[#found + 1], bytes = record, bytes + size_of(record) end
    if #page < count then return found, 0 end
    from = '(' .. page[#page][1]
    count = next_count(bytes, #found, limit - #found)
  until #found >= limit or (bytes >= RECORD_BYTES and #found >= least)
  return found, 1
end

-- A dead letter whose record has left the topic is appended again, for its group alone: the last field names it.
local FOR = 'delayq:group'

local function is_for_others(fields, group)
  return fields and fields[#fields - 1] == FOR and fields[#fields] ~= group
end

-- Make a record a dead letter of a group; return its size, nil if it was gone.
--
-- A server at its maxmemory refuses a script's first write if that may need memory, but no later one. So scripts that
-- only move records begin with a write that frees memory, and consumers can continue. A command takes at most 8,000 words
-- from Lua. If another program's entry has more, the rest is left out, and the dead letter says so. The topic still has
-- it.
local function bury(stream, buried, failures, group, id, consumer, deliveries, reason)
  local MOST = 7900
  local record = redis.call('XRANGE', stream, id, id)[1]
  local said = redis.call('HGET', failures, id) or ''
  redis.call('HDEL', failures, id)
  if record then
    local fields = record[2]
    if #fields > MOST then said = said .. (#fields - MOST) / 2 .. ' of its fields are left out here\n' end
    redis.call('XADD', buried, '*', 'of', id, 'consumer', consumer, 'deliveries', deliveries, 'reason', reason, 'errors',
      said, unpack(fields, 1, math.min(#fields, MOST)))
  end
  redis.call('XACK', stream, group, id)
  return record and size_of(record)
end

-- Drop records up to a bound: MAXLEN and a number, or MINID and an id. Return how many, and 1 if there may be more.
--
-- Freeing a megabyte takes the server up to 1.2 ms. A call drops about 10,000 records, or 4 megabytes. XTRIM drops whole
-- nodes, of one large record or up to a hundred small ones, but none with more records than LIMIT. Limits that rise
-- slowly drop one node, whose first record was measured, and few others. The rest within a node is dropped if `exact`.
local function drop(stream, how, bound, exact)
  local MOST, FREED = 10000, 4000000
  local dropped, freed = 0, 0
  repeat
    local oldest, count = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1], 0
    for _, limit in ipairs({1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 100, MOST}) do
      if count == 0 then count = redis.call('XTRIM', stream, how, '~', bound, 'LIMIT', limit) end
    end
    if count == 0 then return exact and dropped + redis.call('XTRIM', stream, how, '=', bound) or dropped, 0 end
    dropped, freed = dropped + count, freed + count * size_of(oldest)
  until dropped >= MOST or freed >= FREED
  return dropped, 1
end

-- Cut a topic to its maximum length, '' for none, after records were appended. A call drops up to twice as many, and at
-- least a node of the stream, so that a topic that is far too long becomes shorter with each call.
local function cut(stream, most, exact, appended)
  if most == '' then return end
  local dropped = redis.call('XTRIM', stream, 'MAXLEN', '~', most, 'LIMIT', math.max(100, 2 * appended))
  if dropped == 0 then redis.call('XTRIM', stream, 'MAXLEN', '~', most, 'LIMIT', 10000) end -- larger nodes, of small records
  if exact == '1' and redis.call('XLEN', stream) <= most + 100 then redis.call('XTRIM', stream, 'MAXLEN', '=', most) end
end
