"""Store and read the configuration of a queue, which applies to all its consumers."""

from __future__ import annotations

from delayq.errors import DelayqError
from delayq.model.configuration import Configuration, check_shards, differences
from delayq.model.settings import Changes
from delayq.operations import key_slots
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, execute, unwrap


def configure(context: QueueContext, changes: Changes) -> Operation[None]:
    """Set or remove stored settings of a queue, in one step a shard.

    The settings given to this client's constructor are stored too, where none are stored yet. Raises InvalidInput for
    limits of a queue with several shards.
    """
    shards = yield from context.opened(create=True)
    check_shards(len(shards), context.wishes.left | changes, f"queue {context.name}")
    for result in (yield [scripts.configure(changes) for scripts in shards]):
        unwrap(result)
    context.wishes.drop(changes)
    yield from declare(context)
    context.follow((yield from execute(shards[0].configuration())))
    context.claims.unlimited_until = 0.0
    if "per_key" in changes:
        yield from key_slots.let_go(context)


def check(context: QueueContext, changes: Changes) -> Operation[None]:
    """Raise InvalidInput if `changes` are limits, and the queue has several shards."""
    check_shards(len((yield from context.opened())), changes, f"queue {context.name}")


def declare(context: QueueContext) -> Operation[None]:
    """Store the settings given to this client's constructor where none are stored yet; only `configure` changes them.

    A shard that refuses does not stop the others; it is asked again the next time.
    """
    wishes = context.wishes
    if not wishes.left:
        return
    shards = yield from context.opened(create=True)
    check_shards(len(shards), wishes.left, f"queue {context.name}")
    missing = wishes.missing(shards)
    *results, stored = yield [
        *(scripts.configure(wishes.left, are_wishes=True) for scripts in missing),
        shards[0].configuration(),
    ]
    if isinstance(stored, Configuration):
        for difference in differences(wishes.left, stored):
            context.tell_difference(*difference)
    errors = [each for each in results if isinstance(each, DelayqError)]
    if len(errors) == len(shards):
        raise errors[0]
    for scripts, result in zip(missing, results, strict=True):
        if isinstance(result, DelayqError):
            context.outages.met(scripts.keys.meta, result)
        else:
            wishes.stored(scripts.keys.meta)
    if not errors:
        wishes.done()
        context.claims.unlimited_until = 0.0


def configuration(context: QueueContext) -> Operation[Configuration]:
    """Read the configuration."""
    shards = yield from context.opened()
    return (yield from execute(shards[0].configuration()))
