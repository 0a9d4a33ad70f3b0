-- make_group: let a topic have a group, or let one that it has go on from elsewhere.
--
-- State    (the group itself; no record moves)
-- KEYS[1]  stream   stream  record id -> its envelope; made when it is new
-- ARGV[1]  group
-- ARGV[2]  start    '$' for what comes from now on, '0' for all, or the id behind which the group begins
-- ARGV[3]  move     '1' to let a group that exists go on from there; '' to leave it where it is
-- Returns  1 when the group is new, else 0
-- Errors   GROUP    it is to be moved, and the topic has no such group
-- Cost     O(1); O(groups) on a server without memory
if ARGV[3] == '1' then
  local moved = redis.pcall('XGROUP', 'SETID', KEYS[1], ARGV[1], ARGV[2])
  return moved.err and no_group(moved, KEYS[1], ARGV[1]) or 0
end
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], ARGV[2], 'MKSTREAM')
if made.err and string.find(tostring(made.err), 'BUSYGROUP', 1, true) then return 0 end
if made.err and redis.call('EXISTS', KEYS[1]) == 1 then -- a server without memory refuses it, whatever is there
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    if as_table(info).name == ARGV[1] then return 0 end
  end
end
return made.err and made or 1
