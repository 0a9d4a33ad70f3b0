-- clear_ghosts: remove records that were trimmed or deleted from a group's unacked list.
--
-- State    unacked -> (gone)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  failures  hash    record id -> the errors of its failed deliveries
-- ARGV[1]  group
-- ARGV[2]  after     '-' or '(' and the id up to which an earlier call has looked
-- ARGV[3]  limit     1..500 records to look at
-- Returns  {the id up to which this call has looked, '' when that is the end; the number of ghosts}
-- Errors   GROUP     the topic has no such group
-- Cost     O(n log m)
local group, ghosts, bytes, upto = ARGV[1], 0, 0, ''
local rows = redis.pcall('XPENDING', KEYS[1], group, ARGV[2], '+', ARGV[3])
if rows.err then return no_group(rows, KEYS[1], group) end
for i, row in ipairs(rows) do
  local there = redis.call('XRANGE', KEYS[1], row[1], row[1])[1]
  if there then
    bytes = bytes + size_of(there)
  else
    redis.call('XACK', KEYS[1], group, row[1])
    redis.call('HDEL', KEYS[2], row[1])
    ghosts = ghosts + 1
  end
  if bytes >= RECORD_BYTES or i == tonumber(ARGV[3]) then return {row[1], ghosts} end
end
return {'', ghosts}
