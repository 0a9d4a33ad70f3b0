-- results: what has become of messages with results, for programs that wait for them.
--
-- A message names its token at the end of its envelope, in the header delayq-results: the time to keep the result, ms,
-- and the token. Only a record with that token is about this message.
--
-- Reads    pending, ready, unack, retry, dead, held
-- KEYS[1]  pending  zset
-- KEYS[2]  ready    zset
-- KEYS[3]  unack    zset
-- KEYS[4]  retry    zset
-- KEYS[5]  dead     zset
-- KEYS[6]  held     zset
-- KEYS[7..]         two per message: its payload key, a string, and the key of its result, a hash
-- ARGV[1..]         two per message, 1..100 of them: its id, and its token, or '' for the latest message of the id
-- Returns  a word per message, in the same order: 'kept' if there is a record of its end, 'dead' if it is a dead letter
--          without one, 'live' if it waits or runs, 'plain' if it does so and keeps no result, or 'gone'. One whose payload
--          is lost will be a dead letter, which says so
-- Cost     O(n)
local words = {}
for i = 1, #ARGV, 2 do
  local id, token, word = ARGV[i], ARGV[i + 1], 'gone'
  local kept, status = unpack(redis.call('HMGET', KEYS[7 + i], 'token', 'status'))
  local place, named = where(id, {KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]})[1], nil
  if place then
    local stored = redis.call('GETRANGE', KEYS[6 + i], -1024, -1)
    named = string.match(stored, '.*delayq%-results.%d+%-(%w+)')
    if stored == '' and (not kept or kept == token) then named = token end -- it is gone, and nobody can compare
  end
  if token == '' then token = named or kept or '' end
  local waits = place and named == token
  if token == '' then
    word = waits and (place == KEYS[5] and 'dead' or 'live') or place and 'plain' or 'gone'
  elseif kept == token and status ~= 'retry' and (status == 'done' or not waits or place == KEYS[5]) then
    word = 'kept'
  elseif waits then
    word = place == KEYS[5] and 'dead' or 'live'
  end
  words[(i + 1) / 2] = word
end
return words
