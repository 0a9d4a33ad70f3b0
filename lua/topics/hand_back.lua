-- hand_back: let any other consumer of a group reclaim records that a consumer holds, at once.
--
-- State    unacked -> unacked, or (gone)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  failures  hash    record id -> the errors of its failed deliveries
-- KEYS[3]  watch     hash    until when consumers of a group that was created again may bring back what they hold
-- KEYS[4]  waking    stream  what idle readers block on, beside the topic itself
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  keeper    another consumer of the group, created if new, that holds them until they are reclaimed
-- ARGV[4]  mark      of the group when it handed them out, '*' if unknown; see `mark_of`
-- ARGV[5..]          two per record: id; '1' when its last delivery counts, '' when it does not. 1..250 of them
-- Returns  1 per record; 0 where the consumer does not hold it, in the same order
-- Errors   GROUP     the topic has no such group
-- Cost     O(n log m)
local DAY = '86400000' -- ms
local group, results, count = ARGV[1], {}, 0
for i = 5, #ARGV, 2 do
  local held = deliveries_of(KEYS[1], KEYS[3], group, ARGV[2], ARGV[i], ARGV[4])
  if type(held) == 'table' then return held end
  local ours = held
  if ours then
    local deliveries = ARGV[i + 1] == '1' and held or math.max(0, held - 1)
    ours = hold(KEYS[1], KEYS[2], group, ARGV[3], ARGV[i], 'IDLE', DAY, 'RETRYCOUNT', deliveries, 'JUSTID')
  end
  results[#results + 1] = ours and 1 or 0
  count = count + results[#results]
end
if count > 0 then wake(KEYS[4], 'left', group) end
return results
