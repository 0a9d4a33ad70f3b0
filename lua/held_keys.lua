-- held_keys: list the keys that hold slots, or whose messages wait for others to end.
--
-- Reads    slots or waiting
-- KEYS[1]  index  zset  of either; its members begin with a key and a zero byte
-- ARGV[1]  after  the key to continue after; '' to start at the first
-- ARGV[2]  limit  1..100 keys
-- Returns  {key, …} in the order of their bytes
-- Cost     O(limit log n)
local from, keys = ARGV[1] == '' and '-' or '[' .. ARGV[1] .. '\1', {}
while #keys < tonumber(ARGV[2]) do
  local first = redis.call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, 1)[1]
  if not first then break end
  keys[#keys + 1] = string.sub(first, 1, (string.find(first, '\0', 1, true) or #first + 1) - 1)
  from = '[' .. keys[#keys] .. '\1'
end
return keys
