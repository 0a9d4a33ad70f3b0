"""``delayq demo``: the whole life of messages, live."""
