-- sweep_groups: find members that have ended without a script that knew it, and restore lost records of groups.
--
-- An older delayq may have settled a member, and another program may have removed it. One page of members is looked at. The
-- next call continues; after the last page, nothing happens for half a minute. A lost record is restored from what is
-- stored with the message that waits for the group.
--
-- State    held -> pending
-- KEYS[1]  pending  zset  id -> due, ms
-- KEYS[2]  ready    zset
-- KEYS[3]  unack    zset
-- KEYS[4]  retry    zset
-- KEYS[5]  dead     zset
-- KEYS[6]  garbage  zset
-- KEYS[7]  bell     list
-- KEYS[8]  members  hash  id -> the group that it belongs to
-- KEYS[9]  groups   hash  group -> see `group_of`; '' -> where this sweep is: see `sweep_place`
-- KEYS[10] held     zset  id -> since when it waits for a group, ms
-- KEYS[11] rosters  hash  group -> the ids of all its members, one a line
-- ARGV[1]  now_ms   '' for the server's time
-- Returns  {1 if there is more to look at now, else 0; how many members had ended; how many records were restored}
-- Cost     O(n log m), about 200 messages, and the members of lost groups, up to 1500
if redis.call('EXISTS', KEYS[8]) == 0 then return {0, 0, 0} end
probe()
local now = clock(ARGV[1])
local cursor = sweep_place(KEYS[9], '', now)
if not cursor then return {0, 0, 0} end
redis.call('HDEL', KEYS[9], '') -- a server at its maxmemory refuses a script that begins with any other write
local page, ids, of, lost, spent = redis.call('HSCAN', KEYS[8], cursor, 'COUNT', '200'), {}, {}, {}, 0
local restored = 0
for i = 1, #page[2], 2 do ids[#ids + 1], of[#of + 1] = page[2][i], page[2][i + 1] end
if #ids == 0 then return {note_sweep(KEYS[9], '', now, page[1], ''), 0, 0} end
as_hashtable(KEYS[9], #ids)
for i, id in ipairs(ids) do
  local mode, total, since, due, name = hold_of(of[i])
  if name and not group_of(redis.call('HGET', KEYS[9], name)) then
    lost[#lost + 1] = {id, name, since, due, mode, total}
  end
end
for _, hold in ipairs(awaiting(KEYS[8], KEYS[10], lost)) do
  local id, name, since, due, mode, total = unpack(hold)
  local size, left = 0, 0
  if spent < 500 then size, left = look_at_roster(KEYS[8], KEYS[11], name) else page[1] = cursor end -- the rest is next
  spent = spent + size
  if size > 0 then
    restored = restored + 1
    keep_group(KEYS[8], KEYS[9], KEYS[10], KEYS[1], KEYS[7], ARGV[1], name, left, mode, total, 0, since, due, id)
  end
end
local lives = existing(ids, KEYS[6], {KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[10]})
local dead, known = existing(ids, KEYS[6], {KEYS[5]}), redis.call('HMGET', KEYS[9], unpack(of))
local gone, died, unknown = {}, {}, {}
for i, id in ipairs(ids) do
  local list = dead[i] and died or (group_of(known[i]) or hold_of(of[i])) and gone or unknown
  if not lives[i] then list[#list + 1] = id end
end
local count = ended(KEYS[8], KEYS[9], KEYS[10], KEYS[1], KEYS[7], true, ARGV[1], gone)
count = count + ended(KEYS[8], KEYS[9], KEYS[10], KEYS[1], KEYS[7], true, ARGV[1], died, true) + #unknown
if #unknown > 0 then redis.call('HDEL', KEYS[8], unpack(unknown)) end
return {note_sweep(KEYS[9], '', now, page[1], ''), count, restored}
