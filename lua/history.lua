-- history: search a part of the ledger, backwards, for the entries of one message.
--
-- It searches backwards so that entries appended meanwhile do not delay the end. An entry of several events is returned as a
-- whole, if the message may be among them; see `pack` in the prelude.
--
-- Reads    events
-- KEYS[1]  events  stream  the ledger; the first field of each entry is the id of a message, or the ids of several as JSON
-- ARGV[1]  id
-- ARGV[2]  from    the entry to begin with: '+' for the last one, '(' and an entry's id to continue before it
-- ARGV[3]  limit   1..500 events to look at, and those in the same entry as the last one
-- Returns  {the last entry that was looked at, '' at the beginning of the ledger; {{entry, {field, value, …}}, …}}, the
--          newest first
-- Cost     O(limit)
local FEW = 5 -- packed entries are large, so a call reads only a few of them at a time
local left, from, count, found = tonumber(ARGV[3]), ARGV[2], FEW, {}
local quoted = string.sub(cjson.encode({ARGV[1]}), 2, -2)
repeat
  count = math.min(count, left)
  local page, events = redis.call('XREVRANGE', KEYS[1], from, '-', 'COUNT', count), 0
  for _, entry in ipairs(page) do
    local name, ids, n = entry[2][1], entry[2][2], packed(entry)
    if (name == 'id' and ids == ARGV[1]) or (n and string.find(ids, quoted, 1, true)) then found[#found + 1] = entry end
    events = events + math.max(1, tonumber(n or 1))
  end
  if #page < count then return {'', found} end
  from, left, count = '(' .. page[#page][1], left - events, events == #page and left or FEW
until left <= 0
return {string.sub(from, 2), found}
