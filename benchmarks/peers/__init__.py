"""One program per peer: each runs in its own environment and follows `protocol`."""
