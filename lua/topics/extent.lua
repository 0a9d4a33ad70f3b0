-- extent: tell from where to where a topic reaches, and how many records were ever appended to it.
--
-- Reads    stream
-- KEYS[1]  stream  stream  record id -> its envelope
-- Returns  {the number of records; the first one's id, '' when there is none; the last id that was given out, '0-0'
--          before the first; the number of all that were ever appended, -1 where the server does not count (Redis 6.2)}
-- Cost     O(1)
local found = { length = 0, ['last-generated-id'] = '0-0', ['entries-added'] = 0 }
if redis.call('EXISTS', KEYS[1]) == 1 then
  found['entries-added'] = -1
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #info, 2 do found[info[i]] = info[i + 1] end
end
local first = found['first-entry'] and found['first-entry'][1] or ''
return {found.length, first, found['last-generated-id'], found['entries-added']}
