"""``delayq topic``: records, groups, and unacked records."""
