"""Limiting: storing and reading the limits that a queue has, whoever serves it."""

from __future__ import annotations

from delayq.calls import Steps, one
from delayq.limits import Changes, Configuration, check_shards
from delayq.operations.core import Core


def configure(core: Core, changes: Changes) -> Steps[None]:
    """Set or remove limits, in one step; raises InvalidInput for a queue with shards.

    Those that this client was made with come first: stored by its next claim, they would undo the change.
    """
    shards = yield from core.opened(create=True)
    limits = core.undeclared | changes
    check_shards(len(shards), limits, f"queue {core.name}")
    yield from one(shards[0].configure(limits))
    core.undeclared = {}
    core.unlimited_until = 0.0


def declare(core: Core) -> Steps[None]:
    """Store the limits that this client was made with, once: what an operator changes later is not undone."""
    if core.undeclared:
        yield from configure(core, {})


def configuration(core: Core) -> Steps[Configuration]:
    """Read the limits."""
    shards = yield from core.opened()
    return (yield from one(shards[0].configuration()))
