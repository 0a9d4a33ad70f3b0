-- delete_payloads: delete the payload keys of garbage.
--
-- An id that was sent again after the caller listed it has left garbage, and is kept. If another structure also holds an
-- id, after a script has failed, the id is removed from garbage.
--
-- State    garbage -> (gone)
-- KEYS[1]  garbage  zset
-- KEYS[2]  stats    hash
-- KEYS[3]  pending  zset
-- KEYS[4]  ready    zset
-- KEYS[5]  unack    zset
-- KEYS[6]  retry    zset
-- KEYS[7]  dead     zset
-- KEYS[8]  held     zset  id -> since when it waits for a group, ms
-- KEYS[9..]         strings, the payload keys of the ids, in the same order
-- ARGV[1..]         ids, 1..1000 of them
-- Returns  the number of ids that are gone
-- Cost     O(n log m)
local ids, keys, zsets = {}, {}, {}
for i = 3, 8 do zsets[#zsets + 1] = redis.call('EXISTS', KEYS[i]) == 1 and KEYS[i] or nil end
local lives, since = existing(ARGV, KEYS[1], zsets)
for i, id in ipairs(ARGV) do
  if since[i] and not lives[i] then ids[#ids + 1], keys[#keys + 1] = id, KEYS[i + 8] end
end
if #ids == 0 then return 0 end
redis.call('UNLINK', unpack(keys))
count(KEYS[2], 'collected', #ids)
return redis.call('ZREM', KEYS[1], unpack(ids))
