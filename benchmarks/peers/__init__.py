"""One program a peer: each runs in an environment of its own, and answers as `protocol` tells."""
