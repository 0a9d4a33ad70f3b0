"""``delayq consume``: handling messages, and records of a topic."""
