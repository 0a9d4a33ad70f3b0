"""Values and rules: messages, outcomes, schedules, limits, counts. No I/O, no Redis."""
