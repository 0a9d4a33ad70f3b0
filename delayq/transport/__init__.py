"""The connection to Redis: sockets, pools, URLs, Cluster, Sentinel, the embedded store. Runs operations."""
