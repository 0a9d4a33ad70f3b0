-- sample: store the queue's counts for this minute and for these ten minutes, unless they are stored already.
--
-- Samples of a minute are kept for an hour, those of ten minutes for a day, each under the time at which its period began.
-- Samples later than now are from before the server's clock was set back: they are removed.
--
-- State    (the queue itself; no message moves)
-- KEYS[1]  pending  zset
-- KEYS[2]  ready    zset
-- KEYS[3]  unack    zset
-- KEYS[4]  retry    zset
-- KEYS[5]  dead     zset
-- KEYS[6]  garbage  zset
-- KEYS[7]  held     zset  id -> since when it waits for a group, ms
-- KEYS[8]  stats    hash
-- KEYS[9]  meta     hash
-- KEYS[10] samples:minute  stream
-- KEYS[11] samples:ten  stream
-- ARGV[1]  now_ms   '' for the server's time
-- ARGV[2..]  the counters, in the order in which a sample has them
-- Returns  how many samples were added, 0 to 2
-- Cost     O(log n), and O(samples) after the clock was set back
local now, added, counted = clock(ARGV[1]), 0, nil
local function counts()
  local sizes, heads, counters, times, values = {}, {}, {}, {}, {}
  for i = 1, 7 do
    sizes[i] = redis.call('ZCARD', KEYS[i])
    heads[i] = redis.call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2] or ''
  end
  local flat = redis.call('HGETALL', KEYS[8])
  for i = 1, #flat, 2 do
    local kind, bucket = string.match(flat[i], '^(%l)%l+:(%d+)$') -- late: and took:
    if kind then times[#times + 1] = kind .. bucket .. ':' .. flat[i + 1] end
    values[flat[i]] = flat[i + 1]
  end
  for i = 2, #ARGV do counters[i - 1] = values[ARGV[i]] or 0 end
  local due = {redis.call('ZCOUNT', KEYS[1], '-inf', now), redis.call('ZCOUNT', KEYS[4], '-inf', now)}
  local parts = {sizes, heads, counters, times, due}
  for i, part in ipairs(parts) do parts[i] = table.concat(part, ' ') end
  return string.format('%.0f;%s;', now, paused(KEYS[9], now) or '') .. table.concat(parts, ';')
end
for i, period in ipairs({60000, 600000}) do
  local samples, at = KEYS[9 + i], digits(now - now % period) .. '-0'
  local last = redis.call('XREVRANGE', samples, '+', '-', 'COUNT', 1)[1]
  if last and tonumber(string.match(last[1], '%d+')) > now then
    local kept = redis.call('XREVRANGE', samples, at, '-')
    redis.call('UNLINK', samples)
    for n = #kept, 1, -1 do redis.call('XADD', samples, kept[n][1], unpack(kept[n][2])) end
    last = kept[1]
  end
  if not last or last[1] ~= at then
    counted = counted or counts()
    redis.call('XADD', samples, 'MAXLEN', period == 60000 and 61 or 145, at, 's', counted)
    added = added + 1
  end
end
return added
