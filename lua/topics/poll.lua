-- poll: hand records of a topic to a consumer of one of its groups: new ones, or again those that it has not acked.
--
-- State    stream -> unacked (the group's own list of the stream)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  pending   zset    id -> due, ms
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  group
-- ARGV[3]  consumer  of the group; made when it is new
-- ARGV[4]  limit     1..500 records
-- ARGV[5]  after     '>' for records that nobody of the group was handed; else an id: the consumer's own behind it
-- Returns  {{{id, {field, value, …}}, …}, in their order, no fields where the record is gone;
--          ms until the next record that waits for its time is to be appended, -1 when none waits;
--          when there are no records, the id of the topic's last one, else ''}
-- Errors   GROUP     the topic has no such group
-- Cost     O(n)
local now, group, limit = clock(ARGV[1]), ARGV[2], ARGV[4]
local reply = redis.pcall('XREADGROUP', 'GROUP', group, ARGV[3], 'COUNT', limit, 'STREAMS', KEYS[1], ARGV[5])
if reply and reply.err then return no_group(reply, KEYS[1], group) end
local due = head(KEYS[2])
local next_ms = due == math.huge and -1 or math.max(0, math.ceil(due - now))
local records = reply and #reply > 0 and (reply[1][2] or reply[2]) -- fakeredis answers without the inner list
if records then return {records, next_ms, ''} end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
return {{}, next_ms, last and last[1] or '0-0'}
