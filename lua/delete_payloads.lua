-- delete_payloads: delete the payload keys of garbage.
--
-- An id that was sent again after the caller listed it has left garbage, and is kept.
--
-- State    garbage -> (gone)
-- KEYS[1]  garbage  zset
-- KEYS[2]  stats    hash
-- KEYS[3..]         strings, the payload keys of the ids, in their order
-- ARGV[1..]         ids, 1..1000 of them
-- Returns  the number of ids that are gone
-- Cost     O(n log m)
local since = redis.call('ZMSCORE', KEYS[1], unpack(ARGV))
local ids, keys = {}, {}
for i, id in ipairs(ARGV) do
  if since[i] then ids[#ids + 1], keys[#keys + 1] = id, KEYS[i + 2] end
end
if #ids == 0 then return 0 end
redis.call('UNLINK', unpack(keys))
count(KEYS[2], 'collected', #ids)
return redis.call('ZREM', KEYS[1], unpack(ids))
