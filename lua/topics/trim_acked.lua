-- trim_acked: drop the records that every group of a topic has acknowledged.
--
-- A group needs its oldest unacked record and all that come after it. If nothing is unacked, it needs all that come after
-- the last record that it was handed. Without a group, nothing is dropped.
--
-- State    stream -> (gone)
-- KEYS[1]  stream    stream  record id -> its envelope
-- Returns  {the number of records dropped; the group that needs the oldest record, '' without any; the oldest id that it
--          may need; 1 when there may be more to drop}
-- Cost     O(groups + records dropped)
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, '', '', 0} end
local least, slowest
for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = as_table(info)
  local ms, number = string.match(group['last-delivered-id'], '^(%d+)-(%d+)$')
  local needs = tonumber(number) < 2 ^ 53 and ms .. string.format('-%.0f', number + 1) or group['last-delivered-id']
  if group.pending > 0 then -- a group that was moved back also needs what is before its oldest unacked record
    local oldest = redis.call('XPENDING', KEYS[1], group.name)[2]
    if comes_after(needs, oldest) then needs = oldest end
  end
  if not least or comes_after(least, needs) then least, slowest = needs, group.name end
end
if not least then return {0, '', '', 0} end
local dropped, more = drop(KEYS[1], 'MINID', least, true)
return {dropped, slowest, least, more}
