"""Forbids real servers while a test has queues in memory: see `delayq.testing.in_memory`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

EVERYTHING = "everything"

blocks: list[frozenset[str]] = []
"""The open blocks, each with the labels of what may use its real server. Forked processes inherit them."""


class RealServerUsed(AssertionError):
    """A test has queues in memory, and something would use a real server; nothing was sent.

    Code under test often catches DelayqError, which would hide it.
    """


@contextmanager
def forbidding(allowed: Collection[str]) -> Iterator[None]:
    """Forbid real servers in all threads and event loops until the block ends.

    Args:
        allowed: the labels of executors that may use theirs, and may do so in other open blocks; or `EVERYTHING`.
    """
    block = frozenset(allowed)
    blocks.append(block)
    try:
        yield
    finally:
        del blocks[next(i for i, each in enumerate(blocks) if each is block)]


def check(label: str | None) -> None:
    """Raise RealServerUsed if a block is open and none allows `label`; None means a server in memory."""
    if label is None or any(label in block or EVERYTHING in block for block in blocks):
        return
    if label.startswith(("queue ", "topic ")):
        remedy = "give it to in_memory or clock.add, or allow its server with in_memory(…, real=[…])"
    else:
        remedy = "if this test needs it, allow it with in_memory(…, real=True)"
    raise RealServerUsed(f"{label} would use a real server while queues are in memory: {remedy}")


def labelled(label: str, client: Any) -> str | None:
    """Return the label of an executor with a client that the caller has given, or None to be made.

    A client of fakeredis is in memory.
    """
    return None if any(base.__module__.startswith("fakeredis") for base in type(client).__mro__) else label
