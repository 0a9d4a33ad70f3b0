-- drop_idle_consumers: remove long idle consumers of a group that hold nothing and have random names, and its keeper.
--
-- The first poll of a consumer that comes back creates it again.
--
-- State    (the group itself; no record moves)
-- KEYS[1]  stream   stream  record id -> its envelope
-- ARGV[1]  group
-- ARGV[2]  idle_ms  the shortest idle time
-- ARGV[3]  names    a Lua pattern
-- ARGV[4]  limit    1..500 consumers to remove
-- ARGV[5]  keeper   the consumer that holds records until they are reclaimed
-- Returns  the number of consumers removed
-- Errors   GROUP    the topic has no such group
-- Cost     O(consumers)
local removed = 0
local members = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if members.err then return no_group(members, KEYS[1], ARGV[1]) end
for _, info in ipairs(members) do
  local member = as_table(info)
  local is_unnamed = member.name == ARGV[5] or string.find(member.name, ARGV[3])
  local gone = member.pending == 0 and member.idle >= tonumber(ARGV[2]) and is_unnamed
  if gone and removed < tonumber(ARGV[4]) then
    acknowledge_nothing(KEYS[1], ARGV[1])
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], member.name)
    removed = removed + 1
  end
end
return removed
