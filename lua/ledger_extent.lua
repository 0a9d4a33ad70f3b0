-- ledger_extent: return where a ledger begins and ends, and what is needed to count its events.
--
-- The events exceed the entries by what the last packed entry says, less what the first one says of those before it: see
-- `pack` in the prelude. If the ledger begins with entries of one event, the first packed one is searched for.
--
-- Reads    events, meta
-- KEYS[1]  meta    hash    packed: by how many events have ever exceeded entries; the mark of the ledger
-- KEYS[2]  events  stream
-- ARGV[1]  from    where to continue the search for the first packed entry; '' to begin it
-- Returns  {the number of entries; the first one, empty if there is none; the last id that was given out, '0-0' before the
--          first; the number of all that were ever appended, -1 if the server does not count (Redis 6.2); by how many events
--          have ever exceeded entries; by how many before the first packed entry that is left, -1 if the search is to
--          continue; from where, '' at its end; the mark, '' if it has none}
-- Cost     O(1), or O(1,000) to search
if redis.call('EXISTS', KEYS[2]) == 0 then return {0, {}, '0-0', 0, 0, 0, '', ''} end
local known = redis.call('HMGET', KEYS[1], 'packed', 'mark') -- not HGET: Spark's readers may not
local stream, excess = {}, tonumber(known[1] or 0) or 0
local info = redis.call('XINFO', 'STREAM', KEYS[2])
for i = 1, #info, 2 do stream[info[i]] = info[i + 1] end
local before, from = 0, ''
if excess > 0 then before, from = exceeded(KEYS[1], KEYS[2], excess, ARGV[1] ~= '' and ARGV[1]) end
if before then from = '' end
return {stream.length, stream['first-entry'] or {}, stream['last-generated-id'], stream['entries-added'] or -1, excess, before or -1,
  from, known[2] or ''}
