"""What an outbox needs of a queue: messages as rows of a database, and the send of rows by a relay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from delayq.errors import InvalidInput, ServerNotReady, ServerUnreachable
from delayq.model.delivery import Outgoing, SentMessage
from delayq.model.envelope import FORMAT, encode, parse_unstamped
from delayq.model.message_ids import new_uuids
from delayq.model.record import text_of
from delayq.model.units import from_ms
from delayq.operations import send
from delayq.operations.byte_budget import trips as trips  # noqa: PLC0414  # for the relay, too
from delayq.operations.doctor.server import words_of
from delayq.operations.encode import EncodedMessage, encode_one, listed
from delayq.operations.queue_context import QueueContext
from delayq.operations.queue_context import server_ms as server_ms  # noqa: PLC0414  # for the relay, too
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import Operation, unwrap
from delayq.protocol.queue_commands import QueueCommands

RESERVED_MS = 30 * 86_400_000
"""For how long a row's message stays reserved if its relay dies: longer than a database is ever away."""

RELEASED_MS = 600_000
"""For how long it stays reserved once its row is deleted: longer than another relay may take to notice that it has lost
its lock on the row, together with its session, and than most failovers of a database, which may bring a row back."""

SYNC_MS = 1500
"""How long a server may take to write what it has to its disk; with appendfsync everysec, a second."""

UNKNOWN = "/"
"""The run of a server that does not say it."""

check_replicas = send.check_replicas

ALWAYS = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}


class RowOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a row knows of its message besides the envelope.

    Attributes:
        due: "+delay", ms from the insert, or a time, ms.
        id: of the message, if its sender has chosen one; otherwise, it is the row's.
        is_retries: whether the sender has said how often it is retried; otherwise, the queue's setting decides.
        retries: of the sender's own queue object, which counts if nothing is stored; or None.
        shards: of the queue; None for the recorded number.
    """

    due: str | int = "+0"
    id: str | None = None
    is_retries: bool = False
    retries: int | None = None
    shards: int | None = 1

    def __post_init__(self) -> None:
        if isinstance(self.due, str):
            int(self.due)  # or msgspec raises ValidationError

    @classmethod
    def read(cls, text: str) -> RowOptions:
        """Read the column; raises msgspec.MsgspecError."""
        return _read_options(text)


_read_options = msgspec.json.Decoder(RowOptions).decode


class Row(NamedTuple):
    """A message as a row: what its sender writes.

    Attributes:
        id: a UUID. Those of a process rise, so that messages with the same due time keep their order.
        message: the envelope, without its stamp.
        options: `RowOptions` as JSON.
    """

    id: str
    prefix: str
    queue: str
    message: bytes
    options: str

    @property
    def message_id(self) -> str:
        """The id of its message."""
        return RowOptions.read(self.options).id or self.id


class DueRow(NamedTuple):
    """A row that a relay sends.

    Attributes:
        age_ms: since its insert, by the database's clock.
        due: when its message is due, ms, by the server's clock; None for what its options say, from now.
    """

    id: str
    message: bytes
    options: RowOptions
    age_ms: int = 0
    due: int | None = None


class Server(NamedTuple):
    """What tells whether a server may have lost data.

    Attributes:
        identity: another one after a restart, a failover, or a flush.
        is_safe: whether it has written everything before this to its disk.
        replicas: how many it has.
        is_late: whether it writes to its disk regularly, and has said that it has not yet written everything.
    """

    identity: str
    is_safe: bool
    replicas: int = 0
    is_late: bool = False


def rows_of(context: QueueContext, outgoing: Iterable[Outgoing], is_batch: bool) -> Operation[list[Row]]:
    """Check messages as a send does, within the queue's middleware, and return them as rows; without a round trip.

    Raises:
        InvalidInput: for any of them.
    """
    rows: list[Row] = []

    def keep(messages: Sequence[Outgoing]) -> Operation[list[SentMessage]]:
        yield from ()
        sent = []
        for message, uuid in zip(messages, new_uuids(len(messages)), strict=True):
            encoded = encode_one(context, message, uuid)
            _refuse_what_needs_an_answer(message)
            options = RowOptions(
                encoded.due,
                encoded.id if encoded.named else None,
                message.max_retries is not None,
                context.settings.max_retries,
                context.expected_shards,
            )
            text = msgspec.json.encode(options).decode()
            rows.append(Row(uuid, context.prefix, context.name, encoded.envelope, text))
            sent.append(SentMessage(encoded.id, from_ms(send.asked_ms(context, encoded.due)), True))
        return sent

    yield from send.within_middleware(context, listed(outgoing), keep, is_batch)
    return rows


def _refuse_what_needs_an_answer(message: Outgoing) -> None:
    for name, plain in (("on_conflict", "ignore"), ("unique_for", None)):
        if getattr(message, name) != plain:
            raise InvalidInput(
                f"{name}={getattr(message, name)!r} is not allowed in an outbox, whose rows are sent once, and later: "
                "leave it out, or give id=, which an outbox sends only if the queue does not have it"
            )


def send_rows(
    context: QueueContext, rows: Sequence[DueRow], wait_replicas: int = 0
) -> Operation[list[tuple[SentMessage | int, Server]]]:
    """Send rows whose messages are not reserved, and reserve them.

    Returns:
        for each row, its message, or `max_length` if the queue was full; and the server, as it was before.
    """
    yield from send.prepared(context)
    servers = yield from _servers(context)
    encoded = [_encoded(row, context.max_retries) for row in rows]
    results = yield from send.send_each(context, encoded, wait_replicas)
    keys = [context.shard(each.id).keys.meta for each in encoded]
    return [(result, servers.get(key) or servers[""]) for result, key in zip(results, keys, strict=True)]


def _encoded(row: DueRow, max_retries: int) -> EncodedMessage:
    envelope, changes = row.message, {}
    due = row.options.due if row.due is None else row.due
    opened = parse_unstamped(envelope)
    if not row.options.is_retries and opened.max_retries != max_retries:
        changes["max_retries"] = max_retries
    if opened.expires_ms is not None:
        changes["expires_ms"] = max(1, opened.expires_ms - row.age_ms)
    if changes:
        envelope = encode(msgspec.structs.replace(opened, **changes))
    return EncodedMessage(row.options.id or row.id, due, envelope, "ignore", True, RESERVED_MS, row.id)


def release(context: QueueContext, ids: Sequence[tuple[str, str]]) -> Operation[None]:
    """Let reservations end in ten minutes: their rows are deleted.

    Args:
        ids: of the messages, each with that of its row.
    """
    if not ids:
        return
    yield from context.opened()
    keys = [context.shard(message_id).keys.unique(row_id) for message_id, row_id in ids]
    yield [Command(key, ("PEXPIRE", key, RELEASED_MS), identity) for key in keys]


def _servers(context: QueueContext) -> Operation[dict[str, Server]]:
    """Return the servers of the shards by the key of their record; by "", if all are on one."""
    keys = [scripts.keys.meta for scripts in _apart(context)]
    wanted = (("INFO", "server"), ("INFO", "replication"), ("CONFIG", "GET", "*append*"))
    replies = yield [Command(key, words, identity) for key in keys for words in (*wanted, ("HGET", key, "since"))]
    found = {}
    for key, info, links, config, since in zip(keys, *(replies[at::4] for at in range(4)), strict=True):
        settings = words_of(config)
        is_always = all(settings.get(name) == value for name, value in ALWAYS.items())
        replicas = int(words_of(links).get("connected_slaves", 0))
        found[key] = Server(_run_of(info) + _since(since), is_always, replicas)
    return found if len(keys) > 1 else {"": found[keys[0]]}


def synced(context: QueueContext, written: dict[str, bool | None]) -> Operation[list[Server]]:
    """Let the servers write to their disks what they have, if they can, and return them.

    A server that does not know WAITAOF (Redis before 7.2), or keeps no append-only file, is not safe. One with
    appendfsync no leaves the writing to its system, and says of nothing that it is on the disk.

    Args:
        written: whether servers have done so since the rows were read, None if they cannot say it; each is asked once,
            and added.
    """
    yield from context.opened()
    servers = []
    for scripts in _apart(context):
        key = scripts.keys.meta
        asks = [Command(key, ("INFO", "server"), identity), Command(key, ("HGET", key, "since"), identity)]
        info, since = yield asks
        if isinstance(info, ServerUnreachable | ServerNotReady):
            raise info
        run = _run_of(info)
        is_written = written.get(run)
        if run not in written:
            # WAITAOF waits for writes of its own connection, and this one comes after all that was read.
            sync, config = ("WAITAOF", 1, 0, SYNC_MS), ("CONFIG", "GET", "appendfsync")
            commands = [Command(key, words, identity) for words in (sync, config)]
            _, reply, setting, then = yield [scripts.confirm(), *commands, asks[0]]
            if isinstance(reply, list):
                is_written = int(reply[0]) > 0 and _run_of(then) == run
                if not is_written and words_of(setting).get("appendfsync") not in ("always", "everysec"):
                    is_written = None
        if run != UNKNOWN:
            written[run] = is_written
        servers.append(Server(run + _since(unwrap(since)), bool(is_written), is_late=is_written is False))
    return servers


def _apart(context: QueueContext) -> Sequence[QueueCommands]:
    """Return the shards, or the first one if all are on one server."""
    return context.shards if context.spans_nodes() else context.shards[:1]


def _run_of(info: Any) -> str:
    return f"{words_of(info).get('run_id', '')}/"


def _since(reply: Any) -> str:
    return text_of(reply) if isinstance(reply, str | bytes) else ""


def ping(context: QueueContext, ids: Iterable[str]) -> Operation[None]:
    """Raise ServerError unless the servers of these messages answer on keys of the queue."""
    keys = yield from keys_of(context, ids)
    for reply in (yield [Command(key, ("HGET", key, "since"), identity) for key in keys]):
        unwrap(reply)


def is_on_cluster(context: QueueContext) -> Operation[bool]:
    """Return whether it is known that the server is a cluster."""
    yield from ()
    return context.spans_nodes()


def keys_of(context: QueueContext, ids: Iterable[str]) -> Operation[list[str]]:
    """Return a key on each node that these messages are for."""
    yield from ()
    return list(dict.fromkeys(context.shard(each).keys.meta for each in ids))


def are_away(context: QueueContext, keys: Iterable[str]) -> Operation[bool]:
    """Return whether it is known that the node of one of these keys is unavailable."""
    yield from ()
    return any(context.is_away(key) for key in keys)


def is_newer(row: DueRow) -> bool:
    """Whether an envelope, an array of MessagePack whose first value is its version, is of a newer delayq."""
    return len(row.message) > 1 and 0x90 <= row.message[0] < 0xA0 and FORMAT < row.message[1] < 0x80
