"""The connection to Redis: sockets, pools, URLs, Cluster, Sentinel, the embedded store. Runs operations."""

# What sockets need, and what redis-py needs for a client that the program has made: a first connection on a thread must
# not import anything, see `delayq.late_import`.
import email.parser  # noqa: F401
import encodings.idna  # noqa: F401
