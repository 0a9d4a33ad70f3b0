"""delayq beside its bare scripts: the same work in Redis, driven by a minimal client."""
