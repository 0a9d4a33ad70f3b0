"""Limiting: storing and reading the configuration that a queue has, whoever serves it."""

from __future__ import annotations

from delayq.calls import Steps, expect, one
from delayq.errors import DelayqError
from delayq.limits import Changes, Configuration, check_shards
from delayq.operations.core import Core


def configure(core: Core, changes: Changes) -> Steps[None]:
    """Set or remove limits and the ledger, a shard in one step; raises InvalidInput for limits of a queue with shards.

    What this client was made with comes first: stored by its next claim, it would undo the change.
    """
    shards = yield from core.opened(create=True)
    wanted = core.undeclared | changes
    check_shards(len(shards), wanted, f"queue {core.name}")
    for result in (yield [scripts.configure(wanted) for scripts in shards]):
        expect(result)
    _settle(core)


def declare(core: Core) -> Steps[None]:
    """Store the configuration that this client was made with, once: what an operator changes later is not undone.

    A shard that refuses does not keep the others from being served: it is asked again the next time.
    """
    if not core.undeclared:
        return
    shards = yield from core.opened(create=True)
    check_shards(len(shards), core.undeclared, f"queue {core.name}")
    missing = [scripts for scripts in shards if scripts.keys.meta not in core.declared]
    results = yield [scripts.configure(core.undeclared) for scripts in missing]
    errors = [each for each in results if isinstance(each, DelayqError)]
    if len(errors) == len(shards):
        raise errors[0]
    for scripts, result in zip(missing, results, strict=True):
        if isinstance(result, DelayqError):
            core.outages.met(scripts.keys.meta, result)
        else:
            core.declared.add(scripts.keys.meta)
    if not errors:
        _settle(core)


def _settle(core: Core) -> None:
    core.undeclared, core.unlimited_until = {}, 0.0
    core.declared.clear()


def configuration(core: Core) -> Steps[Configuration]:
    """Read the configuration."""
    shards = yield from core.opened()
    return (yield from one(shards[0].configuration()))
