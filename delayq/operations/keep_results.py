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


def with_results(
    context: QueueContext, settled: Sequence[tuple[D, oc.Outcome]], consumer: str
) -> Iterator[tuple[Command[Any], Sequence[int]]]:
    """Yield the calls that ack tasks with results, each with the positions that it settles."""
    found = {
        position: (message.id, message.receipt, record)
        for position, (message, outcome) in enumerate(settled)
        if isinstance(outcome, oc.Done) and (record := kept(message, outcome, consumer))
    }
    if not found:
        return
    for scripts, positions in context.by_shard(list(found), lambda position: settled[position][0].id):
        chunk: list[int] = []
        size = 0
        for position in positions:
            weight = len(found[position][2][-1]) + len(settled[position][0].body)
            if chunk and (len(chunk) == MAX_RESULTS or size + weight > MAX_BYTES):
                yield scripts.ack_result([found[each] for each in chunk]), chunk
                chunk, size = [], 0
            chunk.append(position)
            size += weight
        yield scripts.ack_result([found[each] for each in chunk]), chunk


def kept(message: Delivery, outcome: oc.Outcome, consumer: str = "", wait_ms: int = 0) -> Kept | tuple[()]:
    """Return what to keep of a delivery; empty if its message keeps no result.

    Args:
        consumer: the name of the one that ran it.
        wait_ms: until the next attempt, if `outcome` is a failure that is retried.
    """
    retention = message.retention
    if retention is None:
        return ()
    attempts = message.attempt
    match outcome:
        case oc.Dead(reason, error, counted, cause):
            status, text = DEAD, encoded_error(error, reason, cause)
            attempts, consumer = message.before.past + counted, consumer if counted else ""
        case oc.Failed(_, error, cause):
            status, text = RETRY, encoded_error(error, cause=cause)
        case oc.Expired():
            status, text = EXPIRED, encoded_error(f"it was not started by {message.expires_at}", EXPIRED)
            attempts = message.before.past
        case _:
            value = outcome.value if isinstance(outcome, oc.Done) else None  # a handler may also ack by itself
            status, text = DONE, value if isinstance(value, oc.KeptValue) else NOTHING
    started = f"{message.handed_ms:.3f}"
    ms = retention.keep_ms + wait_ms
    return ms, retention.token, status, started, attempts, consumer.replace("\n", " "), text
