-- group: what is known about a group of messages, at one instant.
--
-- Reads    groups, rosters, members, dead
-- KEYS[1]  groups   hash  group -> see `group_of`
-- KEYS[2]  rosters  hash  group -> the ids of all its members, one a line
-- KEYS[3]  members  hash  id -> the group that it belongs to
-- KEYS[4]  dead     zset
-- ARGV[1]  name     of the group
-- Returns  nil if there is none, or {the group as stored; the ids of all its members; those of them that are still its
--          members; how many of these are dead}
-- Cost     O(n), up to 1000 members
local name = ARGV[1]
local stored, packed = redis.call('HGET', KEYS[1], name), redis.call('HGET', KEYS[2], name)
if not group_of(stored) then return false end
local roster, left, dead = lines(packed), {}, 0
if #roster > 0 then
  local names, died = redis.call('HMGET', KEYS[3], unpack(roster)), redis.call('ZMSCORE', KEYS[4], unpack(roster))
  for i, id in ipairs(roster) do
    if names[i] == name then left[#left + 1] = id end
    if names[i] == name and died[i] then dead = dead + 1 end
  end
end
return {stored, roster, left, dead}
