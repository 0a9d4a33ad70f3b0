"""Encode a message: from a payload and its options to the stored form."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, repeat
from typing import get_args

import msgspec

from delayq.errors import InvalidInput, InvalidTime, OtherShard
from delayq.model.backoff import DEFAULT_RETRIES, check_retries
from delayq.model.delivery import OnConflict, Outgoing
from delayq.model.envelope import GROUP, MAX_PAYLOAD_BYTES, Headers, encode_envelope
from delayq.model.message_ids import new_id, new_ids
from delayq.model.outcome import MAX_THEN
from delayq.model.result import header_of_results
from delayq.model.task_name import header_of
from delayq.model.units import Seconds, delay_ms, due_word, lease_ms
from delayq.model.validation import check_id
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation
from delayq.protocol.queue_commands import QueueCommands

SHARED_BYTES = 64 * 1024  # a larger message would delay those that share its call
MAX_THEN_BYTES = 4 * 1024 * 1024  # of their envelopes: Redis does nothing else while it copies them
_ON_CONFLICT = get_args(OnConflict)


class EncodedMessage(msgspec.Struct, frozen=True):
    """A message that is ready to send.

    Attributes:
        unique_ms: how long it stays reserved after the send; 0 for not at all.
        mark: the text to reserve instead of its id, or "".
    """

    id: str
    due: str | int
    envelope: bytes
    on_conflict: OnConflict
    named: bool
    unique_ms: int = 0
    mark: str = ""

    @property
    def goes_alone(self) -> bool:
        """Whether it needs a call of its own."""
        return self.on_conflict == "replace"


def may_share(message: EncodedMessage) -> bool:
    """Whether a message may share a call with those of other threads: it is small and safe to send twice."""
    return message.on_conflict == "ignore" and len(message.envelope) <= SHARED_BYTES


def encode_all(context: QueueContext, outgoing: Iterable[Outgoing]) -> list[EncodedMessage]:
    """Check and encode messages; raises InvalidInput for any of them."""
    messages = listed(outgoing)
    return list(map(encode_one, repeat(context), messages, new_ids(len(messages))))


def listed(outgoing: Iterable[Outgoing]) -> list[Outgoing]:
    """Return messages as a list; raises InvalidInput if they are not a list."""
    if not isinstance(outgoing, Iterable):
        raise InvalidInput(f"{outgoing!r} is not a list: give send_many a list of Outgoing(payload, …)")
    return list(outgoing)


def no_outgoing(message: object, call: str = "send_many") -> InvalidInput:
    """Return the error for an object that is not an `Outgoing`."""
    return InvalidInput(f"{message!r} is not an Outgoing: give {call} a list of Outgoing(payload, …)")


def encode_then(context: QueueContext, message_id: str, then: Iterable[Outgoing]) -> list[EncodedMessage]:
    """Check and encode messages that another message sends in the step of its ack.

    Raises:
        InvalidInput: for any of them, or for all together; OtherShard, if an id belongs to another shard.
    """
    if isinstance(then, str | bytes) or not isinstance(then, Iterable):
        raise InvalidInput(f"then={then!r} is not a list: give a list of Outgoing(payload, …)")
    messages = list(islice(then, MAX_THEN + 1))
    if len(messages) > MAX_THEN:
        raise InvalidInput(
            f"then= has more than {MAX_THEN} messages for {message_id!r}: give one message that sends the others"
        )
    home = context.shard(message_id)
    encoded: dict[str, EncodedMessage] = {}
    for message in messages:
        if not isinstance(message, Outgoing):
            raise InvalidInput(f"{message!r} is not an Outgoing: give then= messages for this queue, as Outgoing(…)")
        if message.unique_for is not None:
            raise InvalidInput(f"unique_for={message.unique_for!r} is not allowed in then=: leave it out")
        each = encode_at(context, message, home)
        if context.shard(each.id) is not home:
            raise OtherShard(
                f"message id {each.id!r} belongs to another shard than {message_id!r}, and then= sends only within "
                "one shard: leave the id out to get one that fits, or send the message separately"
            )
        if each.id in encoded:
            raise InvalidInput(f"message id {each.id!r} is twice in then= of {message_id!r}: give each its own id")
        encoded[each.id] = each
    if sum(len(each.envelope) for each in encoded.values()) > MAX_THEN_BYTES:
        raise InvalidInput(
            f"the messages in then= of {message_id!r} take more than {MAX_THEN_BYTES:,} bytes: send less at once"
        )
    return list(encoded.values())


def encode_at(
    context: QueueContext, message: Outgoing, home: QueueCommands, group: str | None = None
) -> EncodedMessage:
    """Encode a message as `encode_one` does, with a random id that belongs to the shard `home` unless it has an id."""
    encoded = encode_one(context, message, new_id(), group)
    while message.id is None and context.shard(encoded.id) is not home:
        encoded = msgspec.structs.replace(encoded, id=fresh_id(context))
    return encoded


def fresh_id(context: QueueContext) -> str:
    """Return an id for something sent without one."""
    return context.id_factory() if context.id_factory else new_id()


def encode_one(context: QueueContext, message: Outgoing, fresh: str, group: str | None = None) -> EncodedMessage:
    """Check and encode a message, with the id `fresh` if it has none; raises InvalidInput."""
    encoded = encode_message(message, fresh, context.max_retries, context.settings.max_payload, group)
    if encoded.named or context.id_factory is None:
        return encoded
    return msgspec.structs.replace(encoded, id=context.id_factory())


def stored_retries(context: QueueContext) -> Operation[int]:
    """Return the retries of messages that are sent without a number."""
    yield from context.opened()
    return context.max_retries


def encode_message(
    message: Outgoing,
    fresh: str = "",
    max_retries: int = DEFAULT_RETRIES,
    max_payload: int = MAX_PAYLOAD_BYTES,
    group: str | None = None,
) -> EncodedMessage:
    """Check and encode a message for a queue with these settings, without a look at the queue; as `encode_one`.

    Args:
        group: the group that the message waits for.
    """
    if not isinstance(message, Outgoing):
        raise no_outgoing(message)
    if message.on_conflict not in _ON_CONFLICT:
        raise InvalidInput(f"unknown on_conflict {message.on_conflict!r}; expected one of {', '.join(_ON_CONFLICT)}")
    due = due_word(message.delay, message.at)
    retries = max_retries if message.max_retries is None else check_retries(message.max_retries)
    expires = None if message.expires_in is None else _expiry(message)
    timeout = None if message.timeout is None else lease_ms(message.timeout, "timeout")
    own: Headers | None = None if message.task is None else header_of(message.task, message.payload)
    if group is not None:
        own = {**(own or {}), GROUP: group}
    if message.results is not None:
        own = {**(own or {}), **header_of_results(message.results, message.task)}
    envelope = encode_envelope(message.payload, retries, expires, message.headers, max_payload, timeout, own)
    if message.unique_for is not None:
        return EncodedMessage(
            _unique_id(message), due, envelope, message.on_conflict, True, _unique_ms(message.unique_for)
        )
    if message.id is None:
        return EncodedMessage(fresh, due, envelope, message.on_conflict, False)
    return EncodedMessage(check_id(message.id), due, envelope, message.on_conflict, True)


def _unique_id(message: Outgoing) -> str:
    if message.id is None:
        raise InvalidInput(f"unique_for={message.unique_for!r} needs an id to reserve: give id=")
    if message.on_conflict == "replace":
        raise InvalidInput('unique_for and on_conflict="replace" exclude each other: give one of them')
    return check_id(message.id)


def _unique_ms(unique_for: Seconds) -> int:
    ms = delay_ms(unique_for, "unique_for")
    if ms == 0:
        raise InvalidTime(f"unique_for {unique_for!r} is not above 0 seconds")
    return ms


def _expiry(message: Outgoing) -> int:
    assert message.expires_in is not None
    expires = delay_ms(message.expires_in, "expires_in")
    # Only the server's clock can say whether `at` comes before the expiry; it is checked when the message is due.
    if expires <= (0 if message.delay is None else delay_ms(message.delay)):
        raise InvalidTime(f"expires_in={message.expires_in!r} ends before the message is due: give a longer time")
    return expires
