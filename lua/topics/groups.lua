-- groups: list a topic's groups or, with the name of one, its consumers; the keeper is left out, and not counted.
--
-- Reads    stream
-- KEYS[1]  stream  stream  record id -> its envelope
-- ARGV[1]  group   '' for all groups
-- ARGV[2]  keeper  the consumer that holds records until they are reclaimed
-- Returns  {name, value, …} per group or consumer
-- Errors   GROUP   the topic has no such group
-- Cost     O(consumers)
local function consumers_of(group)
  local members, kept = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], group), {}
  if members.err then return no_group(members, KEYS[1], group) end
  for _, member in ipairs(members) do
    if as_table(member).name ~= ARGV[2] then kept[#kept + 1] = member end
  end
  return kept
end
if ARGV[1] ~= '' then return consumers_of(ARGV[1]) end
local groups = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XINFO', 'GROUPS', KEYS[1]) or {}
for _, group in ipairs(groups) do
  local count = #consumers_of(as_table(group).name)
  for i = 1, #group, 2 do
    if group[i] == 'consumers' then group[i + 1] = count end
  end
end
return groups
