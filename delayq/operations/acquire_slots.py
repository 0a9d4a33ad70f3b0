"""A limit per key: each delivery that was claimed takes a slot of its key, or waits for one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from delayq.log import log_of, own_frames
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.model.interval import FALLBACK_MS
from delayq.model.message_info import MessageInfo, death_of
from delayq.operations import settle
from delayq.operations.key_slots import key_of
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Raw
from delayq.protocol.operation import Operation, gather, unwrap
from delayq.protocol.queue_commands import MAX_MOVED, QueueCommands
from delayq.protocol.replies import KeyedDelivery

NET_MS = 60_000  # after this time a waiting message comes back by itself, if nothing released it before


D = TypeVar("D", bound=Delivery)


class Admitted(NamedTuple):
    """The messages that may begin, how many others failed because they have no valid key, and which ones died."""

    messages: list[Any]
    failed: int = 0
    dead: Sequence[MessageInfo] = ()


def acquire_slots(context: QueueContext, scripts: QueueCommands, messages: list[D]) -> Operation[Admitted]:
    """Return the messages whose keys have room; the others wait, or failed because they have no valid key."""
    choose = context.settings.concurrency_key
    if choose is None or not messages or not context.limits_keys:
        return Admitted(messages)
    keyed: list[tuple[D, KeyedDelivery]] = []
    failed: list[tuple[D, oc.Outcome]] = []
    for message in messages:
        try:
            key = key_of(choose, message)
        except BaseException as error:  # noqa: BLE001  # it is the user's function, as a handler is
            failed.append((message, oc.of_error(error, message)))
            log_of(message).warning("concurrency_key failed", error=oc.error_text(error), exc_info=own_frames(error))
        else:
            if key is not None:
                keyed.append((message, KeyedDelivery(key, message.id, message.receipt, message.due_ms)))
    handed_us: Raw = round(messages[0].handed_ms * 1000) if context.claims.is_limited else ""  # all in one claim
    verdicts, results = yield from gather(
        _ask(context, scripts, [each for _, each in keyed], handed_us), settle.settle(context, failed)
    )
    ended = sum(ours is True for ours in unwrap(results))
    kept_back = {id(message) for message, _ in failed}
    for (message, each), verdict in zip(keyed, unwrap(verdicts), strict=False):  # there are none without a limit
        if verdict < 0:
            kept_back.add(id(message))
        else:
            message.admitted(each.key, verdict)
    dead = [info for message, _ in failed if (info := death_of(message)) is not None]
    return Admitted([message for message in messages if id(message) not in kept_back], ended, dead)


def _ask(
    context: QueueContext, scripts: QueueCommands, keyed: Sequence[KeyedDelivery], handed_us: Raw
) -> Operation[list[int]]:
    chunks = [keyed[start : start + MAX_MOVED] for start in range(0, len(keyed), MAX_MOVED)]
    if not chunks:
        return []
    replies = yield [scripts.acquire_slot(chunk, NET_MS, handed_us) for chunk in chunks]
    verdicts = [verdict for reply in replies for verdict in unwrap(reply)]
    if len(verdicts) < len(keyed):  # no limit is stored: ask again later
        context.claims.unlimited_until = time.monotonic() + FALLBACK_MS / 1000
        return []
    return verdicts
