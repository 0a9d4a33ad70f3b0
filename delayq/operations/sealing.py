"""Sealing: from a payload and its options to what a send stores."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from itertools import repeat
from typing import get_args

import msgspec

from delayq.calls import Raw
from delayq.envelope import seal
from delayq.errors import InvalidInput, InvalidTime
from delayq.message import OnConflict, Outgoing
from delayq.names import check_id, new_ids
from delayq.operations.core import Core, check_retries
from delayq.times import delay_ms, timestamp_ms

SHARED_BYTES = 64 * 1024  # a larger message would hold up those that share its call
_ON_CONFLICT = get_args(OnConflict)


class Sealed(msgspec.Struct, frozen=True):
    """A message that is ready to go out."""

    id: str
    due: Raw
    envelope: bytes
    on_conflict: OnConflict
    named: bool


def may_share(message: Sealed) -> bool:
    """Whether a message may go out in one call with those of other threads: small, and safe to be sent twice."""
    return message.on_conflict == "ignore" and len(message.envelope) <= SHARED_BYTES


def seal_all(core: Core, outgoing: Iterable[Outgoing]) -> list[Sealed]:
    """Check messages and make them ready to go out; raises InvalidInput for any of them."""
    if not isinstance(outgoing, Iterable):
        raise InvalidInput(f"{outgoing!r} is not a list: give send_many a list of Outgoing(payload, …)")
    messages = list(outgoing)
    return list(map(seal_one, repeat(core), messages, new_ids(len(messages))))


def seal_one(core: Core, message: Outgoing, fresh: str) -> Sealed:
    """Check a message and make it ready to go out, under the id `fresh` if it has none; raises InvalidInput."""
    if not isinstance(message, Outgoing):
        raise InvalidInput(f"{message!r} is not an Outgoing: give send_many a list of Outgoing(payload, …)")
    if message.on_conflict not in _ON_CONFLICT:
        raise InvalidInput(f"on_conflict {message.on_conflict!r} is none of {', '.join(_ON_CONFLICT)}")
    settings = core.settings
    due = due_word(message.delay, message.at)
    retries = settings.max_retries if message.max_retries is None else check_retries(message.max_retries)
    expires = None if message.expires_in is None else _expiry(message)
    envelope = seal(message.payload, retries, expires, message.headers, settings.max_payload)
    if message.id is None:
        return Sealed(fresh, due, envelope, message.on_conflict, False)
    return Sealed(check_id(message.id), due, envelope, message.on_conflict, True)


def due_word(delay: object, at: dt.datetime | None) -> Raw:
    """Return a due time as scripts take it: '+delay_ms' or ms; without both, now.

    Raises:
        InvalidTime: both were given, or either is out of range.
    """
    if at is None:
        return "+0" if delay is None else f"+{delay_ms(delay)}"  # type: ignore[arg-type]  # delay_ms checks it
    if delay is not None:
        raise InvalidTime(f"delay={delay!r} and at={at!r} were given: give one of them")
    return timestamp_ms(at)


def _expiry(message: Outgoing) -> int:
    assert message.expires_in is not None
    expires = delay_ms(message.expires_in, "expires_in")
    # Whether `at` comes before the expiry is the server's clock to say: it will, when the message is due.
    if expires <= (0 if message.delay is None else delay_ms(message.delay)):
        raise InvalidTime(f"expires_in={message.expires_in!r} is over before the message is due: give a longer one")
    return expires
