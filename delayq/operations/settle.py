"""Settle messages by the handler's outcome, and renew leases until then."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from delayq.errors import DelayqError, InvalidInput, ServerError, ServerNotReady, ServerUnreachable, StaleReceipt
from delayq.log import is_interrupt, log_of
from delayq.model import outcome as oc
from delayq.model.backoff import DEFAULT_BACKOFF, WaitAfterError
from delayq.model.delivery import Death, Delivery, check_process
from delayq.model.handler_progress import EVERY_SECONDS, HandlerProgress
from delayq.model.handler_progress import encoded as encoded_progress
from delayq.model.lease_clock import lease_now
from delayq.model.units import Seconds, delay_ms, lease_ms
from delayq.operations import key_slots, late_outcomes, schedule_chain, unknown_tasks
from delayq.operations.encode import encode_then
from delayq.operations.keep_results import kept, with_results
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, gather, unwrap
from delayq.protocol.queue_commands import MAX_IDS, QueueCommands

LEAST_BULK_BYTES = 1_000_000  # proto-max-bulk-len is at least a megabyte

D = TypeVar("D", bound=Delivery)


def settle(
    context: QueueContext, settled: Sequence[tuple[D, oc.Outcome]], consumer: str = ""
) -> Operation[list[bool | DelayqError]]:
    """Settle deliveries in one round trip; acks share calls.

    Args:
        consumer: its name, which the records of tasks keep.

    Returns:
        for each, True, or False if its receipt was stale, or the server's error. InvalidInput or DuplicateMessage is
        about messages in `then`; then nothing was changed.
    """
    if context.late_outcomes:
        results = yield from late_outcomes.beside(context, settled, partial(_settle, consumer=consumer), _note)
    else:
        results = yield from _settle(context, settled, consumer)
    kinds = {type(outcome) for _, outcome in settled}
    is_special = oc.AckAndSend in kinds or oc.Stopped in kinds or any(message.next_report for message, _ in settled)
    if is_special or context.claims.is_limited or context.limits_keys:
        yield from _follow_up(context, settled, results)
    return results


def _settle(
    context: QueueContext, settled: Sequence[tuple[D, oc.Outcome]], consumer: str = ""
) -> Operation[list[bool | DelayqError]]:
    results: list[bool | DelayqError] = [False] * len(settled)
    done = [
        position
        for position, (message, outcome) in enumerate(settled)
        if isinstance(outcome, oc.Done) and (not message._envelope.headers or message.retention is None)  # noqa: SLF001  # without a call for most
    ]
    if len(done) < len(settled):
        settled = yield from unknown_tasks.judged(context, settled, results)
    calls: list[Command[Any]] = []
    targets: list[Sequence[int]] = []
    for call, positions in _settlements(context, settled, done, results, consumer):
        calls.append(call)
        targets.append(positions)
    replies = (yield [*calls, *key_slots.freed(context, settled, chained=False)]) if calls else []
    for positions, reply in zip(targets, replies[: len(calls)], strict=True):
        if isinstance(reply, StaleReceipt):
            continue
        if isinstance(reply, DelayqError):
            late_outcomes.note(context, [settled[position][0] for position in positions], reply)
            for position in positions:
                results[position] = reply
        elif isinstance(reply, list):  # of acks
            for position, ours in zip(positions, reply, strict=True):
                results[position] = settled[position][0].settled = ours == 1
        else:
            (position,) = positions
            _note(*settled[position], reply)
            results[position] = True
    return results


def _follow_up(
    context: QueueContext, settled: Sequence[tuple[D, oc.Outcome]], results: Sequence[bool | DelayqError]
) -> Operation[None]:
    """Free what settled deliveries held, and let schedules go on whose occurrences they have replaced."""
    ended = (each for each, result in zip(settled, results, strict=True) if not isinstance(result, DelayqError))
    frees: list[Command[Any]] = list(key_slots.freed(context, ended, chained=True))
    if context.claims.is_limited or context.limits_keys:  # otherwise replaced messages hold no slots
        stale = [message for (message, _), ours in zip(settled, results, strict=True) if ours is False]
        frees += [context.shard(each.id).give_up_place(each.id, each.receipt) for each in stale]
    for message, outcome in settled:
        if isinstance(outcome, oc.Stopped):  # what is left of those that were acked nevertheless, `cancel` removes
            frees.append(context.shard(message.id).stopped([(message.id, message.receipt)]))
    for (message, _), ours in zip(settled, results, strict=True):
        if message.next_report and ours is True:
            frees.append(context.shard(message.id).forget_progress(message.id))
    if frees:
        with contextlib.suppress(ServerError):  # the messages are settled, and `look_through` finds unused slots
            yield frees
    replaced = [
        sent.id
        for (_, outcome), ours in zip(settled, results, strict=True)
        if type(outcome) is oc.AckAndSend and ours is True
        for sent in outcome.encoded or ()
        if sent.on_conflict == "replace"
    ]
    yield from schedule_chain.go_on(context, replaced)


def settle_each(
    context: QueueContext, settled: Sequence[tuple[D, oc.Outcome]], consumer: str = ""
) -> Operation[list[bool | DelayqError]]:
    """Settle deliveries in one round trip as `settle` does, but none shares a call with another."""
    results = yield from gather(*(settle(context, [each], consumer) for each in settled))
    return [each if isinstance(each, DelayqError) else each[0] for each in results]


def is_large(context: QueueContext, message: Delivery, outcome: oc.AckAndSend) -> bool:
    """Whether the messages to send may exceed the server's proto-max-bulk-len, so that it breaks the connection."""
    try:
        if outcome.encoded is None:
            outcome.encoded = encode_then(context, message.id, outcome.then)
    except BaseException as error:  # `settle` reports it
        if is_interrupt(error):
            raise
        return False
    return any(len(each.envelope) >= LEAST_BULK_BYTES for each in outcome.encoded)


