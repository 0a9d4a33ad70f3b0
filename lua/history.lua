-- history: search a part of the ledger, backwards, for the entries of one message.
--
-- It searches backwards so that entries appended meanwhile do not delay the end.
--
-- Reads    events
-- KEYS[1]  events  stream  the ledger; the first field of each entry is the id of a message
-- ARGV[1]  id
-- ARGV[2]  from    the entry to begin with: '+' for the last one, '(' and an entry's id to continue before it
-- ARGV[3]  limit   1..500 entries to look at
-- Returns  {the last entry that was looked at, '' at the beginning of the ledger; {{entry, {field, value, …}}, …}}, the
--          newest first
-- Cost     O(limit)
local entries, found = redis.call('XREVRANGE', KEYS[1], ARGV[2], '-', 'COUNT', ARGV[3]), {}
for _, entry in ipairs(entries) do
  if entry[2][1] == 'id' and entry[2][2] == ARGV[1] then found[#found + 1] = entry end
end
return {#entries == tonumber(ARGV[3]) and entries[#entries][1] or '', found}
