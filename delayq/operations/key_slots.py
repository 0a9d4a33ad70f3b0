"""Slots of keys: whether a claimed message may begin, or waits in the queue for others with its key to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from delayq.errors import DelayqError, InvalidInput, ServerUnreachable
from delayq.log import log, log_of
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.operations.queue_context import QueueContext, time_call
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import MAX_MOVED
from delayq.protocol.replies import KeyedDelivery

MAX_KEY_BYTES = 256


WAITING_AT_ONCE, SLOTS_AT_ONCE = 20, 5  # keys that each consumer checks a second
HASTE_AT_ONCE = 100  # keys with waiting messages in a call, while slots are known to be held in vain


def key_of(choose: Callable[[Any], Any], message: Delivery) -> str | None:
    """Return the key of a message, or None if it is not limited; raises what `choose` raises, or InvalidInput."""
    key = choose(message)
    if key is None:
        return None
    if not isinstance(key, str) or not key or "\0" in key:
        raise InvalidInput(f"concurrency_key returned {key!r}: return a non-empty string without \\0, or None")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"concurrency_key returned {key!r}, which cannot be encoded as UTF-8: return another string"
        ) from error
    if size > MAX_KEY_BYTES:
        raise InvalidInput(f"concurrency_key returned a string of {size} bytes: at most {MAX_KEY_BYTES} are allowed")
    return key


def freed(context: QueueContext, ended: Iterable[tuple[Delivery, oc.Outcome]], chained: bool) -> Iterator[Command[int]]:
    """Yield the calls that give back the slots of deliveries.

    Args:
        chained: whether to yield those of acks with `then`, which may still be refused, or those of the others.
    """
    if context.settings.concurrency_key is None:
        return
    keyed = [
        KeyedDelivery(message.concurrency_key, message.id, message.receipt)
        for message, outcome in ended
        if message.concurrency_key is not None and isinstance(outcome, oc.AckAndSend) == chained
    ]
    for start in range(0, len(keyed), MAX_MOVED):
        yield context.shards[0].release_slot(keyed[start : start + MAX_MOVED])


def unused(context: QueueContext, message: Delivery) -> Iterator[Command[int]]:
    """Yield the call that gives back the slot that may be reserved for a message that will not begin."""
    choose = context.settings.concurrency_key
    if choose is None:
        return
    try:
        key = key_of(choose, message)
    except BaseException as error:  # noqa: BLE001  # it would not have been admitted
        log_of(message).debug("concurrency_key failed", error=oc.error_text(error))
    else:
        if key is not None:
            yield context.shards[0].release_slot([KeyedDelivery(key, message.id, "")])


def let_go(context: QueueContext) -> Operation[None]:
    """Release all messages that wait for their key and have room since the limit was raised or lifted, a page a call.

    If the server refuses, consumers do it in `look_through`.
    """
    scripts, after = context.shards[0], ""
    try:
        while keys := (yield from execute(scripts.held_keys(scripts.keys.waiting, after, WAITING_AT_ONCE))):
            while (yield from execute(scripts.release_slot([KeyedDelivery(key, "", "") for key in keys]))):
                pass
            after = keys[-1]
    except DelayqError as error:
        log.warning("key-limited messages delayed", queue=context.name, error=str(error))


def look_through(context: QueueContext) -> Operation[bool]:
    """Free slots that are held in vain, and release messages that wait although there is room.

    Slots are lost when a consumer dies, and when a message with a reserved slot is cancelled. Each call checks a few
    keys and continues where the last call stopped. After leases have ended, all keys with waiting messages are checked
    once, in larger pages and without a pause: a slot of any of them may be free now.

    Returns:
        whether the rest of the keys should be checked at once.
    """
    if context.settings.concurrency_key is None:
        return False
    scripts, found = context.shards[0], set()
    try:
        sweeps, lost = context.sweeps, context.sweeps.leases_lost
        sweeps.leases_lost = 0
        if (yield from _replaced_have_ended(context)) or lost:
            sweeps.begin_in_haste(scripts.keys.waiting)
        waiting = HASTE_AT_ONCE if sweeps.keys_in_haste else WAITING_AT_ONCE
        indices = ((scripts.keys.waiting, waiting), (scripts.keys.slots, SLOTS_AT_ONCE))
        replies = yield [scripts.held_keys(index, sweeps.after(index), most) for index, most in indices]
        for (index, most), reply in zip(indices, replies, strict=True):
            keys: list[str] = unwrap(reply)
            sweeps.checked(index, keys, is_full=len(keys) == most)
            found.update(keys)
        sweeps.keys_in_haste &= bool(sweeps.after(scripts.keys.waiting))
        if found:
            yield from execute(scripts.release_slot([KeyedDelivery(key, "", "") for key in sorted(found)]))
    except ServerUnreachable:
        raise
    except DelayqError as error:
        context.sweeps.keys_in_haste = False
        log.error("key-limited messages not released", queue=context.name, error=str(error))
    return context.sweeps.keys_in_haste


def _replaced_have_ended(context: QueueContext) -> Operation[bool]:
    """Return whether leases of deliveries whose messages were replaced have ended since the last call."""
    key, since = context.shards[0].keys.replaced, context.sweeps.replaced_seen_ms
    first, now = yield [Command(key, ("ZCARD", key), int), time_call(context)]
    context.sweeps.replaced_seen_ms = unwrap(now)
    if not unwrap(first):
        return False
    ended = Command(key, ("ZCOUNT", key, f"({since}", context.sweeps.replaced_seen_ms), int)
    return (yield from execute(ended)) > 0