def _note(message: Delivery, outcome: oc.Outcome, reply: Any) -> None:
    """Record the outcome in the message."""
    oc.mark(message, outcome)
    dead = _dead(message, outcome)
    if dead is not None and reply >= 0:  # otherwise it was cancelled meanwhile
        message.death = Death(reply, dead.reason, dead.error, dead.counted)


def settle_one(context: QueueContext, message: Delivery, outcome: oc.Outcome) -> Operation[None]:
    """Settle one delivery; raises StaleReceipt if it has ended, InvalidInput in a forked process."""
    check_process([message])
    (ours,) = yield from settle(context, [(message, outcome)])
    if not unwrap(ours):
        raise StaleReceipt(f"message {message.id} was settled, or its lease ran out; nothing was changed")


def ack(context: QueueContext, messages: D | Sequence[D], kind: type[D]) -> Operation[list[bool]]:
    """Ack messages of a `kind`; False if the receipt was stale; raises InvalidInput in a forked process."""
    batch = [messages] if isinstance(messages, kind) else messages
    if not isinstance(batch, Sequence) or not all(issubclass(each, kind) for each in set(map(type, batch))):
        raise InvalidInput("ack takes messages returned by receive, not their ids")
    check_process(batch)
    results = yield from settle(context, [(message, oc.DONE) for message in batch])
    return [each if isinstance(each, bool) else unwrap(each) for each in results]


def _settlements(
    context: QueueContext,
    settled: Sequence[tuple[D, oc.Outcome]],
    done: Sequence[int],
    results: list[bool | DelayqError],
    consumer: str,
) -> Iterator[tuple[Command[Any], Sequence[int]]]:
    """Yield calls, each with the positions that it settles; put errors of other positions into `results`.

    Args:
        done: the positions of those that are done and keep no result.
        results: an error for each that is not settled now.
    """
    if len(done) < len(settled):
        yield from with_results(context, settled, consumer)
        for position, (message, outcome) in enumerate(settled):
            if not (isinstance(outcome, oc.Done) or results[position]):
                try:
                    call = _settlement(context, context.shard(message.id), message, outcome, consumer)
                except InvalidInput as error:
                    results[position] = error
                except BaseException as error:  # `then` contains the handler's objects
                    if is_interrupt(error):
                        raise
                    results[position] = InvalidInput(f"the messages in then= cannot be sent: {oc.error_text(error)}")
                else:
                    yield call, [position]
    for scripts, positions in context.by_shard(done, lambda position: settled[position][0].id):
        for start in range(0, len(positions), MAX_IDS):
            chunk = positions[start : start + MAX_IDS]
            messages = [settled[position][0] for position in chunk]
            yield scripts.ack([(message.id, message.receipt) for message in messages]), chunk


