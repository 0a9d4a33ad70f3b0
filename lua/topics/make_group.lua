-- make_group: create a group of a topic, or move one that exists.
--
-- State    (the group itself; no record moves)
-- KEYS[1]  stream   stream  record id -> its envelope; created if new
-- KEYS[2]  watch    hash    whether the group was destroyed, which is removed; the mark of its creation
-- ARGV[1]  group
-- ARGV[2]  start    '$' for new records only, '0' for all, or the id after which the group begins
-- ARGV[3]  move     '1' to move a group that exists there; '' to leave it where it is
-- Returns  1 when the group is new, else 0
-- Errors   GROUP    the group to move does not exist
-- Cost     O(1); O(groups) on a server without memory
if ARGV[3] == '1' then
  acknowledge_nothing(KEYS[1], ARGV[1])
  local moved = redis.pcall('XGROUP', 'SETID', KEYS[1], ARGV[1], ARGV[2])
  return moved.err and no_group(moved, KEYS[1], ARGV[1]) or 0
end
local was_destroyed = redis.call('HGET', KEYS[2], 'destroyed')
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], ARGV[2], 'MKSTREAM')
if made.err and string.find(tostring(made.err), 'BUSYGROUP', 1, true) then return 0 end
if made.err and redis.call('EXISTS', KEYS[1]) == 1 then -- a server without memory refuses it even if the group exists
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    if as_table(info).name == ARGV[1] then return 0 end
  end
end
if made.err then return made end
if was_destroyed then redis.call('UNLINK', KEYS[2]) end
mark_anew(KEYS[2])
return 1
