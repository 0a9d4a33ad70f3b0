"""What is kept of tasks with results when their deliveries are settled: see `keep_result` in ``lua/prelude.lua``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.model.result import DEAD, DONE, EXPIRED, NOTHING, RETRY, encoded_error
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command
from delayq.protocol.queue_commands import MAX_RESULTS, Kept

MAX_BYTES = 1_000_000  # of the values in a call, and of the messages that its script copies

D = TypeVar("D", bound=Delivery)
_DONE = oc.Done(oc.KeptValue(NOTHING))


def is_plain(outcome: oc.Outcome) -> bool:
    """Whether an outcome is an ack that keeps nothing."""
    return isinstance(outcome, oc.Done) and not isinstance(outcome.value, oc.KeptValue)


def kept_done(message: Delivery) -> oc.Done:
    """Return the outcome of an ack without a value: also kept, if the message's result is."""
    return oc.DONE if message.wish is None else _DONE


def with_results(
    context: QueueContext, settled: Sequence[tuple[D, oc.Outcome]], consumer: str
) -> Iterator[tuple[Command[Any], Sequence[int]]]:
    """Yield the calls that ack tasks with results, each with the positions that it settles."""
    kept = {
        position: (message.id, message.receipt, kept_value(message, outcome.value, consumer))
        for position, (message, outcome) in enumerate(settled)
        if isinstance(outcome, oc.Done) and isinstance(outcome.value, oc.KeptValue)
    }
    if not kept:
        return
    for scripts, positions in context.by_shard(list(kept), lambda position: settled[position][0].id):
        chunk: list[int] = []
        size = 0
        for position in positions:
            message, outcome = settled[position]
            weight = len(outcome.value) + len(message.body)  # type: ignore[union-attr]
            if chunk and (len(chunk) == MAX_RESULTS or size + weight > MAX_BYTES):
                yield scripts.ack_result([kept[each] for each in chunk]), chunk  # type: ignore[misc]
                chunk, size = [], 0
            chunk.append(position)
            size += weight
        yield scripts.ack_result([kept[each] for each in chunk]), chunk  # type: ignore[misc]


def kept_value(message: Delivery, value: bytes, consumer: str) -> Kept | tuple[()]:
    """Return what to keep of a task that is done."""
    return _kept(message, DONE, message.attempt, consumer, value)


def kept_death(message: Delivery, dead: oc.Dead, consumer: str) -> Kept | tuple[()]:
    """Return what to keep of a task whose message dies."""
    if message.wish is None:
        return ()
    attempts = message.before.past + dead.counted
    return _kept(
        message, DEAD, attempts, consumer if dead.counted else "", encoded_error(dead.error, dead.reason, dead.cause)
    )


def kept_failure(
    message: Delivery, error: str, cause: BaseException | None, wait_ms: int, consumer: str
) -> Kept | tuple[()]:
    """Return what to keep of an attempt that has failed, until after the next one."""
    if message.wish is None:
        return ()
    return _kept(message, RETRY, message.attempt, consumer, encoded_error(error, cause=cause), wait_ms)


def kept_expiry(message: Delivery) -> Kept | tuple[()]:
    """Return what to keep of a task whose message has expired."""
    if message.wish is None:
        return ()
    text = f"it was not started by {message.expires_at}"
    return _kept(message, EXPIRED, message.before.past, "", encoded_error(text, EXPIRED))


def _kept(
    message: Delivery, status: str, attempts: int, consumer: str, text: bytes, more_ms: int = 0
) -> Kept | tuple[()]:
    wish = message.wish
    if wish is None:
        return ()
    started = f"{message.handed_ms:.3f}"
    return wish.keep_ms + more_ms, wish.token, status, started, attempts, consumer.replace("\n", " "), text
