-- mend_groups: let groups count the members that they have, and forget groups an hour after their end.
--
-- Another program may have removed what `members` says. A message that its group counts, but that has lost its group,
-- becomes a member again if it exists. One page of groups is looked at. The next call continues; after the last page,
-- nothing happens for half a minute.
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
-- KEYS[9]  groups   hash  group -> see `group_of`; NUL -> where this sweep is: see `sweep_place`
-- KEYS[10] held     zset  id -> since when it waits for a group, ms
-- KEYS[11] rosters  hash  group -> the ids of all its members, one a line
-- ARGV[1]  now_ms   '' for the server's time
-- Returns  {1 if there is more to look at now, else 0; how many messages are members again; how many groups were mended}
-- Cost     O(n log m), about 200 groups, and of some of them all members, up to 1500
if redis.call('EXISTS', KEYS[9]) == 0 then return {0, 0, 0} end
probe()
local now, running, records, ids, over, spent = clock(ARGV[1]), {}, {}, {}, {}, 0
local came_back, mended = 0, 0
local cursor, last = sweep_place(KEYS[9], '\0', now)
if not cursor then return {0, 0, 0} end
redis.call('HDEL', KEYS[9], '\0') -- a server at its maxmemory refuses a script that begins with any other write
local page = redis.call('HSCAN', KEYS[9], cursor, 'COUNT', '200')
for i = 1, #page[2], 2 do
  local name, _, _, _, _, _, ended_at, _, id = page[2][i], group_of(page[2][i + 1])
  if ended_at == '0' and name > last then running[#running + 1], records[name] = name, page[2][i + 1] end
  if ended_at and ended_at ~= '0' and now - ended_at > 3600000 then over[#over + 1], ids[#ids + 1] = name, id end
end
table.sort(running)
local next_cursor, next_last = page[1], ''
for _, name in ipairs(running) do
  if spent >= 500 then next_cursor, next_last = cursor, last break end
  last = name
  local mode, total, left, dead, since, _, due, id = group_of(records[name])
  local size, there, lost = look_at_roster(KEYS[8], KEYS[11], name)
  local missing, again, found = tonumber(left) - there, {}, {}
  local zsets = {KEYS[1], KEYS[2], KEYS[3], KEYS[4], mode ~= 'c' and KEYS[5] or nil}
  if missing > 0 and #lost > 0 then found = existing(lost, KEYS[6], zsets) end
  for i, each in ipairs(lost) do
    if found[i] then again[#again + 1], again[#again + 2] = each, name end -- too many rather than the wrong ones
  end
  if #again > 0 then redis.call('HSET', KEYS[8], unpack(again)) end
  there, spent, came_back = there + #again / 2, spent + size, came_back + #again / 2
  if size > 0 and there ~= tonumber(left) then
    mended = mended + 1
    keep_group(KEYS[8], KEYS[9], KEYS[10], KEYS[1], KEYS[7], ARGV[1], name, there, mode, total, dead, since, due, id)
  end
end
local exist, forgotten = #ids > 0 and existing(ids, KEYS[6], {KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[10]}), {}
for i, name in ipairs(over) do
  if not exist[i] then forgotten[#forgotten + 1] = name end
end
if #forgotten > 0 then redis.call('HDEL', KEYS[9], unpack(forgotten)) end
if #forgotten > 0 then redis.call('HDEL', KEYS[11], unpack(forgotten)) end
return {note_sweep(KEYS[9], '\0', now, next_cursor, next_last), came_back, mended}
