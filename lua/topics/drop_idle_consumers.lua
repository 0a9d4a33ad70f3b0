-- drop_idle_consumers: consumers of a group that hold nothing, were not heard of for long, and whose names were drawn by lot, leave it.
--
-- One that comes back under such a name is made again by its first poll.
--
-- State    (the group itself; no record moves)
-- KEYS[1]  stream   stream  record id -> its envelope
-- ARGV[1]  group
-- ARGV[2]  idle_ms  since they were heard of, at least
-- ARGV[3]  names    a pattern of Lua
-- ARGV[4]  limit    1..500 consumers to remove
-- Returns  the number of consumers removed
-- Errors   GROUP    the topic has no such group
-- Cost     O(consumers)
local removed = 0
local members = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if members.err then return no_group(members, KEYS[1], ARGV[1]) end
for _, info in ipairs(members) do
  local member = as_table(info)
  local gone = member.pending == 0 and member.idle >= tonumber(ARGV[2]) and string.find(member.name, ARGV[3])
  if gone and removed < tonumber(ARGV[4]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], member.name)
    removed = removed + 1
  end
end
return removed
