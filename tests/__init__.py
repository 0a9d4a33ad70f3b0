"""delayq's tests; ``tests.servers`` starts the Redis servers that they run on."""
