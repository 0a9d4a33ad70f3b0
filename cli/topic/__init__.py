"""``delayq topic``: records, their groups, and what these have not acked."""
