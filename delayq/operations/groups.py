"""Groups of messages: a message that waits until all others of a group have ended."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from delayq.errors import DelayqError, DuplicateMessage, InvalidInput, NoResult, OtherShard, QueueFull
from delayq.model.delivery import Outgoing, SentMessage
from delayq.model.envelope import decode_json
from delayq.model.message_group import MODES, MessageGroupInfo, OnDead, SentGroup, belongs_to, read_group
from delayq.model.result import failure, missing
from delayq.model.text import decode_id
from delayq.model.units import from_ms
from delayq.model.validation import check_id
from delayq.operations import results, scan
from delayq.operations.encode import MAX_THEN_BYTES, EncodedMessage, encode_at, fresh_id, no_outgoing
from delayq.operations.queue_context import QueueContext
from delayq.operations.send import asked_ms, prepared, within_middleware
from delayq.protocol.operation import Operation, execute, gather, unwrap
from delayq.protocol.queue_commands import QueueCommands

MAX_MEMBERS = 1000
CANCELS_A_TRIP = 100
EXISTS, ID_EXISTS, IS_FULL = -1, -2, -3


class _Named(NamedTuple):
    """A group to send; `named` if the caller chose its id."""

    id: str
    dead: OnDead
    named: bool


def send_group(
    context: QueueContext, messages: Iterable[Outgoing], then: Outgoing | None, name: str | None, dead: OnDead
) -> Operation[SentGroup]:
    """Send a group, all of it or nothing, within the queue's middleware."""
    members = _members(messages)
    if not isinstance(dead, str) or dead not in MODES:
        raise InvalidInput(f"unknown dead {dead!r}; expected one of {', '.join(MODES)}")
    given = members if then is None else [then, *members]
    _check_options(given)
    for each in ([] if name is None else [name]) + [each.id for each in given if each.id is not None]:
        check_id(each)
    yield from prepared(context)
    named = name or next((each.id for each in given if each.id is not None), None)
    group = name or fresh_id(context)
    home = context.shard(named or group)
    while name is None and context.shard(group) is not home:
        group = fresh_id(context)
    if context.shard(group) is not home:
        raise _other_shard(group)

    def send(outgoing: Sequence[Outgoing]) -> Operation[list[SentMessage]]:
        encoded = _encoded(context, outgoing, home, None if then is None else group)
        return (yield from _send(context, home, _Named(group, dead, name is not None), encoded, then is not None))

    sents = yield from within_middleware(context, given, send)
    return SentGroup(group, sents if then is None else sents[1:])


def _members(messages: Iterable[Outgoing]) -> list[Outgoing]:
    if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
        raise InvalidInput(f"{messages!r} is not a list: give send_group a list of Outgoing(payload, …)")
    members = list(islice(messages, MAX_MEMBERS + 1))
    if len(members) > MAX_MEMBERS:
        raise InvalidInput(f"the group has more than {MAX_MEMBERS:,} members: send several groups")
    return members


def _check_options(given: Sequence[Outgoing]) -> None:
    for message in given:
        if not isinstance(message, Outgoing):
            raise no_outgoing(message, "send_group")
        if message.unique_for is not None:
            raise InvalidInput(f"unique_for={message.unique_for!r} is not allowed in a group: leave it out")
        if message.on_conflict == "replace":
            raise InvalidInput('on_conflict="replace" is not allowed in a group: its ids must be new')


def _encoded(
    context: QueueContext, outgoing: Sequence[Outgoing], home: QueueCommands, group: str | None
) -> list[EncodedMessage]:
    """Check and encode messages; with a `group`, the first of them waits for it."""
    encoded: dict[str, EncodedMessage] = {}
    for number, message in enumerate(outgoing):
        each = encode_at(context, message, home, None if number else group)
        if context.shard(each.id) is not home:
            raise _other_shard(each.id)
        if each.id in encoded:
            raise InvalidInput(f"message id {each.id!r} is twice in the group: give each message its own id")
        encoded[each.id] = each
    if sum(len(each.envelope) for each in encoded.values()) > MAX_THEN_BYTES:
        raise InvalidInput(f"the messages of the group take more than {MAX_THEN_BYTES:,} bytes: send several groups")
    return list(encoded.values())


def _other_shard(name: str) -> OtherShard:
    return OtherShard(
        f"id {name!r} belongs to another shard than the other ids of the group, and a group lives on one: leave ids "
        "out to get some that fit"
    )


