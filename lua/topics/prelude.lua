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
  if not string.find(tostring(reply.err), 'NOGROUP', 1, true) then return reply end
  return redis.error_reply('GROUP ' .. stream .. ' has no group ' .. group .. ': make it with topic.group(…)')
end

-- What is there of a list whose gaps are false, as an older server answers for records that are gone.
local function present(list)
  local kept = {}
  for _, each in ipairs(list) do if each then kept[#kept + 1] = each end end
  return kept
end

-- A record becomes a dead letter of a group; return whether it was still there.
local function bury(stream, buried, failures, group, id, consumer, deliveries, reason)
  local record = redis.call('XRANGE', stream, id, id)[1]
  if record then
    local said = redis.call('HGET', failures, id) or ''
    redis.call('XADD', buried, '*', 'of', id, 'consumer', consumer, 'deliveries', deliveries, 'reason', reason, 'errors',
      said, unpack(record[2]))
  end
  redis.call('HDEL', failures, id)
  redis.call('XACK', stream, group, id)
  return record ~= nil
end

-- Cut a topic to so many records, '' for any number: to no more when `exact` is '1', else to whole nodes of the stream,
-- which is much cheaper. A call cuts at most 10,000 records: the next one goes on where it has stopped.
local function cut(stream, most, exact)
  if most == '' then return end
  if exact == '1' and redis.call('XLEN', stream) <= tonumber(most) + 10000 then
    redis.call('XTRIM', stream, 'MAXLEN', '=', most)
  else
    redis.call('XTRIM', stream, 'MAXLEN', '~', most, 'LIMIT', 10000)
  end
end
