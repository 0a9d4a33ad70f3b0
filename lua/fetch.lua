-- fetch: read stored envelopes, one after another, until the next one exceeds a number of bytes.
--
-- For small envelopes only: a megabyte that passes through Lua holds the server up for some milliseconds. `fitting` and
-- an MGET read large ones.
--
-- Reads    payload
-- KEYS[1..]  strings, the payload keys of 1..500 messages
-- ARGV[1]  most_bytes  1 or more
-- ARGV[2]  least       0..500, how many to read however large they are
-- Returns  the envelopes of the first messages, in order; nil where there is none, or a key of another type
-- Cost     O(n)
local most, least, found, bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), {}, 0
for i = 1, #KEYS do
  local stored = redis.pcall('GET', KEYS[i])
  if type(stored) == 'table' then
    if not string.find(stored.err, 'WRONGTYPE', 1, true) then return stored end -- no right to read it: it is not gone
    stored = false
  end
  bytes = bytes + #(stored or '')
  if bytes > most and i > least then break end
  found[i] = stored
end
return found
