-- publish: append records to a topic, and cut it to its maximum length.
--
-- A call drops about twice as many old records as it appends, and at least a hundred: the next ones drop more.
--
-- State    (none) -> stream
-- KEYS[1]  stream      stream  record id -> its envelope
-- KEYS[2]  meta        hash    the mark of the stream, which is noted if it begins
-- ARGV[1]  max_length  records to keep, '' for all
-- ARGV[2]  exact       '1' to keep no more; '' to keep up to a node of the stream more, which is much cheaper
-- ARGV[3..]            two per record: id, '*' for one of the server's; envelope. 1..500 of them, own ids strictly rising
-- Returns  the ids, in the records' order
-- Errors   ORDER       the first id is not greater than the last one that the topic had; nothing was appended
-- Cost     O(n)
if ARGV[3] ~= '*' and redis.call('EXISTS', KEYS[1]) == 1 then
  local last = as_table(redis.call('XINFO', 'STREAM', KEYS[1]))['last-generated-id']
  if not comes_after(ARGV[3], last) then
    local remedy = ': give a greater id, or leave it to the server'
    return redis.error_reply('ORDER record id ' .. ARGV[3] .. ' does not come after ' .. last .. remedy)
  end
end
local ids, mark = {}, marking(KEYS[2], KEYS[1], redis.call('XLEN', KEYS[1]))
for i = 3, #ARGV, 2 do ids[#ids + 1] = redis.call('XADD', KEYS[1], ARGV[i], 'e', ARGV[i + 1]) end
mark(ids[1])
cut(KEYS[1], ARGV[1], ARGV[2], #ids)
return ids
