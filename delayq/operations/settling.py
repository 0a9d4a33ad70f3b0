"""Settling: from handed out to what the handler decided; and the leases until then."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from delayq import outcome as oc
from delayq.backoff import exponential
from delayq.calls import Call, Steps, expect, one
from delayq.errors import DelayqError, InvalidInput, ServerError, StaleReceipt
from delayq.log import log_of
from delayq.message import Delivery
from delayq.operations import slots
from delayq.operations.core import Core
from delayq.operations.sealing import seal_then
from delayq.scripts import MAX_IDS, Scripts
from delayq.times import Seconds, delay_ms, lease_ms

DEFAULT_BACKOFF = exponential()

D = TypeVar("D", bound=Delivery)


def settle(core: Core, settled: Sequence[tuple[D, oc.Outcome]]) -> Steps[list[bool | DelayqError]]:
    """Settle deliveries in one round trip; acks share calls.

    Returns:
        for each, whether it was ours (else its receipt was stale), or the error that kept the server from saying; or
        InvalidInput or DuplicateMessage, for what was to follow from it: nothing was changed.
    """
    results: list[bool | DelayqError] = [False] * len(settled)
    calls: list[Call[Any]] = []
    targets: list[Sequence[int]] = []
    for call, positions in _settlements(core, settled, results):
        calls.append(call)
        targets.append(positions)
    replies = (yield [*calls, *slots.freed(core, settled, chained=False)]) if calls else []
    for positions, reply in zip(targets, replies[: len(calls)], strict=True):
        if isinstance(reply, StaleReceipt):
            continue
        if isinstance(reply, DelayqError):
            for position in positions:
                results[position] = reply
            continue
        for position, ours in zip(positions, reply if isinstance(reply, list) else (1,), strict=True):
            results[position] = settled[position][0].settled = ours == 1
    ended = (each for each, result in zip(settled, results, strict=True) if not isinstance(result, DelayqError))
    if frees := list(slots.freed(core, ended, chained=True)):
        with contextlib.suppress(ServerError):  # they are settled: a slot that is kept in vain is found out
            yield frees
    return results


def settle_one(core: Core, message: Delivery, outcome: oc.Outcome) -> Steps[None]:
    """Settle one delivery; raises StaleReceipt when it is no longer ours."""
    (ours,) = yield from settle(core, [(message, outcome)])
    if not expect(ours):
        raise StaleReceipt(
            f"message {message.id} is no longer ours: it was settled, or its lease ran out; nothing was changed"
        )


def ack(core: Core, messages: D | Sequence[D], kind: type[D]) -> Steps[list[bool]]:
    """Settle messages of a `kind` as done; False where the receipt was stale."""
    batch = [messages] if isinstance(messages, kind) else messages
    if not isinstance(batch, Sequence) or not all(issubclass(each, kind) for each in set(map(type, batch))):
        raise InvalidInput("ack takes messages as receive returned them, not their ids")
    results = yield from settle(core, [(message, oc.DONE) for message in batch])
    return [each if isinstance(each, bool) else expect(each) for each in results]


def _settlements(
    core: Core, settled: Sequence[tuple[D, oc.Outcome]], results: list[bool | DelayqError]
) -> Iterator[tuple[Call[Any], Sequence[int]]]:
    """Yield calls, each with the positions that it settles; note in `results` what cannot be called."""
    done = [position for position, (_, outcome) in enumerate(settled) if isinstance(outcome, oc.Done)]
    if len(done) < len(settled):
        for position, (message, outcome) in enumerate(settled):
            if not isinstance(outcome, oc.Done):
                try:
                    call = _settlement(core, core.shard(message.id), message, outcome)
                except InvalidInput as error:
                    results[position] = error
                except Exception as error:  # noqa: BLE001  # what follows is made of the handler's objects
                    results[position] = InvalidInput(f"what was to follow cannot be sent: {oc.error_text(error)}")
                else:
                    yield call, [position]
    for scripts, positions in core.by_shard(done, lambda position: settled[position][0].id):
        for start in range(0, len(positions), MAX_IDS):
            chunk = positions[start : start + MAX_IDS]
            messages = [settled[position][0] for position in chunk]
            yield scripts.ack([(message.id, message.receipt) for message in messages]), chunk


def _settlement(core: Core, scripts: Scripts, message: Delivery, outcome: oc.Outcome) -> Call[Any]:
    match outcome:
        case oc.Failed(delay_ms, error) if not message.is_last:
            wait = _backoff_ms(core, message) if delay_ms is None else delay_ms
            return scripts.nack(message.id, message.receipt, wait, error)
        case oc.Failed(_, error):
            return scripts.reject(message.id, message.receipt, oc.REASON_EXHAUSTED, error)
        case oc.Chained():
            return _chain(core, scripts, message, outcome)
        case oc.Dead(reason, error, counted):
            return scripts.reject(message.id, message.receipt, reason, error, counted)
        case oc.HandedBack(behind):
            due = int(message.handed_ms) if behind else message.due_ms
            handed_us = round(message.handed_ms * 1000) if core.is_limited else ""
            return scripts.release(message.id, message.receipt, due, handed_us)
        case _:
            return scripts.expire(message.id, message.receipt)


def _chain(core: Core, scripts: Scripts, message: Delivery, outcome: oc.Chained) -> Call[Any]:
    """Return the call that acks and sends; raises InvalidInput for what is to be sent.

    Sent again unasked, it has the same ids: one that is random and there tells that the first copy has gone through.
    """
    if outcome.sealed is None:
        outcome.sealed = seal_then(core, message.id, outcome.then)
    follow = [(each.id, each.due, each.envelope, each.on_conflict if each.named else "new") for each in outcome.sealed]
    return scripts.ack_then(message.id, message.receipt, follow)


def _backoff_ms(core: Core, message: Delivery) -> int:
    try:
        return delay_ms(core.settings.backoff(message.retries_used + 1), "backoff")
    except Exception as error:  # noqa: BLE001  # it is the user's function: the message must not hang on it
        log_of(message).warning("the backoff failed: the default one is used", error=oc.error_text(error))
        return delay_ms(DEFAULT_BACKOFF(message.retries_used + 1))


def extend(core: Core, message: Delivery, seconds: Seconds) -> Steps[None]:
    """Let the lease end `seconds` from now; raises StaleReceipt."""
    lease, asked = lease_ms(seconds), time.monotonic()
    message.leased_until((yield from one(core.shard(message.id).extend(message.id, message.receipt, lease))))
    message.held_until = asked + lease / 1000


def renew(core: Core, messages: Sequence[D], lease: int) -> Steps[list[D]]:
    """Let each lease end `lease` ms from now; return the messages that are no longer ours."""
    asked = time.monotonic()
    calls = [core.shard(message.id).extend(message.id, message.receipt, lease) for message in messages]
    lost = []
    for message, result in zip(messages, (yield calls), strict=True):
        if isinstance(result, StaleReceipt):
            message.held_until = 0.0
            lost.append(message)
        elif not isinstance(result, DelayqError):  # a shard that does not serve is asked again at the next heartbeat
            message.leased_until(result)
            message.held_until = asked + lease / 1000
    return lost
