-- purge_dead: delete the dead letters of a group that are older than they are kept, a bounded number.
--
-- State    buried -> (gone)
-- KEYS[1]  buried  stream  the group's dead letters
-- ARGV[1]  retention_ms  0.., by the server's time
-- Returns  {the number of dead letters deleted; 1 when there may be more}
-- Cost     O(dead letters deleted)
return {drop(KEYS[1], 'MINID', string.format('%.0f', math.max(0, clock('') - ARGV[1])), true)}
