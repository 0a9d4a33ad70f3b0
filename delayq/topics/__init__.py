"""Topics: what is to be done with a Redis Stream and its groups, without I/O; both faces run it."""
