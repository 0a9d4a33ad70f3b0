"""What may be wrong with a message, and how it is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from delayq.errors import UnreadableEnvelope
from delayq.model.envelope import parse
from delayq.model.outcome import REASON_PAYLOAD_MISSING
from delayq.model.placement import State
from delayq.model.text import is_foreign_id, printable_id
from delayq.model.units import MAX_LEASE_MS, MAX_TIME_MS
from delayq.protocol.replies import StoredMessage

Severity = Literal["error", "warning"]


PRECEDENCE: tuple[State, ...] = ("unack", "retry", "ready", "pending", "dead", "garbage")
"""Where a message that is in several structures is kept: the first of these."""


WAITING: tuple[State, ...] = ("pending", "ready", "retry")


CLOCK_STEP_MS = 60_000  # a lease may seem longer than allowed by as much, once the server's clock was set back


ATTEMPTS = re.compile(r"\d+\.\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Finding:
    r"""Something that is not as it should be.

    Attributes:
        kind: a word for it, the same for all of its kind.
        id: the message's, or None when it is not about one message; a byte that is no UTF-8 as in ``\xff``.
        text: what is wrong, with the values.
        remedy: what to do, or, when it was repaired, what was done.
        severity: an error breaks a promise of the queue; a warning may lead there.
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
    """How far an examination has come.

    Attributes:
        text: what it looks at now, or what it has repaired.
        done, total: messages looked at, and about how many there are.
        finding: what was found or repaired in this step, or None.
    """

    text: str
    done: int = 0
    total: int = 0
    finding: Finding | None = None


def ailments(message_id: str, found: StoredMessage, now_ms: float) -> Iterator[Finding]:
    """What is wrong with a message, of which this was found at one instant."""
    foreign, message_id = is_foreign_id(message_id), printable_id(message_id)
    states = [state for state in PRECEDENCE if state in found.scores]
    if len(states) > 1:
        where = " and ".join(states)
        yield Finding("duplicate", message_id, f"is in {where} at once", f"repair keeps it in {states[0]}")
    state = states[0] if states else None
    yield from _of_payload(message_id, found, state)
    if foreign and state in WAITING and found.stored is not None:
        text = f"is in {state}, but its id is no UTF-8: another program has put it there"
        yield Finding("id", message_id, text, "its delivery will put it among the dead letters", "warning")
    if state and not is_time(state, found.scores[state], now_ms):
        text = f"has the score {found.scores[state]:.0f} in {state}, which is not a time that it can have"
        yield Finding("score", message_id, text, "repair sets it to the nearest that it can have")
    if found.deliveries is not None and not ATTEMPTS.fullmatch(found.deliveries):
        text = f"has the attempts {found.deliveries[:32]!r}, which are unreadable"
        yield Finding("attempts", message_id, text, "repair forgets them: its next delivery counts as the first")
    left = list(_leftovers(found, state))
    if left:
        where = f"is in {state}" if state else "is in no structure"
        yield Finding("leftover", message_id, f"{where}, but for its {', '.join(left)}", "repair removes what is left")


def is_time(state: State, score: float, now_ms: float) -> bool:
    """Whether a message of a state can have this score."""
    return 0 <= score <= (now_ms + MAX_LEASE_MS + CLOCK_STEP_MS if state == "unack" else MAX_TIME_MS)


def _of_payload(message_id: str, found: StoredMessage, state: State | None) -> Iterator[Finding]:
    kind = "payload-missing"
    if state is None:
        if found.stored is not None:
            text = "has a payload, but is in no structure: it would never be delivered"
            yield Finding("orphan", message_id, text, "repair puts it among the dead letters, to be requeued or purged")
    elif found.stored is None:
        text = f"is in {state}, but its payload is gone: evicted, or deleted by another program"
        if state in WAITING:
            yield Finding(kind, message_id, text, f"repair puts it among the dead letters, as {REASON_PAYLOAD_MISSING}")
        elif state == "unack":
            remedy = "its consumer has the payload; should the delivery fail, it comes among the dead letters"
            yield Finding(kind, message_id, text, remedy, "warning")
        elif state == "dead" and found.reason != REASON_PAYLOAD_MISSING:
            yield Finding(kind, message_id, text, f"repair notes {REASON_PAYLOAD_MISSING} as the reason of its death")
    elif state in WAITING:
        try:
            parse(found.stored)
        except UnreadableEnvelope as error:
            remedy = "its delivery will put it among the dead letters; a newer delayq may read it"
            yield Finding("unreadable", message_id, f"is in {state}, but {error}", remedy, "warning")


def _leftovers(found: StoredMessage, state: State | None) -> Iterator[str]:
    if state in (None, "garbage"):
        if found.deliveries is not None:
            yield "attempts"
        if found.error is not None:
            yield "last error"
    if found.reason is not None and state != "dead":
        yield "reason of death"
    if found.cancelled and state != "unack":
        yield "cancellation in flight"
