"""Turn claimed ids into messages: fetch and open envelopes, and settle messages that no handler may see."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from delayq.errors import ServerUnreachable, StaleReceipt, UnreadableEnvelope
from delayq.log import log, log_of
from delayq.model import outcome as oc
from delayq.model.delivery import Deliveries, Delivery, receipt_of
from delayq.model.envelope import parse
from delayq.model.message_info import MessageInfo, content, dead_letter
from delayq.model.occurrence import SLOT, Occurrence, occurrence_id
from delayq.model.text import is_foreign_id, printable_id
from delayq.operations import acquire_slots, key_slots, schedule_chain, settle
from delayq.operations.keep_results import kept
from delayq.operations.queue_context import QueueContext
from delayq.operations.unfetched import ClaimedUnfetched
from delayq.protocol.command import Command
from delayq.protocol.late_reply import Silent
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.replies import LARGE_BYTES

D = TypeVar("D", bound=Delivery)


ALONE = 3  # tries to fetch one message alone: a bad link may cut two in a row
PARTS, LEAST_PART = 4, 50  # a part is opened while the server copies the next one

UNFETCHED = (
    "FetchFailed: the server closes the connection whenever this message is fetched. It may be larger than "
    "client-output-buffer-limit or maxmemory-clients allows: raise them, and requeue it"
)


def open_messages(
    context: QueueContext,
    make: Callable[..., D],
    claimed: ClaimedUnfetched,
    envelopes: list[bytes | None] | None,
) -> Operation[acquire_slots.Admitted]:
    """Open claimed messages; fetch them first, in one round trip, if they were not fetched yet."""
    opening, scripts = _Opening(context, make, claimed), claimed.scripts
    opened = opening.read(0, envelopes) if envelopes else (yield from _fetch(context, claimed, opening))
    messages, settlements, buried = opened.messages, opened.settlements, opened.buried
    following = (yield from schedule_chain.following(context, opened.occurrences)) if opened.occurrences else []
    if late := {each.message_id for each in following if each.is_skipped}:
        settlements += [call for each in messages if each.id in late for call in opening.expiry(each)]
        messages = [message for message in messages if message.id not in late]
    dead: list[MessageInfo] = []
    if settlements or buried or following:  # a stale receipt here means that the message has already moved on
        graves = [call for call, _ in buried]
        arming = [each.move.call(context) for each in following]
        replies = yield [*arming, *settlements, *graves]  # arm before settling as skipped
        yield from schedule_chain.note(context, following, replies)
        burials = zip(buried, replies[len(replies) - len(buried) :], strict=True)
        dead = [info(died_ms) for (_, info), died_ms in burials if isinstance(died_ms, int) and died_ms >= 0]
    if doubtful := [message for message in opened.doubtful if message.id not in late]:
        replies = yield [scripts.extend(message.id, message.receipt, claimed.lease) for message in doubtful]
        kept = [not isinstance(reply, StaleReceipt) and unwrap(reply) for reply in replies]
        gone = {message.id: message for message, ours in zip(doubtful, kept, strict=True) if not ours}
        messages = [message for message in messages if message.id not in gone]
        if 0 in replies:  # they will not run
            yield [scripts.give_up_place(each.id, each.receipt) for each in gone.values()]
    admitted = yield from acquire_slots.acquire_slots(context, scripts, messages)
    return admitted._replace(dead=[*dead, *admitted.dead]) if dead else admitted


def _fetch(context: QueueContext, claimed: ClaimedUnfetched, opening: _Opening[D]) -> Operation[_Opened[D]]:
    """Fetch and open as many envelopes as one round trip may bring, at least one; the next claim fetches the others.

    A server may close the connection because they are too large for the buffers that it allows its clients. Then the
    first one is fetched alone, and the next ones in smaller round trips. If it cannot be fetched even so, although the
    server has answered just before each of these tries, that is a failed attempt.
    """
    scripts, budget, ids = claimed.scripts, context.claims.budget, claimed.found.ids
    most = budget.most_bytes(claimed.lease)
    if claimed.failures:
        ids = ids[:1]
    is_bounded = len(ids) == 1 or (not claimed.found.has_large and len(ids) * LARGE_BYTES <= most)
    if claimed.failures or not is_bounded:
        ids = ids[: (yield from execute(scripts.fitting(ids, most)))]
    part = max(LEAST_PART, -(-len(ids) // PARTS))
    starts = range(0, len(ids), part)
    calls = [scripts.envelopes(ids[at : at + part], partial(opening.read, at), repeats=False) for at in starts]
    asked = time.monotonic()
    try:
        parts: list[_Opened[D]] = list(map(unwrap, (yield calls)))
    except Silent:
        raise  # the reply may still come, so nothing was cut
    except ServerUnreachable as error:
        budget.failed(most)
        claimed.failures += 1
        if claimed.failures <= ALONE:
            raise
        opened = opening.unfetched(error)
    else:
        opened, *others = parts
        for each in others:
            opened.add(each)
        budget.note(opened.count, opened.size, time.monotonic() - asked)
    if rest := claimed.keep(opened.count):
        context.claims.unfetched.append(rest)
    return opened


class _Opened(Generic[D]):
    """Messages to handle, calls that settle those that must not reach a handler, how many both are, and their bytes.

    Messages whose envelope was stored after the delivery are doubtful: they were replaced, and the new one may not be
    due (or the server's clock was set back).
    """

    def __init__(self) -> None:
        self.messages: list[D] = []
        self.doubtful: list[D] = []
        self.settlements: list[Command[Any]] = []
        self.buried: list[tuple[Command[int], Callable[[int], MessageInfo]]] = []  # with what makes its info
        self.occurrences: list[tuple[D, Occurrence]] = []  # of schedules
        self.count = 0
        self.size = 0

    def add(self, following: _Opened[D]) -> None:
        """Add what was opened after it."""
        for name, value in vars(following).items():
            setattr(self, name, getattr(self, name) + value)


class _Opening(Generic[D]):
    """Makes messages from a claim and the envelopes."""

    def __init__(self, context: QueueContext, make: Callable[..., D], claimed: ClaimedUnfetched) -> None:
        self._context = context
        self._scripts = claimed.scripts
        self._make = make
        self._claimed = claimed
        self._found = claimed.found

    def read(self, start: int, stored: list[bytes | None]) -> _Opened[D]:
        """Open the envelopes from number `start` on."""
        result: _Opened[D] = _Opened()
        result.count = len(stored)
        found, end = self._found, start + len(stored)
        make, messages, process = self._make, result.messages, self._claimed.process
        until, held_until = (
            self._claimed.until_ms,
            self._claimed.asked + self._claimed.lease / 1000,
        )  # renewed meanwhile
        handed, fresh = found.now_ms + found.micros / 1000, receipt_of(None, found.micros)
        rows = zip(found.ids[start:end], found.dues_ms[start:end], found.deliveries[start:end], stored, strict=True)
        for message_id, due, deliveries, envelope in rows:
            if envelope is None:
                error = "the payload key is gone: evicted, or deleted by another program"
                result.buried.append(self._buried(message_id, deliveries, oc.REASON_PAYLOAD_MISSING, error))
                continue
            result.size += len(envelope)
            if not message_id.isascii() and is_foreign_id(message_id):
                error = "the id is not UTF-8: another program put it there"
                result.buried.append(self._buried(message_id, deliveries, oc.REASON_UNREADABLE, error))
                continue
            try:
                created, opened = parse(envelope)
                receipt = receipt_of(deliveries, found.micros) if deliveries else fresh
                message = make(
                    process, message_id, created, opened, due, deliveries, handed, until, receipt, held_until
                )
                if opened.headers and SLOT in opened.headers and (of := self._occurrence(message)):
                    result.occurrences.append((message, of))
                if opened.expires_ms is not None and message.is_expired:
                    log_of(message).warning("message expired", expires_at=str(message.expires_at))
                    result.settlements += self.expiry(message)
                elif deliveries and message.is_past_its_limit:
                    known = content(created, opened)
                    result.buried.append(self._buried(message_id, deliveries, oc.REASON_CONSUMER_LOST, **known))
                    result.settlements += key_slots.unused(self._context, message)
                else:
                    messages.append(message)
                    if created > found.now_ms:
                        result.doubtful.append(message)
            except Exception as error:  # noqa: BLE001  # its content must not end the consumer, or keep back others
                if not isinstance(error, UnreadableEnvelope):
                    log.error(
                        "message unreadable", queue=self._context.name, id=printable_id(message_id), exc_info=error
                    )
                text = oc.error_text(error)
                result.buried.append(self._buried(message_id, deliveries, oc.REASON_UNREADABLE, text))
        return result

    def unfetched(self, error: ServerUnreachable) -> _Opened[D]:
        """Count the fetch of the first message, which failed alone, as an attempt.

        Its own limit cannot be read: the queue's applies.
        """
        result: _Opened[D] = _Opened()
        result.count = 1
        message_id, deliveries = self._found.ids[0], self._found.deliveries[0]
        before, text = Deliveries.read(deliveries), f"{UNFETCHED} ({error})"
        retries = before.past - before.attempts_reset
        if retries >= self._context.max_retries:
            result.buried.append(self._buried(message_id, deliveries, oc.REASON_UNFETCHED, text, counted=True))
            return result
        said = log.bind(queue=self._context.name, id=printable_id(message_id), attempt=before.past + 1)
        said.warning("delivery failed", next="retry", error=text)
        wait = settle.backoff_ms(self._context.backoff, retries + 1, None, said)
        receipt = receipt_of(deliveries, self._found.micros)
        result.settlements.append(self._scripts.nack(message_id, receipt, wait, text))
        return result

    def expiry(self, message: D) -> list[Command[Any]]:
        """Return the calls that settle a message which is too late to be handled."""
        expire = self._scripts.expire(message.id, message.receipt, kept(message, oc.Expired()))
        return [expire, *key_slots.unused(self._context, message)]

    def _occurrence(self, message: D) -> Occurrence | None:
        """Return the slot that a message was sent for; None if it has the id of another one."""
        of, shards = message.occurrence, len(self._context.shards)
        is_slot = of is not None and message.id == occurrence_id(of.name, of.slot_ms, shards)
        return of if is_slot else None

    def _buried(
        self,
        message_id: str,
        deliveries: str | None,
        reason: str,
        error: str = "",
        counted: bool = False,
        **known: Any,
    ) -> tuple[Command[int], Callable[[int], MessageInfo]]:
        name, before = self._context.name, Deliveries.read(deliveries)
        said = log.bind(queue=name, id=printable_id(message_id), attempt=before.past + 1)
        said.warning("message dead-lettered", next="dead", reason=reason, error=error)
        receipt = receipt_of(deliveries, self._found.micros)
        call = self._scripts.reject(message_id, receipt, reason, error, counted)
        last = error or oc.LEASE_LOST  # unless there is another
        return call, lambda died_ms: dead_letter(name, message_id, before, died_ms, reason, last, counted, **known)
