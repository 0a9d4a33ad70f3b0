-- extent: return where a topic begins and ends, and how many records were ever appended to it.
--
-- Reads    stream, meta
-- KEYS[1]  stream  stream  record id -> its envelope
-- KEYS[2]  meta    hash    the mark of the stream
-- Returns  {the number of records; the first one's id, '' when there is none; the last id that was given out, '0-0'
--          before the first; the number of all that were ever appended, -1 if the server does not count (Redis 6.2); the
--          mark, '' if it has none}
-- Cost     O(1)
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, '', '0-0', 0, ''} end
local found = as_table(redis.call('XINFO', 'STREAM', KEYS[1]))
local first = found['first-entry'] and found['first-entry'][1] or ''
local mark = redis.pcall('HMGET', KEYS[2], 'mark')[1] or ''
return {found.length, first, found['last-generated-id'], found['entries-added'] or -1, mark}
