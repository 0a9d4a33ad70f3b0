-- redeliver: hand a consumer records that it holds once more. A call stops after 1 MB of records.
--
-- State    unacked -> unacked
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  failures  hash    record id -> the errors of its failed deliveries
-- KEYS[3]  watch     hash    until when consumers of a group that was created again may bring back what they hold
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  counts    '1' when this is another delivery; '' when the last one was not begun
-- ARGV[4]  by_ms     hand out nothing after this time of the server: the caller may be gone if it was frozen; '' for none
-- ARGV[5]  mark      of the group when it handed them out, '*' if unknown; see `mark_of`
-- ARGV[6..]          the ids of 1..250 records
-- Returns  {{{id, {field, value, …}}, …}, those that the consumer holds, and that are not gone; {deliveries, …} of these;
--          how many of the ids were looked at}; a fourth, 1, if the call was late
-- Errors   GROUP     the topic has no such group
-- Cost     O(n log m)
local group, records, deliveries, bytes = ARGV[1], {}, {}, 0
if ARGV[4] ~= '' and clock('') > tonumber(ARGV[4]) then return {{}, {}, 0, 1} end
for i = 6, #ARGV do
  local held = deliveries_of(KEYS[1], KEYS[3], group, ARGV[2], ARGV[i], ARGV[5])
  if type(held) == 'table' then return held end
  if held then
    local count = held + (ARGV[3] == '1' and 1 or 0)
    local claimed = redis.call('XCLAIM', KEYS[1], group, ARGV[2], 0, ARGV[i], 'RETRYCOUNT', count)
    local record = present(claimed)[1]
    if record then
      records[#records + 1], deliveries[#deliveries + 1] = record, count
      bytes = bytes + size_of(record)
      if bytes >= RECORD_BYTES then return {records, deliveries, i - 5} end
    else
      redis.call('XACK', KEYS[1], group, ARGV[i])
      redis.call('HDEL', KEYS[2], ARGV[i])
    end
  end
end
return {records, deliveries, #ARGV - 5}
