-- prelude: what the scripts of topics share, behind what all scripts share.

-- Whether one record id is greater than another. Numbers of Lua are exact up to 2^53, which no clock and no counter of a
-- millisecond comes near; own ids are not allowed beyond it.
local function comes_after(id, other)
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  local other_ms, other_number = string.match(other, '^(%d+)-(%d+)$')
  if ms ~= other_ms then return tonumber(ms) > tonumber(other_ms) end
  return tonumber(number) > tonumber(other_number)
end

-- The error for a command that has found no group, or the error as it is.
local function no_group(reply, stream, group)
  local remedy = ': make it with topic.group(…), or delayq topic group create'
  for _, sign in ipairs({'NOGROUP', 'no such key', 'requires the key'}) do
    local is_it = string.find(tostring(reply.err), sign, 1, true)
    if is_it then return redis.error_reply('GROUP ' .. stream .. ' has no group ' .. group .. remedy) end
  end
  return reply
end

-- A list of names and values as a table.
local function as_table(list)
  local found = {}
  for i = 1, #list, 2 do found[list[i]] = list[i + 1] end
  return found
end

-- Let a consumer hold an unacked record; return whether it does. From Redis 7.0 on, XCLAIM clears one that was trimmed or
-- deleted: what its deliveries said goes with it.
local function hold(stream, failures, group, consumer, id, ...)
  if #redis.call('XCLAIM', stream, group, consumer, 0, id, ...) > 0 then return true end
  redis.call('HDEL', failures, id)
  return false
end

-- What is there of a list whose gaps are false, as an older server answers for records that are gone.
local function present(list)
  local kept = {}
  for _, each in ipairs(list) do if each then kept[#kept + 1] = each end end
  return kept
end

-- What a group was handed behind an id and has left unacked for so long, up to `limit` of it, and the id up to which was
-- looked, '' at the end. The server's own search goes through the whole list, at 0.1 us each: of a long one, a call looks
-- at a part.
local function stale(stream, group, idle, after, limit)
  local WALKED, PART = 20000, 1000
  local rows, found = redis.pcall('XPENDING', stream, group), {}
  if rows.err then return rows end
  if rows[1] <= WALKED then
    found = redis.call('XPENDING', stream, group, 'IDLE', idle, after, '+', limit)
    return found, #found == tonumber(limit) and found[#found][1] or ''
  end
  rows = redis.call('XPENDING', stream, group, after, '+', PART)
  for _, row in ipairs(rows) do
    if row[3] >= tonumber(idle) then found[#found + 1] = row end
    if #found == tonumber(limit) then return found, row[1] end
  end
  return found, #rows == PART and rows[PART][1] or ''
end

-- How much of records passes through a script, about: a megabyte takes it some milliseconds.
local RECORD_BYTES = 1000000

local function size_of(record)
  local size = 0
  for _, word in ipairs(record[2] or {}) do size = size + #word end
  return size
end

-- How many records to read next: as many of `left` as, by the mean of the `seen` ones, fit into the rest of the bytes, and
-- a few at the most, since large ones may come behind small ones.
local function next_count(bytes, seen, left)
  local FEW = 8
  return math.max(1, math.min(left, FEW, math.floor((RECORD_BYTES - bytes) * seen / math.max(1, bytes))))
end

-- Read up to `limit` records, `least` of them however large they are, from one bound to another, which comes before it if
-- `backwards`. Return them, and 1 when there may be more.
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

-- A dead letter whose record is no longer in the topic is appended again, for its group alone: the last field says so.
local FOR = 'delayq:group'

local function is_for_others(fields, group)
  return fields and fields[#fields - 1] == FOR and fields[#fields] ~= group
end

-- A record becomes a dead letter of a group; return its size, nil when it was gone.
--
-- A server at its maxmemory refuses a script's first write if that may take memory, and none that comes behind another:
-- what only moves records begins with a write that frees some, so that consumers go on.
-- A command takes no more than 8,000 words from Lua: of another program's entry that has more, the rest is left out, and
-- this is said. The topic has it still.
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

-- Drop records up to a bound: MAXLEN and a number, or MINID and an id. Return how many, and 1 when there may be more.
--
-- To free a megabyte takes the server up to 1.2 ms. A call drops 10,000 records, or some 4 megabytes. XTRIM takes whole
-- nodes, of one large record or up to a hundred small ones, and no node that has more records than LIMIT says: limits that
-- rise slowly take one node, whose first record was measured, and few others. What is left over within a node is dropped
-- if `exact`.
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

-- Cut a topic to its greatest length, '' for any, after records were appended: a call drops up to twice as many, and at
-- least a node of the stream, so that a topic which is far too long becomes shorter with each call.
local function cut(stream, most, exact, appended)
  if most == '' then return end
  local dropped = redis.call('XTRIM', stream, 'MAXLEN', '~', most, 'LIMIT', math.max(100, 2 * appended))
  if dropped == 0 then redis.call('XTRIM', stream, 'MAXLEN', '~', most, 'LIMIT', 10000) end -- larger nodes, of small records
  if exact == '1' and redis.call('XLEN', stream) <= most + 100 then redis.call('XTRIM', stream, 'MAXLEN', '=', most) end
end
