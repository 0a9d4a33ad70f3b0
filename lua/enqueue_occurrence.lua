-- enqueue_occurrence: send the next occurrence of a schedule, and store what has changed in the schedule.
--
-- This happens once: nothing is changed unless the slot that the caller believes to be armed still is. So a redelivered
-- occurrence, a second consumer or a repeated call arms nothing again. An occurrence that has not been handed out is
-- withdrawn with its slot, unless somebody has moved it. If another message has the id of the slot to arm, the caller
-- chooses another slot.
--
-- State    (none), garbage -> pending; the one withdrawn: pending, ready -> garbage
-- KEYS[1]  schedules  hash  name -> envelope of its occurrences
-- KEYS[2]  armed      zset  name -> slot of the occurrence on its way, ms; 0 while paused, -1 when finished
-- KEYS[3]  pending    zset
-- KEYS[4]  ready      zset
-- KEYS[5]  garbage    zset
-- KEYS[6]  unack      zset
-- KEYS[7]  retry      zset
-- KEYS[8]  dead       zset
-- KEYS[9]  attempts   hash
-- KEYS[10] errors     hash
-- KEYS[11] stats      hash
-- KEYS[12] bell       list
-- KEYS[13] payload    string  of the next occurrence
-- KEYS[14] meta       hash    events: how many events the ledger keeps
-- KEYS[15] events     stream
-- KEYS[16] held       zset  id -> since when it waits for a group, ms
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2]  name       of the schedule
-- ARGV[3]  slot_ms    the slot that is armed; 0 when it is paused, -1 when it has finished, '' when none is
-- ARGV[4]  slot_id    the occurrence to withdraw, if it waits; '' for none
-- ARGV[5]  record     of the schedule, to store; '' to keep the stored one
-- ARGV[6]  next_ms    the slot to arm; 0 to pause, -1 to finish, '' to remove the schedule
-- ARGV[7]  next_id    the occurrence to send; '' for none
-- ARGV[8]  envelope   of that occurrence
-- ARGV[9]  missed     0..101 skipped slots, to be counted
-- Returns  1; nothing was changed if 0, as another slot is armed, or 2, as another message has the id `next_id`
-- Cost     O(log n)
local now, name, id, armed = clock(ARGV[1]), ARGV[2], ARGV[7], tonumber(ARGV[3])
if tonumber(redis.call('ZSCORE', KEYS[2], name) or '') ~= armed then return 0 end
if id ~= '' and id == ARGV[4] and redis.call('HGET', KEYS[1], name) == ARGV[5] then return 1 end -- it has run before
local note, before, withdrawn = ledger(KEYS[14], KEYS[15], now), head(KEYS[3]), {}
if tonumber(redis.call('ZSCORE', KEYS[3], ARGV[4]) or -2) == armed then withdrawn = {KEYS[3]} end
if tonumber(redis.call('ZSCORE', KEYS[4], ARGV[4]) or -2) == armed then withdrawn = {KEYS[4], unpack(withdrawn)} end
local is_again = id == ARGV[4] and #withdrawn > 0
local others = is_again and {KEYS[6], KEYS[7], KEYS[8]} or {KEYS[6], KEYS[7], KEYS[8], KEYS[16], KEYS[3], KEYS[4]}
if id ~= '' and #where(id, others) > 0 then return 2 end
if id ~= '' then redis.call('SET', KEYS[13], stamp(now) .. ARGV[8]) end
if #withdrawn > 0 then
  local known, reason = {KEYS[9], KEYS[10]}, 'its schedule has changed'
  discard(withdrawn, KEYS[5], known, KEYS[11], {ARGV[4]}, now, note, 'cancelled', reason)
end
if id ~= '' then
  move({KEYS[5]}, KEYS[3], {ARGV[6], id}, function()
    count_stored(KEYS[11], 'sent', 1, #ARGV[8])
    if note then note(id, 'sent', nil, ARGV[6]) end
  end)
end
if ARGV[5] ~= '' then redis.call('HSET', KEYS[1], name, ARGV[5]) end
if ARGV[6] == '' then
  redis.call('HDEL', KEYS[1], name)
  redis.call('ZREM', KEYS[2], name)
else
  put(KEYS[2], {ARGV[6], name})
end
if ARGV[9] ~= '0' then count(KEYS[11], 'slots_missed', ARGV[9]) end
if id ~= '' and tonumber(ARGV[6]) < before then ring(KEYS[12]) end
return 1
