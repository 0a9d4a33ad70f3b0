"""``delayq top``: queues live."""
