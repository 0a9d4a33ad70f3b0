"""What a queue does, without I/O: what the sync and the async face share.

Each operation is a generator: it yields the calls of one round trip, is sent their results, and returns its own.
"""
