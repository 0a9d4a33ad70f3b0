-- ack_then: settle a delivery as done and send the messages that follow from it, all in one step or not at all.
--
-- An id exists as in send, but the delivery's own id is free again. Only this call knows a random id: if the receipt is
-- stale and such a message exists, an earlier copy of the call has run.
--
-- State    unack -> (gone); (none), garbage -> pending; if replaced, any -> pending
-- KEYS[1]  pending    zset    id -> due, ms
-- KEYS[2]  garbage    zset    id -> since, ms
-- KEYS[3]  stats      hash
-- KEYS[4]  bell       list
-- KEYS[5]  ready      zset
-- KEYS[6]  unack      zset    id -> end of the lease, ms
-- KEYS[7]  retry      zset
-- KEYS[8]  dead       zset
-- KEYS[9]  attempts   hash    id -> past.released.attempts_reset.lost
-- KEYS[10] errors     hash
-- KEYS[11] reasons    hash
-- KEYS[12] cancelled  set     ids in flight that must not be retried
-- KEYS[13] payload    string  of the delivery
-- KEYS[14] meta       hash    events: how many events the ledger keeps
-- KEYS[15] events     stream
-- KEYS[16] replaced   zset    deliveries whose messages were replaced while they ran -> end of the lease, ms
-- KEYS[17] members    hash  id -> the group that it belongs to
-- KEYS[18] groups     hash  group -> see `group_of`
-- KEYS[19] held       zset  id -> since when it waits for a group, ms
-- KEYS[20..]          strings, the payload keys of the messages, in the same order;
--                     then, for a task with results, the key of its result, a hash, and finished, a stream
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  id         of the delivery
-- ARGV[3]  receipt
-- ARGV[4..]           four per message: id, due ('+delay_ms' or ms), envelope, and what to do when the id exists:
--                     'ignore', 'replace' or 'error'; 'new' for a random id; all ids different, 0..100 of them.
--                     Then, for a task with results, the seven values that `keep_result` is given
-- Returns  1
-- Errors   STALE      the receipt does not match the running delivery
--          DUPLICATE  an id exists whose choice is 'error'
-- Cost     O(n log m)
local done, before, ours, given = ARGV[2], head(KEYS[1]), held(KEYS[6], KEYS[9], ARGV[2], ARGV[3])
local last = #ARGV - (#ARGV - 3) % 4 * 7 / 3 -- seven values more leave a rest of 3
local values, sends, gone, again, duplicate, now, micros = {}, {}, {done}, false, nil, clock(ARGV[1])
for i = 4, last, 4 do
  local id, choice, running = ARGV[i], ARGV[i + 3], redis.call('ZSCORE', KEYS[6], ARGV[i]) and 1 or 0
  local found = #where(id, {KEYS[1], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[19]}) > 0
  if found and choice == 'new' and not ours then return 1 end
  if id == done then found, running, again = false, 0, true end
  if found and choice == 'error' then duplicate = id end
  if not found or choice == 'replace' then
    sends[#sends + 1], gone[#gone + 1] = {id, ARGV[i + 1], #ARGV[i + 2]}, id -- stamped as in replace
    values[#values + 1], values[#values + 2] = KEYS[19 + i / 4], stamp(now + running) .. ARGV[i + 2]
  end
end
if not ours then return redis.error_reply('STALE message ' .. done .. HAS_ENDED) end
if duplicate then return redis.error_reply('DUPLICATE message ' .. duplicate .. ' exists already: nothing was changed') end
local kept, note, needs = last < #ARGV and (redis.call('GET', KEYS[13]) or ''), ledger(KEYS[14], KEYS[15], now)
local groups = grouped(KEYS[17], KEYS[18], KEYS[19], KEYS[1], needs)
if #values > 0 then redis.call('MSET', unpack(values)) end -- first: at maxmemory it is refused, and nothing changes
redis.call('ZREM', KEYS[6], NOBODY) -- after this write, maxmemory refuses no other
if kept then keep_result(kept, KEYS[#KEYS - 1], KEYS[#KEYS], done, now, ARGV, last + 1) end
if note then note(done, 'acked', deliveries(given) + 1) end
for _, send in ipairs(sends) do
  local id, due = send[1], due_time(send[2], now, micros)
  local places = id == done and {} or where(id, {KEYS[6], KEYS[1], KEYS[5], KEYS[7], KEYS[8], KEYS[19]})
  local event, running = #places > 0 and 'replaced' or 'sent', places[1] == KEYS[6] and 1 or 0
  if running == 1 then keep_place(KEYS[16], KEYS[14], KEYS[6], KEYS[9], id, now) end
  move({KEYS[2], unpack(places)}, KEYS[1], {due, id}, function()
    count_stored(KEYS[3], event, 1, send[3])
    if note then note(id, event, nil, due, nil, 'follows ' .. done) end
    start_anew(id, running, event == 'replaced', KEYS[9])
  end)
end
for key = 10, 11 do redis.call('HDEL', KEYS[key], unpack(gone)) end
redis.call('SREM', KEYS[12], unpack(gone))
if not again then redis.call('UNLINK', KEYS[13]) end
end_delivery(KEYS[6], KEYS[9], KEYS[3], done) -- last: the receipt is computed from it
ended(KEYS[17], KEYS[18], KEYS[19], KEYS[1], KEYS[4], groups, ARGV[1], gone)
if head(KEYS[1]) < before then ring(KEYS[4]) end
return 1
