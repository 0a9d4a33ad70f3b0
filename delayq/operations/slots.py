"""Slots: of the deliveries with the same key, so many run at a time; the others wait in the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from delayq import outcome as oc
from delayq.calls import Call, Steps, expect, one
from delayq.errors import DelayqError, InvalidInput, ServerUnreachable
from delayq.log import log, log_of
from delayq.message import Delivery
from delayq.operations.core import Core
from delayq.scripts import MAX_MOVED, Keyed

MAX_KEY_BYTES = 256
WAITING_AT_ONCE, SLOTS_AT_ONCE = 20, 5  # keys that are looked through a second, by each consumer


def key_of(choose: Callable[[Any], Any], message: Delivery) -> str | None:
    """Return the key of a message, None where it is not limited; raises what `choose` does, or InvalidInput."""
    key = choose(message)
    if key is None:
        return None
    if not isinstance(key, str) or not key or "\0" in key:
        raise InvalidInput(f"concurrency_key returned {key!r}: it takes a text that is not empty, without \\0, or None")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(f"concurrency_key returned {key!r}, which has no encoding: return other text") from error
    if size > MAX_KEY_BYTES:
        raise InvalidInput(f"concurrency_key returned a text of {size} bytes: it takes up to {MAX_KEY_BYTES}")
    return key


def freed(core: Core, ended: Iterable[tuple[Delivery, oc.Outcome]], chained: bool) -> Iterator[Call[int]]:
    """Yield the calls that give back the slots of deliveries.

    Args:
        chained: of those that others follow from, whose ack may yet be refused; or of the others, which have ended.
    """
    if core.settings.concurrency_key is None:
        return
    keyed = [
        Keyed(message.concurrency_key, message.id, message.receipt)
        for message, outcome in ended
        if message.concurrency_key is not None and isinstance(outcome, oc.Chained) == chained
    ]
    for start in range(0, len(keyed), MAX_MOVED):
        yield core.shards[0].free(keyed[start : start + MAX_MOVED])


def unused(core: Core, message: Delivery) -> Iterator[Call[int]]:
    """Yield the call that gives back the slot that may have been kept for a message that will not begin."""
    choose = core.settings.concurrency_key
    if choose is None:
        return
    try:
        key = key_of(choose, message)
    except BaseException as error:  # noqa: BLE001  # it would not have been admitted
        log_of(message).debug("concurrency_key failed", error=oc.error_text(error))
    else:
        if key is not None:
            yield core.shards[0].free([Keyed(key, message.id, "")])


def look_through(core: Core) -> Steps[None]:
    """Strike off slots that are held in vain, and let go what waits although there is room.

    Slots are lost with their consumers, and those that are kept for a message with what was cancelled. A few keys a
    call: the next one goes on behind them.
    """
    if core.settings.concurrency_key is None:
        return
    scripts, found = core.shards[0], set()
    try:
        indices = ((scripts.keys.waiting, WAITING_AT_ONCE), (scripts.keys.slots, SLOTS_AT_ONCE))
        replies = yield [scripts.held_keys(index, core.looked_through.get(index, ""), most) for index, most in indices]
        for (index, most), reply in zip(indices, replies, strict=True):
            keys: list[str] = expect(reply)
            core.looked_through[index] = keys[-1] if len(keys) == most else ""
            found.update(keys)
        if found:
            yield from one(scripts.free([Keyed(key, "", "") for key in sorted(found)]))
    except ServerUnreachable:
        raise
    except DelayqError as error:
        log.error("messages that wait for others of their key are not let go", queue=core.name, error=str(error))
