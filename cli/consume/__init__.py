"""``delayq consume``: handle messages, or the records of a topic."""
