-- fitting: how many stored envelopes, one after another, fit into a number of bytes.
--
-- Reads    payload
-- KEYS[1..]  strings, the payload keys of 1..500 messages
-- ARGV[1]  most_bytes  1 or more
-- Returns  a number, 1 or more: the first envelope counts however large it is
-- Cost     O(n)
local most, bytes = tonumber(ARGV[1]), 0
for i = 1, #KEYS do
  local size = redis.pcall('STRLEN', KEYS[i])
  if type(size) ~= 'number' then -- another type, or no right to ask
    local stored = redis.pcall('GET', KEYS[i])
    size = type(stored) == 'string' and #stored or 0
  end
  bytes = bytes + size
  if bytes > most and i > 1 then return i - 1 end
end
return #KEYS
