"""Admitting: whether what was handed out may begin, or waits in the queue for others of its key to end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from delayq import outcome as oc
from delayq.calls import Raw, Steps, expect, together
from delayq.log import log_of
from delayq.message import Delivery
from delayq.operations import settling
from delayq.operations.core import Core
from delayq.operations.slots import key_of
from delayq.pace import FALLBACK_MS
from delayq.scripts import MAX_MOVED, Keyed, Scripts

NET_MS = 60_000  # after which what waits comes by itself, should nobody have let it go

D = TypeVar("D", bound=Delivery)


class Admitted(NamedTuple):
    """The messages that may begin, and how many others have failed for want of a key."""

    messages: list[Any]
    failed: int = 0


def admit(core: Core, scripts: Scripts, messages: list[D]) -> Steps[Admitted]:
    """Return the messages whose keys have room for them; the others wait, or have failed for want of a key."""
    choose = core.settings.concurrency_key
    if choose is None or not messages or not core.limits_keys:
        return Admitted(messages)
    keyed: list[tuple[D, Keyed]] = []
    failed: list[tuple[D, oc.Outcome]] = []
    for message in messages:
        try:
            key = key_of(choose, message)
        except BaseException as error:  # noqa: BLE001  # it is the user's function, as a handler is
            failed.append((message, oc.of_error(error)))
            log_of(message).warning("concurrency_key failed", error=oc.error_text(error), exc_info=error)
        else:
            if key is not None:
                keyed.append((message, Keyed(key, message.id, message.receipt, message.due_ms)))
    handed_us: Raw = round(messages[0].handed_ms * 1000) if core.is_limited else ""  # all in one claim
    verdicts, results = yield from together(
        _ask(core, scripts, [each for _, each in keyed], handed_us), settling.settle(core, failed)
    )
    ended = sum(ours is True for ours in expect(results))
    kept_back = {id(message) for message, _ in failed}
    for (message, each), verdict in zip(keyed, expect(verdicts), strict=False):  # there are none without a limit
        if verdict < 0:
            kept_back.add(id(message))
        else:
            message.admitted(each.key, verdict)
    return Admitted([message for message in messages if id(message) not in kept_back], ended)


def _ask(core: Core, scripts: Scripts, keyed: Sequence[Keyed], handed_us: Raw) -> Steps[list[int]]:
    chunks = [keyed[start : start + MAX_MOVED] for start in range(0, len(keyed), MAX_MOVED)]
    if not chunks:
        return []
    replies = yield [scripts.admit(chunk, NET_MS, handed_us) for chunk in chunks]
    verdicts = [verdict for reply in replies for verdict in expect(reply)]
    if len(verdicts) < len(keyed):  # no limit is stored: to be asked again when it may be
        core.unlimited_until = time.monotonic() + FALLBACK_MS / 1000
        return []
    return verdicts
