-- release_slot: free the slots of deliveries that have ended, and promote the next messages of their keys.
--
-- Earliest due goes first. Each has a slot kept for it, so that it can begin and never too many are promoted. The script
-- trusts the caller that a delivery has ended: the call that settles it may come after this one, if the server did not know
-- that script yet.
--
-- State    pending -> ready
-- KEYS[1]  unack      zset  id -> end of the lease, ms
-- KEYS[2]  ready      zset  id -> due, ms
-- KEYS[3]  pending    zset  id -> due, ms
-- KEYS[4]  attempts   hash  id -> past.released.attempts_reset.lost
-- KEYS[5]  slots      zset  key, receipt ('' until it is handed out) and id, with zero bytes between -> 0
-- KEYS[6]  waiting    zset  key, due (ms, 15 digits) and id, with zero bytes between -> 0
-- KEYS[7]  parked     hash  id -> until when it waits at most, ms, and its due time, ms
-- KEYS[8]  meta       hash
-- KEYS[9]  stats      hash
-- KEYS[10] bell       list
-- KEYS[11] events     stream
-- KEYS[12] replaced   zset  deliveries whose messages were replaced while they ran -> end of the lease, ms
-- ARGV[1]  now_ms     '' for the server's time
-- ARGV[2..]           for 1..250 deliveries: key, id, receipt; the receipt is '' if it was not admitted; the id is '' to
--                     remove slots of the key whose deliveries are gone
-- Returns  the number of messages promoted
-- Cost     O(n log m), and up to 1000 slots and 1000 waiting messages are looked at
local limit = setting(redis.call('HGET', KEYS[8], 'per_key'))
local now, micros = clock(ARGV[1])
local most, moved = math.ceil(3000 / #ARGV), 0
local note = ledger(KEYS[8], KEYS[11], now)
for i = 2, #ARGV, 3 do
  local key, ended, given = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if ended ~= '' then redis.call('ZREM', KEYS[5], key .. '\0' .. given .. '\0' .. ended) end
  redis.call('ZREM', KEYS[12], given .. '\0' .. ended)
  local from, to = bounds(key)
  local room, looked, first = most, 0, {}
  local enough = ended == '' and 0 or limit or math.huge
  local taken = running(KEYS[5], KEYS[1], KEYS[2], KEYS[4], KEYS[12], key, enough, most, now, micros)
  if limit then room = limit - taken end
  while room > 0 and looked < most do
    first = redis.call('ZRANGEBYLEX', KEYS[6], from, to, 'LIMIT', 0, math.min(room, most - looked))
    if #first == 0 then break end
    looked = looked + #first
    for _, member in ipairs(first) do
      local due, id = tonumber(string.sub(member, #key + 2, #key + 16)), string.sub(member, #key + 18)
      local till, due_before = waits(KEYS[7], id)
      local score = redis.call('ZSCORE', KEYS[3], id) or redis.call('ZSCORE', KEYS[2], id)
      redis.call('ZREM', KEYS[6], member)
      if score and due_before == due and tonumber(score) == till then -- else it was cancelled, or moved
        move({KEYS[3]}, KEYS[2], {math.min(now, due), id}, function()
          if limit then redis.call('ZADD', KEYS[5], 0, key .. '\0\0' .. id) end
          if note then note(id, 'promoted', nil, due, now - due, 'its key has room') end
        end)
        room, moved = room - 1, moved + 1
      end
      if due_before == due and not redis.call('ZSCORE', KEYS[1], id) then redis.call('HDEL', KEYS[7], id) end
    end
  end
end
if moved > 0 then
  count(KEYS[9], 'promoted', moved)
  ring(KEYS[10])
end
return moved
