"""``delayq demo``: the life of messages, live."""
