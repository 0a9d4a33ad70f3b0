"""``delayq lake``, and what other commands do with a lake."""