def _settlement(
    context: QueueContext, scripts: QueueCommands, message: Delivery, outcome: oc.Outcome, consumer: str
) -> Command[Any]:
    if (dead := _dead(message, outcome)) is not None:
        record = kept(message, dead, consumer)
        return scripts.reject(message.id, message.receipt, dead.reason, dead.error, dead.counted, record)
    match outcome:
        case oc.Failed(delay_ms, error, cause, counts):
            wait = delay_ms
            if wait is None:
                own = context.task_backoffs.get(message.task or "") if context.task_backoffs else None
                wait = backoff_ms(own or context.backoff, message.retries_used + 1, cause, log_of(message))
            record = kept(message, outcome, consumer, wait)
            return scripts.nack(message.id, message.receipt, wait, error, message.fails_free(counts), kept=record)
        case oc.Unknown(_, error, delay_ms):
            handed_us = _handed_us(context, message)
            return scripts.nack(message.id, message.receipt, delay_ms, error, begun=False, handed_us=handed_us)
        case oc.Stopped():  # it was cancelled, so it does not become a dead letter
            return scripts.reject(message.id, message.receipt, oc.REASON_STOPPED)
        case oc.AckAndSend():
            return _chain(context, scripts, message, outcome, consumer)
        case oc.Released(behind, begun):
            due = int(message.handed_ms) if behind else message.due_ms
            handed_us = "" if begun else _handed_us(context, message)
            return scripts.release(message.id, message.receipt, due, handed_us, begun)
        case _:
            return scripts.expire(message.id, message.receipt, kept(message, outcome))


def _handed_us(context: QueueContext, message: Delivery) -> int | str:
    """Return when a delivery was handed out, to take it off the queue's rate; "" without a limit."""
    return round(message.handed_ms * 1000) if context.claims.is_limited else ""


def _dead(message: Delivery, outcome: oc.Outcome) -> oc.Dead | None:
    """Return how an outcome makes the message a dead letter; None if it does not."""
    if isinstance(outcome, oc.Failed) and message.dies_of(outcome.counts):
        return oc.Dead(oc.REASON_EXHAUSTED, outcome.error, cause=outcome.cause)
    return outcome if isinstance(outcome, oc.Dead) else None


def _chain(
    context: QueueContext, scripts: QueueCommands, message: Delivery, outcome: oc.AckAndSend, consumer: str
) -> Command[Any]:
    """Return the call that acks and sends; raises InvalidInput for the messages to send.

    A repeated call has the same ids: if a random id exists, the first call got through.
    """
    if outcome.encoded is None:
        outcome.encoded = encode_then(context, message.id, outcome.then)
    follow = [(each.id, each.due, each.envelope, each.on_conflict if each.named else "new") for each in outcome.encoded]
    return scripts.ack_then(message.id, message.receipt, follow, kept(message, outcome, consumer))


def backoff_ms(backoff: WaitAfterError, attempt: int, cause: BaseException | None, said: Any) -> int:
    """Return the wait before the retry after an attempt, ms; `said` is the message's log."""
    try:
        return delay_ms(backoff(attempt, cause), "backoff")
    except BaseException as error:  # it is the user's function, which must not block the message
        if is_interrupt(error):
            raise
        said.warning("backoff failed", error=oc.error_text(error))
        return delay_ms(DEFAULT_BACKOFF(attempt))


def extend(context: QueueContext, message: Delivery, seconds: Seconds) -> Operation[None]:
    """Make the lease end `seconds` from now; raises StaleReceipt, or InvalidInput in a forked process."""
    check_process([message])
    lease, asked = lease_ms(seconds), lease_now()
    until_ms = yield from execute(context.shard(message.id).extend(message.id, message.receipt, lease))
    if not until_ms:
        raise StaleReceipt(f"message {message.id} was replaced while it was running; nothing was changed")
    message.leased_until(until_ms)
    message.held_until = asked + lease / 1000


def report(context: QueueContext, message: Delivery, progress: HandlerProgress) -> Operation[None]:
    """Note how far a handler is; at most once a second. While the server is away, skip it: the work matters more.

    Raises:
        StaleReceipt; InvalidInput: in a forked process.
    """
    check_process([message])
    if (now := time.monotonic()) < message.next_report:
        return
    message.next_report = now + EVERY_SECONDS
    call = context.shard(message.id).progress(message.id, message.receipt, encoded_progress(progress))
    with contextlib.suppress(ServerUnreachable, ServerNotReady):
        yield from execute(call)


def renew(context: QueueContext, messages: Sequence[D], lease: int) -> Operation[tuple[list[D], DelayqError | None]]:
    """Make each lease end `lease` ms from now.

    Replaced messages are renewed too: they keep their concurrency slot until their handler ends.

    Returns:
        the messages whose deliveries have ended, each once, and an error of those that could not be renewed.
    """
    asked = lease_now()
    calls = [context.shard(message.id).extend(message.id, message.receipt, lease) for message in messages]
    lost, trouble = [], None
    for message, result in zip(messages, (yield calls), strict=True):
        if isinstance(result, StaleReceipt) or result == 0:
            if message.held_until:
                lost.append(message)
            message.held_until, message.is_replaced = 0.0, result == 0
        elif isinstance(result, DelayqError):  # as of an unavailable shard
            trouble = result
        else:
            message.leased_until(result)
            message.held_until = asked + lease / 1000
    return lost, trouble
