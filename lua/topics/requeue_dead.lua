-- requeue_dead: dead letters of a group go back to its unacked list, to be rescued at once, with no deliveries counted.
--
-- State    buried -> unacked
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  buried    stream  the group's dead letters
-- ARGV[1]  group
-- ARGV[2]  consumer  that holds them until they are rescued; made when it is new
-- ARGV[3..]          the ids of 1..250 dead letters
-- Returns  1 a dead letter; 0 where there is none, or the topic no longer has its record, in their order
-- Errors   GROUP     the topic has no such group
-- Cost     O(n log m)
local DAY = 86400000
local results, group = {}, ARGV[1]
for i = 3, #ARGV do
  local letter, done = redis.call('XRANGE', KEYS[2], ARGV[i], ARGV[i])[1], 0
  local id = letter and letter[2][2]
  if id and #redis.call('XRANGE', KEYS[1], id, id) > 0 then
    local how = {'IDLE', DAY, 'RETRYCOUNT', 0, 'FORCE', 'JUSTID'}
    local reply = redis.pcall('XCLAIM', KEYS[1], group, ARGV[2], 0, id, unpack(how))
    if reply.err then return no_group(reply, KEYS[1], group) end
    done = redis.call('XDEL', KEYS[2], ARGV[i])
  end
  results[#results + 1] = done
end
return results
