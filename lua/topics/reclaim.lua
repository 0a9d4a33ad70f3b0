-- reclaim: hand records that a group has left unacked for long to one of its consumers; bury those tried too often.
--
-- The first caller gets them: handing a record out resets its idle time. A record that was trimmed or deleted is a ghost:
-- it cannot be handled, and leaves the list. If consumers could not renew their records for a while, records whose
-- time ran out meanwhile are left to them for a grace: see `look` and `look_at`.
--
-- State    unacked -> unacked, or buried
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  buried    stream  the group's dead letters
-- KEYS[3]  failures  hash    record id -> the errors of its failed deliveries
-- KEYS[4]  watch     hash    when a consumer last looked for such records, and the last grace; the group's mark
-- ARGV[1]  group
-- ARGV[2]  consumer  that is handed the records; created if new
-- ARGV[3]  idle_ms   the shortest time since they were last handed out
-- ARGV[4]  after     '-' or '(' and the id up to which an earlier call has looked
-- ARGV[5]  limit     1..250 records to hand out, or to bury
-- ARGV[6]  most      deliveries of a record, '' for any number
-- ARGV[7]  by_ms     the server's time by which the call should be executed; '' if the caller does not know
-- ARGV[8]  member    1 if the caller is a consumer that does this regularly, '' otherwise
-- ARGV[9]  until_ms  hand out nothing after this time of the server: the caller may be gone if it was frozen; '' for none
-- Returns  {the id up to which this call has looked, '' when that is the end;
--          {{id, {field, value, …}}, …}; {deliveries, …} of these; records buried; ghosts;
--          now, ms; how much is left of a grace, ms; the group's mark}
-- Errors   GROUP     the topic has no such group
-- Cost     O(n log m), and O(20,000) to find them
local group, most = ARGV[1], tonumber(ARGV[6]) or math.huge
local idle, now, grace = look_at(KEYS[4], ARGV[3], ARGV[7], ARGV[8] == '1')
local mark = mark_of(KEYS[4])
if ARGV[9] ~= '' and now > tonumber(ARGV[9]) then return {'', {}, {}, 0, 0, now, grace, mark} end
local found, upto = stale(KEYS[1], group, idle, ARGV[4], ARGV[5])
if found.err then return no_group(found, KEYS[1], group) end
local records, deliveries, buried, ghosts, bytes = {}, {}, 0, 0, 0
for i, row in ipairs(found) do
  if row[4] < most then
    local record = present(redis.call('XCLAIM', KEYS[1], group, ARGV[2], 0, row[1]))[1]
    if record then
      records[#records + 1], deliveries[#deliveries + 1], bytes = record, row[4] + 1, bytes + size_of(record)
    else
      redis.call('XACK', KEYS[1], group, row[1])
      redis.call('HDEL', KEYS[3], row[1])
      ghosts = ghosts + 1
    end
  else
    local size = bury(KEYS[1], KEYS[2], KEYS[3], group, row[1], row[2], row[4], 'deliveries-exhausted')
    buried, ghosts, bytes = buried + (size and 1 or 0), ghosts + (size and 0 or 1), bytes + (size or 0)
  end
  if bytes >= RECORD_BYTES and i < #found then return {row[1], records, deliveries, buried, ghosts, now, grace, mark} end
end
return {upto, records, deliveries, buried, ghosts, now, grace, mark}
