"""What can be wrong with a message, and how to say it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from delayq.errors import UnreadableEnvelope
from delayq.model.envelope import parse
from delayq.model.outcome import REASON_PAYLOAD_MISSING
from delayq.model.placement import WAITING, State
from delayq.model.text import is_foreign_id, printable_id
from delayq.model.units import MAX_LEASE_MS, MAX_TIME_MS
from delayq.protocol.replies import StoredMessage

Severity = Literal["error", "warning"]

PRECEDENCE: tuple[State, ...] = ("unack", "retry", "ready", "pending", "held", "dead", "garbage")
"""A message that is in several structures is kept in the first of these."""


CLOCK_STEP_MS = 60_000  # after the server's clock was set back, a lease may look longer than allowed by this much


ATTEMPTS = re.compile(r"\d+\.\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Finding:
    r"""Something that is not as it should be.

    Attributes:
        kind: a word for this kind of finding.
        id: the message's id, or None if the finding is not about one message. A byte that is not UTF-8 is shown as
            in ``\xff``.
        text: what is wrong, with the values.
        remedy: what to do; if it was repaired, what was done.
        severity: an error breaks a guarantee of the queue; a warning may lead to one.
    """

    kind: str
    id: str | None
    text: str
    remedy: str
    severity: Severity = "error"
    repaired: bool = False

    def __str__(self) -> str:
        about = self.text if self.id is None else f"message {self.id} {self.text}"
        return f"{about}: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Step:
    """Progress of an examination.

    Attributes:
        text: what it is checking, or what it has repaired.
        done, total: messages checked, and about how many there are.
        finding: what was found or repaired in this step, or None.
    """

    text: str
    done: int = 0
    total: int = 0
    finding: Finding | None = None


def ailments(message_id: str, found: StoredMessage, now_ms: float) -> Iterator[Finding]:
    """Yield what is wrong with a message; `found` was read at one instant."""
    foreign, message_id = is_foreign_id(message_id), printable_id(message_id)
    states = [state for state in PRECEDENCE if state in found.scores]
    if len(states) > 1:
        where = " and ".join(states)
        yield Finding("duplicate", message_id, f"is in {where} at once", f"repair keeps it in {states[0]}")
    state = states[0] if states else None
    yield from _of_payload(message_id, found, state)
    if foreign and state in WAITING and found.stored is not None:
        text = f"is in {state}, but its id is not UTF-8: another program has put it there"
        yield Finding("id", message_id, text, "it becomes a dead letter when it is delivered", "warning")
    if state and not is_time(state, found.scores[state], now_ms):
        text = f"has the score {found.scores[state]:.0f} in {state}, which is not a possible time"
        yield Finding("score", message_id, text, "repair sets it to the nearest possible time")
    if found.deliveries is not None and not ATTEMPTS.fullmatch(found.deliveries):
        text = f"has unreadable attempts: {found.deliveries[:32]!r}"
        yield Finding("attempts", message_id, text, "repair resets them, so its next delivery counts as the first")
    left = list(_leftovers(found, state))
    if left:
        where = f"is in {state}" if state else "is in no structure"
        yield Finding("leftover", message_id, f"{where}, but still has its {', '.join(left)}", "repair removes them")


def is_time(state: State, score: float, now_ms: float) -> bool:
    """Whether a message of a state can have this score."""
    return 0 <= score <= (now_ms + MAX_LEASE_MS + CLOCK_STEP_MS if state == "unack" else MAX_TIME_MS)


def _of_payload(message_id: str, found: StoredMessage, state: State | None) -> Iterator[Finding]:
    kind = "payload-missing"
    if state is None:
        if found.stored is not None:
            text = "has a payload but is in no structure: it would never be delivered"
            yield Finding(
                "orphan", message_id, text, "repair moves it to the dead letters, where you can requeue or purge it"
            )
    elif found.stored is None:
        text = f"is in {state}, but its payload is gone: evicted, or deleted by another program"
        if state in WAITING:
            yield Finding(kind, message_id, text, f"repair moves it to the dead letters, as {REASON_PAYLOAD_MISSING}")
        elif state == "unack":
            remedy = "its consumer has the payload; if the delivery fails, it becomes a dead letter"
            yield Finding(kind, message_id, text, remedy, "warning")
        elif state == "dead" and found.reason != REASON_PAYLOAD_MISSING:
            yield Finding(kind, message_id, text, f"repair records {REASON_PAYLOAD_MISSING} as its reason")
    elif state in WAITING:
        try:
            parse(found.stored)
        except UnreadableEnvelope as error:
            remedy = "it becomes a dead letter when it is delivered; a newer delayq may be able to read it"
            yield Finding("unreadable", message_id, f"is in {state}, but {error}", remedy, "warning")


def _leftovers(found: StoredMessage, state: State | None) -> Iterator[str]:
    if state in (None, "garbage"):
        if found.deliveries is not None:
            yield "attempts"
        if found.error is not None:
            yield "last error"
    if found.reason is not None and state != "dead":
        yield "reason"
    if found.cancelled and state != "unack":
        yield "cancellation"
