-- groups: list a topic's groups or, with the name of one, its consumers.
--
-- Reads    stream
-- KEYS[1]  stream  stream  record id -> its envelope
-- ARGV[1]  group   '' for all groups
-- Returns  {name, value, …} per group or consumer
-- Errors   GROUP   the topic has no such group
-- Cost     O(groups), O(consumers)
if ARGV[1] == '' then return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XINFO', 'GROUPS', KEYS[1]) or {} end
local found = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
return found.err and no_group(found, KEYS[1], ARGV[1]) or found
