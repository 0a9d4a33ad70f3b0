"""A message as its consumer and an operator see it, in the queue and in the model."""

from __future__ import annotations

from typing import Any

from delayq import Message
from delayq.model.units import from_ms
from delayq.types import MessageInfo
from tests.harness.model.held import WAITING, Handed, Held, timeout_of

KNOWN = (
    *("state", "due_at", "lease_until", "died_at", "attempts", "error", "reason", "cancelled", "payload"),
    *("max_retries", "timeout", "created_at", "expires_at"),
)


def seen(message: Message) -> tuple[Any, ...]:
    late_micros = round(message.lateness * 1_000_000)
    when = (message.due_at, message.lease_until, late_micros)
    return message.id, message.payload, message.attempt, message.max_retries, message.timeout, *when


def seen_by_model(handed: Handed) -> tuple[Any, ...]:
    when = (from_ms(handed.due), from_ms(handed.lease_end), handed.at_us - handed.due * 1000)
    return handed.id, handed.payload, handed.attempt, handed.max_retries, timeout_of(handed.max_retries), *when


def known(info: MessageInfo | None) -> dict[str, Any] | None:
    return None if info is None else {name: getattr(info, name) for name in KNOWN}


def known_to_model(m: Held | None, garbage: bool = False) -> dict[str, Any] | None:
    if m is None or (m.state == "garbage" and not garbage):
        return None
    return {
        "state": m.state,
        "due_at": from_ms(m.score) if m.state in WAITING else None,
        "lease_until": from_ms(m.lease_end) if m.state == "unack" else None,
        "died_at": from_ms(m.score) if m.state == "dead" else None,
        "attempts": (m.past if m.known else 0) + (m.state == "unack"),
        "error": m.error,
        "reason": m.reason,
        "cancelled": m.cancelled and m.state == "unack",
        "payload": m.payload if m.has_payload else None,
        "max_retries": m.max_retries if m.has_payload else None,
        "timeout": timeout_of(m.max_retries) if m.has_payload else None,
        "created_at": from_ms(m.created) if m.has_payload else None,
        "expires_at": from_ms(m.created + m.expires) if m.has_payload and m.expires is not None else None,
    }
