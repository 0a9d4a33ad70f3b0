-- sweep_groups: find members that have ended without a script that knew it, and forget groups an hour after their end.
--
-- An older delayq may have settled a member, or another program may have removed it. One page of members or of groups is
-- looked at. The next call continues; after the last page, nothing happens for half a minute.
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
-- KEYS[9]  groups   hash  group -> see `group_of`; '' -> where the sweep is: m or g with a cursor, or r; since when, ms
-- KEYS[10] held     zset  id -> since when it waits for a group, ms
-- KEYS[11] rosters  hash  group -> the ids of all its members, one a line
-- ARGV[1]  now_ms   '' for the server's time
-- Returns  1 if there is more to look at now, else 0
-- Cost     O(n log m), about 200 messages
if redis.call('EXISTS', KEYS[9]) == 0 then return 0 end
probe()
local now, at, cursor, since = clock(ARGV[1]), string.match(redis.call('HGET', KEYS[9], '') or '', '^([mgr])(%d+) (%d+)$')
if at == 'r' and now >= tonumber(since) and now < since + 30000 then return 0 end
local hash = KEYS[9]
if at ~= 'g' then hash = KEYS[8] end
local page = redis.call('HSCAN', hash, at ~= 'r' and cursor or '0', 'COUNT', '200')
local ids, names, gone, died = {}, {}, {}, {}
for i = 1, #page[2], 2 do
  local _, _, _, _, _, over, _, id = group_of(page[2][i + 1])
  if at ~= 'g' then
    ids[#ids + 1] = page[2][i]
  elseif over and over ~= '0' and now - over > 3600000 then
    ids[#ids + 1], names[#names + 1] = id, page[2][i]
  end
end
local waits = #ids > 0 and existing(ids, KEYS[6], {KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[10]})
local dead = #ids > 0 and existing(ids, KEYS[6], {KEYS[5]})
for i, id in ipairs(ids) do
  if not waits[i] and not (dead[i] and at == 'g') then
    local list = at ~= 'g' and dead[i] and died or gone
    list[#list + 1] = names[i] or id
  end
end
if at ~= 'g' then
  ended(KEYS[8], KEYS[9], KEYS[10], KEYS[1], KEYS[7], true, ARGV[1], gone)
  ended(KEYS[8], KEYS[9], KEYS[10], KEYS[1], KEYS[7], true, ARGV[1], died, true)
elseif #gone > 0 then
  for key = 9, 11, 2 do redis.call('HDEL', KEYS[key], unpack(gone)) end
end
local phase = page[1] ~= '0' and (at == 'g' and 'g' or 'm') or at == 'g' and 'r' or 'g'
redis.call('HSET', KEYS[9], '', phase .. (phase == 'r' and '0' or page[1]) .. ' ' .. digits(now))
return phase == 'r' and 0 or 1