def _send(
    context: QueueContext, home: QueueCommands, group: _Named, encoded: Sequence[EncodedMessage], waits: bool
) -> Operation[list[SentMessage]]:
    triples = [(each.id, f"{each.due}", each.envelope) for each in encoded]
    has_names = any(each.named for each in encoded)
    reply = yield from execute(home.send_group(group.id, MODES[group.dead], triples, waits, has_names))
    code = reply[0] if reply else 0
    if code == ID_EXISTS:
        raise DuplicateMessage(
            f"message id {decode_id(reply[1])!r} exists already: nothing of group {group.id!r} was stored; give "
            "another id, or leave it out",
            [],
        )
    if code == IS_FULL:
        text = (
            f"queue {context.name} is full, with max_length {int(reply[1]):,}: nothing of group {group.id!r} was "
            "stored; send it again once messages have been handled, or configure a higher max_length"
        )
        ids = [each.id for each in encoded]
        raise QueueFull(text, [], list(range(len(encoded))), ids, int(reply[1]))
    asked = [from_ms(asked_ms(context, each.due)) for each in encoded]
    if code != EXISTS:  # the due time of the one that waits is not known yet
        dues = asked[:waits] + list(map(from_ms, reply))
        return [SentMessage(each.id, due, True) for each, due in zip(encoded, dues, strict=True)]
    if not group.named:  # this very call has sent it, before the connection broke
        return [SentMessage(each.id, due, True) for each, due in zip(encoded, asked, strict=True)]
    found = yield from execute(home.group(group.id))
    ids = [each.id for each in encoded[:waits]] + (found.roster if found else [])
    asked += [from_ms(asked_ms(context, "+0"))] * len(ids)
    return [SentMessage(each, due, False) for each, due in zip(ids, asked, strict=False)]


def group(context: QueueContext, name: str) -> Operation[tuple[MessageGroupInfo, list[str]] | None]:
    """Return a group, and the ids of all its members; None if there is none, or it ended more than an hour ago."""
    check_id(name)
    yield from context.opened()
    found = yield from execute(context.shard(name).group(name))
    info = None if found is None else read_group(name, found.record, found.dead)
    return None if found is None or info is None else (info, found.roster)


def member_results(context: QueueContext, ids: Sequence[str], sent_at: dt.datetime) -> Operation[list[Any]]:
    """Return for each member of a group what its task returned, or the error that says why there is nothing."""
    found = yield from gather(*(results.find(context, each) for each in ids))
    return [_result(message_id, each, sent_at) for message_id, each in zip(ids, found, strict=True)]


def _result(message_id: str, found: results.Found | DelayqError, sent_at: dt.datetime) -> Any:
    if isinstance(found, DelayqError):  # another program has overwritten its record
        return found
    status, result, body = found
    if result is not None and result.created_at not in (None, sent_at):
        return NoResult(f"no result of member {message_id} is kept: another message has had this id since, or before")
    if body is not None:
        try:
            return decode_json(body)
        except DelayqError as error:
            return error
    if result is not None:
        return failure(result)
    return missing(message_id, status)


def cancel_group(context: QueueContext, name: str) -> Operation[int]:
    """Cancel the message that waits for a group, then its members; return how many messages were cancelled.

    If another program has removed the group, or the list of its members, all memberships of its shard are looked at.
    """
    check_id(name)
    yield from context.opened()
    scripts = context.shard(name)
    found = yield from execute(scripts.cancel_group(name))
    count = found.waited if found else 0
    left: Sequence[tuple[str, str | bytes]] = [] if found is None else [(each, name) for each in found.ids]
    if found is None or found.is_lost:
        left = yield from _memberships(scripts, name)
    for start in range(0, len(left), CANCELS_A_TRIP):
        page = left[start : start + CANCELS_A_TRIP]
        replies = yield [scripts.cancel(message_id, group=of) for message_id, of in page]
        count += list(map(unwrap, replies)).count("cancelled")
    return count


def _memberships(scripts: QueueCommands, name: str) -> Operation[list[tuple[str, bytes]]]:
    """Return the ids that belong to a group, and what is stored of that; the message that waits comes first."""
    found: list[tuple[str, bytes]] = []

    def look(items: dict[bytes, Any]) -> Operation[None]:
        found.extend((decode_id(raw), of) for raw, of in items.items() if belongs_to(name, decode_id(of)))
        yield from ()

    yield from scan.structure("HSCAN", scripts.keys.members, look)
    return sorted(dict(found).items(), key=lambda each: decode_id(each[1]) == name)


def sweep(context: QueueContext) -> Operation[bool]:
    """Find members that ended unnoticed, and mend groups, a page of each shard; return whether there may be more."""
    shards = yield from context.opened()
    replies = yield [each for scripts in shards for each in (scripts.sweep_groups(), scripts.mend_groups())]
    found = [context.unwrap(reply, None) for reply in replies]
    return any(each is not None and each.more for each in found)


def mend(scripts: QueueCommands) -> Operation[tuple[int, int]]:
    """Do at once for a shard what consumers do by `sweep`; return how many members, and groups, were wrong."""
    yield from execute(scripts.begin_sweeps())
    members = groups = 0
    for call in (scripts.sweep_groups, scripts.mend_groups):  # what one restores, the other counts
        more = 1
        while more:
            more, *mended = yield from execute(call())
            members, groups = members + mended[0], groups + mended[1]
    return members, groups
