"""The operations of a queue, without I/O, shared by the sync and the async API.

Each operation is a generator. It yields the calls of one round trip, is sent their results, and returns its own.
"""
