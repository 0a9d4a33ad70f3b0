-- recreate_group: create a group again that was lost, and not destroyed, for one of its consumers.
--
-- State    (the group itself; no record moves)
-- KEYS[1]  stream     stream  record id -> its envelope; created if it was lost, too
-- KEYS[2]  watch      hash    whether the group was destroyed; until when consumers may bring back what they hold; its mark
-- ARGV[1]  group
-- ARGV[2]  last       the id up to which the caller knows that records were handed out, '' if it knows none
-- ARGV[3]  window_ms  how long consumers may bring back the records that they hold: see `deliveries_of`
-- Returns  {1, 0 if the group exists; the id after which it begins, '0' for the first record, '' if it exists;
--          the number of records that it will receive, or receive again, -1 after an id}
-- Errors   GROUP      it was destroyed
-- Cost     O(1)
local group, last = ARGV[1], ARGV[2]
if redis.call('HGET', KEYS[2], 'destroyed') then
  local remedy = ', which was destroyed: create it with topic.group(…), or delayq topic group create'
  return redis.error_reply('GROUP ' .. KEYS[1] .. ' has no group ' .. group .. remedy)
end
-- If the record is gone, but older ones are not, the stream may be another one. So it may if its publishers choose the
-- ids: those that the server makes never begin again.
local YEAR_2001 = 1000000000000
local oldest = last ~= '' and redis.call('XRANGE', KEYS[1], '-', last, 'COUNT', 1)
local is_known = oldest and tonumber(string.match(last, '^%d+')) >= YEAR_2001
  and (#oldest == 0 or #redis.call('XRANGE', KEYS[1], last, last) == 1)
local after = is_known and redis.call('EXISTS', KEYS[1]) == 1 and last or '0'
acknowledge_nothing(KEYS[1], group)
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], group, after, 'MKSTREAM')
if made.err and string.find(tostring(made.err), 'BUSYGROUP', 1, true) then return {0, '', 0} end
if made.err then return made end
if after == '0' then mark_anew(KEYS[2]) else redis.call('HSET', KEYS[2], 'regained', digits(clock('') + tonumber(ARGV[3]))) end
return {1, after, after == '0' and redis.call('XLEN', KEYS[1]) or -1}
