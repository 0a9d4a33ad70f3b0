"""Actions on many messages at once: select, search, requeue, delete."""
