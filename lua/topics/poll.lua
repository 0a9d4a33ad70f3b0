-- poll: hand records to a consumer of a group: new ones, or once more those that it has not acked.
--
-- Large records take several calls. Records that were appended again for another group are acked, not handed out.
--
-- State    stream -> unacked (the group's own list of the stream)
-- KEYS[1]  stream    stream  record id -> its envelope
-- KEYS[2]  pending   zset    id -> due, ms
-- KEYS[3]  watch     hash    the mark of the group's creation
-- ARGV[1]  now_ms    '' for the server's time
-- ARGV[2]  group
-- ARGV[3]  consumer  of the group; created if new
-- ARGV[4]  limit     1..500 records; fewer if they exceed a megabyte, or after 500 for other groups
-- ARGV[5]  after     '>' for records that are new to the group; else an id: the consumer's own records after it
-- ARGV[6]  by_ms     hand out nothing after this time of the server: the caller may be gone if it was frozen; '' for none
-- Returns  {{{id, {field, value, …}}, …}, in their order, no fields where the record is gone;
--          ms until the next delayed record is due, -1 if none waits;
--          the id of the topic's last record if none were found, '' if there are or may be some};
--          the group's mark; a fifth, 1, if the call was late
-- Errors   GROUP     the topic has no such group
-- Cost     O(n)
local now, group, limit, after = clock(ARGV[1]), ARGV[2], tonumber(ARGV[4]), ARGV[5]
if ARGV[6] ~= '' and clock('') > tonumber(ARGV[6]) then return {{}, -1, '', '', 1} end
local MOST, mark = 500, mark_of(KEYS[3])
local found, bytes, seen, count, ended = {}, 0, 0, 1, false
repeat
  local reply = redis.pcall('XREADGROUP', 'GROUP', group, ARGV[3], 'COUNT', count, 'STREAMS', KEYS[1], after)
  if reply and reply.err then return no_group(reply, KEYS[1], group) end
  local page = reply and #reply > 0 and (reply[1][2] or reply[2]) or {} -- fakeredis answers without the inner list
  for _, record in ipairs(page) do
    bytes, seen = bytes + size_of(record), seen + 1
    if is_for_others(record[2], group) then
      redis.call('XACK', KEYS[1], group, record[1])
    else
      found[#found + 1] = record
    end
  end
  ended = #page < count
  if after ~= '>' and #page > 0 then after = page[#page][1] end
  count = next_count(bytes, seen, limit - #found)
until ended or #found >= limit or seen >= MOST or bytes >= RECORD_BYTES
local due = head(KEYS[2])
local next_ms = due == math.huge and -1 or math.max(0, math.ceil(due - now))
if #found > 0 or not ended then return {found, next_ms, '', mark} end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
return {found, next_ms, last and last[1] or '0-0', mark}
