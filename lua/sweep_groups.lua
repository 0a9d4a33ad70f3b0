-- sweep_groups: find members that ended without a script that knew it, mend groups, and forget them an hour after their end.
--
-- An older delayq may have settled a member, and another program may have removed it, or what is known of its group. One
-- page is looked at: of members, and then of groups. The next call continues; after the last page, nothing happens for
-- half a minute. A lost record of a group is restored from what is stored with the message that waits for it. A message
-- that its group counts as a member, but that has lost its group, becomes a member again if it exists.
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
-- KEYS[9]  groups   hash  group -> see `group_of`; '' -> where the sweep is: m or g with a cursor, or r; since when, ms; and
--                         after which group of the page it continues
-- KEYS[10] held     zset  id -> since when it waits for a group, ms
-- KEYS[11] rosters  hash  group -> the ids of all its members, one a line
-- ARGV[1]  now_ms   '' for the server's time
-- Returns  1 if there is more to look at now, else 0
-- Cost     O(n log m), about 200 messages, and groups of up to 1500 members
if redis.call('EXISTS', KEYS[8], KEYS[9], KEYS[11]) == 0 then return 0 end
probe()
local now, micros = clock(ARGV[1])
local at, cursor, since, last = string.match(redis.call('HGET', KEYS[9], '') or '', '^([mgr])(%d+) (%d+) ?(.*)$')
if at == 'r' and now >= tonumber(since) and now < since + 30000 then return 0 end
if at ~= 'g' then at, cursor, last = 'm', at == 'm' and cursor or '0', '' end
redis.call('HDEL', KEYS[9], '') -- a server at its maxmemory refuses a script that begins with any other write
local page = redis.call('HSCAN', at == 'g' and KEYS[9] or KEYS[8], cursor, 'COUNT', '200')
local keys, values, spent, waiting = {}, {}, 0, {KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[10]}
for i = 1, #page[2], 2 do keys[#keys + 1], values[#values + 1] = page[2][i], page[2][i + 1] end
local function end_of(ids, died)
  ended(KEYS[8], KEYS[9], KEYS[10], KEYS[1], KEYS[7], true, ARGV[1], ids, died)
end
local function keep(name, mode, total, left, dead, sent, due, id)
  local over = left == 0 and digits(now) or '0'
  redis.call('HSET', KEYS[9], name, table.concat({mode, total, left, dead, sent, over, due, id}, ' '))
  if left == 0 then let_go(KEYS[8], KEYS[10], KEYS[1], KEYS[7], now, micros, {{id, name, sent, due}}) end
end
local function roster_of(name) -- how many it names, how many of these are members, and those that belong to no group
  local roster, left, lost = lines(redis.call('HGET', KEYS[11], name)), 0, {}
  for i, of in ipairs(#roster > 0 and redis.call('HMGET', KEYS[8], unpack(roster)) or {}) do
    if of == name then left = left + 1 elseif not of then lost[#lost + 1] = roster[i] end
  end
  spent = spent + #roster
  return #roster, left, lost
end
local function mend(name, mode, total, left, dead, sent, due, id)
  local size, there, lost = roster_of(name)
  local missing, again = tonumber(left) - there, {}
  local zsets = {KEYS[1], KEYS[2], KEYS[3], KEYS[4], mode ~= 'c' and KEYS[5] or nil}
  local found = missing > 0 and #lost > 0 and existing(lost, KEYS[6], zsets) or {}
  for i, each in ipairs(lost) do
    if found[i] and #again < 2 * missing then again[#again + 1], again[#again + 2] = each, name end
  end
  if #again > 0 then redis.call('HSET', KEYS[8], unpack(again)) end
  there = there + #again / 2
  if size > 0 and there ~= tonumber(left) then keep(name, mode, total, there, dead, sent, due, id) end
end
local is_done, from = true, last
if at == 'm' then
  local holds, names = {}, {}
  for i, value in ipairs(values) do
    local mode, total, sent, due, name = hold_of(value)
    if name then holds[#holds + 1], names[#names + 1] = {keys[i], name, sent, due, mode, total}, name end
  end
  local known = #names > 0 and redis.call('HMGET', KEYS[9], unpack(names)) or {}
  for i = #holds, 1, -1 do
    if group_of(known[i]) then table.remove(holds, i) end
  end
  for _, hold in ipairs(awaiting(KEYS[8], KEYS[10], holds)) do
    local id, name, sent, due, mode, total = unpack(hold)
    if spent >= 500 then is_done = false break end
    local size, left = roster_of(name)
    if size > 0 then keep(name, mode, total, left, 0, sent, due, id) end
  end
  local living = #keys > 0 and existing(keys, KEYS[6], {KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[10]}) or {}
  local died = #keys > 0 and existing(keys, KEYS[6], {KEYS[5]}) or {}
  local gone, dead, unknown = {}, {}, {}
  local groups = #keys > 0 and redis.call('HMGET', KEYS[9], unpack(values)) or {}
  for i, id in ipairs(keys) do
    if not living[i] then
      local list = died[i] and dead or (group_of(groups[i]) or hold_of(values[i])) and gone or unknown
      list[#list + 1] = id
    end
  end
  end_of(gone)
  end_of(dead, true)
  if #unknown > 0 then redis.call('HDEL', KEYS[8], unpack(unknown)) end
else
  local ids, names, running, records = {}, {}, {}, {}
  for i, name in ipairs(keys) do
    local _, _, _, _, _, over, _, id = group_of(values[i])
    if over == '0' then
      running[#running + 1], records[name] = name, values[i]
    elseif over and now - over > 3600000 then
      ids[#ids + 1], names[#names + 1] = id, name
    end
  end
  local there, forgotten = #ids > 0 and existing(ids, KEYS[6], {KEYS[5], unpack(waiting)}) or {}, {}
  for i, name in ipairs(names) do
    if not there[i] then forgotten[#forgotten + 1] = name end
  end
  for key = 9, #forgotten > 0 and 11 or 0, 2 do redis.call('HDEL', KEYS[key], unpack(forgotten)) end
  table.sort(running)
  for _, name in ipairs(running) do
    if name > last and spent >= 500 then is_done = false break end
    if name > last then
      from = name
      local mode, total, left, dead, sent, _, due, id = group_of(records[name])
      mend(name, mode, total, left, dead, sent, due, id)
    end
  end
end
local phase = at
if is_done and page[1] == '0' then phase = at == 'm' and 'g' or 'r' end
if is_done then cursor, from = page[1], '' end
redis.call('HSET', KEYS[9], '', table.concat({phase .. cursor, digits(now), from}, ' '))
return phase == 'r' and 0 or 1
