-- groups: tell of a topic's groups; or, with the name of one, of its consumers.
--
-- Reads    stream
-- KEYS[1]  stream  stream  record id -> its envelope
-- ARGV[1]  group   '' for all groups
-- Returns  a list of {name, value, …} a group or consumer
-- Errors   GROUP   the topic has no such group
-- Cost     O(groups), O(consumers)
if redis.call('EXISTS', KEYS[1]) == 0 then
  if ARGV[1] == '' then return {} end
  return redis.error_reply('GROUP ' .. KEYS[1] .. ' has no group ' .. ARGV[1] .. ': make it with topic.group(…), or delayq topic group create')
end
if ARGV[1] == '' then return redis.call('XINFO', 'GROUPS', KEYS[1]) end
local found = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if found.err then return no_group(found, KEYS[1], ARGV[1]) end
return found
