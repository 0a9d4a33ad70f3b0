"""A queue as the operations see it: its settings and its shards, and what this client has learnt of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from delayq.errors import InvalidInput
from delayq.log import log
from delayq.model import backoff as backoffs
from delayq.model.backoff import (
    DEFAULT_BACKOFF,
    DEFAULT_RETRIES,
    Backoff,
    WaitAfterError,
    WrittenBackoff,
    check_retries,
    seeing_errors,
)
from delayq.model.configuration import Configuration, changes, check_shards
from delayq.model.envelope import MAX_PAYLOAD_BYTES
from delayq.model.middleware import Middleware
from delayq.model.outcome import is_coroutine_function
from delayq.model.placement import MAX_SHARDS, shard_of
from delayq.model.settings import Changes
from delayq.model.units import Seconds, lease_ms, milliseconds
from delayq.model.validation import is_whole
from delayq.operations import record_copies
from delayq.operations.queue_state import ClaimState, SweepState, Wishes
from delayq.operations.record_copies import RecordedContext
from delayq.operations.shard_outages import Outages
from delayq.operations.watch import Watch
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import Operation, execute
from delayq.protocol.queue_commands import QueueCommands
from delayq.protocol.queue_keys import QueueKeys

T = TypeVar("T")

DEAD_RETENTION = 90 * 86400
WAS_RECORDED, IS_NEW = 1, 2  # in the reply of open_queue
LOST = "lost"
"""A field of the queue's record: a client has found that the queue's data were lost."""
LOOK_SECONDS = 60.0  # a server that lost its data has also lost the record


class Settings(msgspec.Struct, frozen=True):
    """The settings that each client of a queue chooses for itself.

    Attributes:
        lease: the message is redelivered if its lease is not renewed within this time, ms.
        max_retries: deliveries after the first one, for messages sent without a number; None if not set.
        backoff: the waits before retries; None if not set.
        max_payload: bytes.
        dead_retention: how long dead letters are kept; None for ever.
        wishes: settings to store when the client begins to use the queue, where none are stored yet.
        concurrency_key: returns the key whose limit a message shares, or None.
    """

    lease: Seconds = 30
    max_retries: int | None = None
    backoff: Backoff | None = None
    max_payload: int = MAX_PAYLOAD_BYTES
    dead_retention: Seconds | None = DEAD_RETENTION
    wishes: Changes = msgspec.field(default_factory=dict)
    concurrency_key: Callable[[Any], str | None] | None = None

    def __post_init__(self) -> None:
        lease_ms(self.lease)
        if self.max_retries is not None:
            check_retries(self.max_retries)
        if not is_whole(self.max_payload) or self.max_payload < 1:
            raise InvalidInput(f"max_payload {self.max_payload!r} is not a whole number of bytes, 1 or more")
        if self.dead_retention is not None:
            milliseconds(self.dead_retention, "dead_retention")
        if self.concurrency_key is not None and (
            not callable(self.concurrency_key) or is_coroutine_function(self.concurrency_key)
        ):
            raise InvalidInput(f"concurrency_key {self.concurrency_key!r} is not a plain function that takes a message")


class QueueContext(RecordedContext[QueueCommands]):
    """One queue: its shards, and the check that they match what this client expects.

    Args:
        shards: 1 to 1,024, or None for the recorded number.
        clock: the time, ms, that scripts use, or '' for the server's own.

    Attributes:
        middleware: the layers around its sends.
        task_backoffs: the waits before retries of the tasks that have their own, by name.
        unknown_tasks: tasks that consumers of this client do not know, and when the first message was met, ms.
        id_factory: makes the ids of messages sent without one, instead of random ones; for tests.
        max_retries: for messages sent without a number: the stored value, or else the one of the client's settings.
        backoff: the waits before retries, by attempt and error: the stored one, or else the client's.
        may_send_one: whether `send_one` may send a message: the queue is not known to have a max_length.
        ignores_keys: whether there is a limit per key that this client does not know how to keep, and has not said so.
        wishes: settings of this client to store.
        losses: how often the server was found to have lost the queue's data.
        claims: what claims have learnt.
        sweeps: where regular searches stand.
        late_outcomes: the outcomes of messages, by id and receipt, that a node has not confirmed yet.
        outages: the outages of its shards that claims have met.
        watch: the looks for ended leases.
    """

    def __init__(
        self, name: str, prefix: str, shards: int | None, settings: Settings, clock: Callable[[], float | str] = str
    ) -> None:
        if shards is not None and not (is_whole(shards) and 1 <= shards <= MAX_SHARDS):
            raise InvalidInput(f"shards {shards!r} is not a number from 1 to {MAX_SHARDS:,}")
        check_shards(shards, settings.wishes, f"queue {name}")
        self.name = name
        self.prefix = prefix
        self.settings = settings
        self._check_shards(shards or 1, settings)
        super().__init__(shards)
        self.middleware = Middleware()
        self.task_backoffs: dict[str, WaitAfterError] = {}
        self.begin(clock)

    def begin(self, clock: Callable[[], float | str]) -> None:
        """Forget everything read from Redis, and use this clock."""
        self.clock = clock
        self.id_factory: Callable[[], str] | None = None
        self.wishes = Wishes(self.settings.wishes)
        self.losses = 0
        self.claims = ClaimState()
        self.sweeps = SweepState()
        self.unknown_tasks: dict[str, float] = {}
        self.late_outcomes: dict[Any, Any] = {}
        self.outages = Outages(queue=self.name)
        self.watch = Watch(lease_ms(self.settings.lease), clock() != "")
        self.follow(Configuration())
        self._forget_record()

    def _make(self, number: int) -> QueueCommands:
        return QueueCommands(QueueKeys(self.prefix, self.name, number), self.clock)

    def wish(self, events: bool) -> None:
        """Also store this setting at the first use, unless the constructor was given another value."""
        self.wishes.add(changes(events=events))

    @property
    def limits_keys(self) -> bool:
        """Whether there may be a limit per key."""
        return self.settings.concurrency_key is not None and time.monotonic() >= self.claims.unlimited_until

    def follow(self, stored: Configuration) -> None:
        """Apply the settings that `configure` stored, or the client's own where none are stored."""
        own = self.settings
        self.may_send_one = stored.max_length is None
        written = None if stored.backoff is None else backoffs.parse(stored.backoff)
        self.max_retries = _first(stored.max_retries, own.max_retries, DEFAULT_RETRIES)
        chosen = written or own.backoff
        self.backoff = seeing_errors(chosen) if chosen else _DEFAULT_BACKOFF
        backoff = own.backoff.text if isinstance(own.backoff, WrittenBackoff) else own.backoff
        for name, found, wish in (
            ("max_retries", stored.max_retries, own.max_retries),
            ("backoff", stored.backoff, backoff),
        ):
            if None not in (found, wish) and found != wish:
                self.tell_difference(name, found, wish)
        has_limit = stored.concurrency_per_key is not None or "per_key" in self.wishes.all
        self.ignores_keys = has_limit and own.concurrency_key is None

    def tell_ignored_keys(self) -> None:
        """Log once for the process that this client's deliveries are not limited by their keys, if that is so."""
        if not self.ignores_keys:
            return
        self.ignores_keys = False
        key = (self.shards[0].keys.meta, "concurrency_key")
        if key not in _logged:
            _logged.add(key)
            remedy = "give this program's queue the concurrency_key= of the others, or remove the limit with configure"
            log.warning("limit per key ignored", queue=self.name, remedy=remedy)

    def tell_difference(self, setting: str, found: object, wish: object) -> None:
        """Log that the stored setting applies, once for all clients of the queue in this process."""
        key = (self.shards[0].keys.meta, setting)
        if key not in _logged:
            _logged.add(key)
            said = log.bind(queue=self.name, setting=setting, stored=found, constructor=wish)
            said.warning("stored setting overrides constructor", remedy="change it with configure")

    def opened(self, create: bool = False) -> Operation[list[QueueCommands]]:
        """Return the shards, after a check of the queue's record in Redis: until there is one, then once a minute.

        Each check also reads the stored `max_retries` and `backoff`.

        Args:
            create: record the queue if it is new.

        Raises:
            FormatTooNew, ClientTooOld, ShardsMismatch
        """
        if time.monotonic() > self.open_until:
            known = (self.is_recorded, self._since)
            found = yield from self._read_record(create)
            if found is None:
                return self.shards
            record, is_copy = found
            self._check_shards(record.shards, self.settings)
            # Another thread may have recorded the queue meanwhile, or noticed the loss.
            is_known = self.is_recorded and known == (self.is_recorded, self._since)
            is_lost = is_known and (record.recorded != WAS_RECORDED or record.since != self._since)
            if is_lost or record.recorded != WAS_RECORDED:  # the queue is new, or the server has lost its data
                self.wishes.begin_again()
            self.follow(record.configuration)
            self._note_record(record, record_copies.LOOK_SECONDS if is_copy else LOOK_SECONDS)
            self.losses += is_lost
            if is_lost:
                yield from self._tell_loss()
            if create and not is_copy:
                yield from self._keep_copies()
            if record.recorded == IS_NEW:
                yield from self._register(self.prefix, "queue", self.name)
        return self.shards

    def look_again(self) -> None:
        """Check the record in Redis again before the next operation."""
        self.open_until = -math.inf

    def _tell_loss(self) -> Operation[None]:
        """Log that the queue's record was replaced or is gone, and leave a note for the doctor if that is allowed."""
        keys = self.shards[0].keys
        (removed,) = yield [Command(keys.removed, ("GET", keys.removed), identity)]
        if isinstance(removed, bytes):
            log.warning("queue removed while in use", queue=self.name)
            return
        log.error(
            "queue data lost",
            queue=self.name,
        )
        yield [Command(keys.meta, ("HSET", keys.meta, LOST, 1), identity)]

    def _check_shards(self, count: int, settings: Settings) -> None:
        if count > 1 and settings.concurrency_key is not None:
            raise InvalidInput(
                f"queue {self.name} has {count} shards, which would count the messages of a key separately: "
                "use concurrency_key only with shards=1"
            )

    @property
    def is_owed(self) -> bool:
        """Whether messages may have been handed out that only the next claim brings."""
        return self.claims.is_owed or self.outages.pause() < math.inf

    def shard(self, message_id: str) -> QueueCommands:
        """Return the shard that holds a message."""
        return self.only_shard or self.shards[shard_of(message_id, len(self.shards))]

    def by_shard(
        self, positions: Sequence[int], id_of: Callable[[int], str]
    ) -> Iterable[tuple[QueueCommands, Sequence[int]]]:
        """Group the positions of messages by the shards that hold them; `id_of` returns their ids."""
        if self.only_shard is not None:
            return [(self.only_shard, positions)]
        found: dict[QueueCommands, list[int]] = {}
        for position in positions:
            found.setdefault(self.shard(id_of(position)), []).append(position)
        return found.items()


_DEFAULT_BACKOFF = seeing_errors(DEFAULT_BACKOFF)
_logged: set[tuple[str, str]] = set()  # key names and settings that this process has logged


def _first(*values: T | None) -> T:
    return next(value for value in values if value is not None)


def server_ms(context: QueueContext) -> Operation[int]:
    """Return the time, ms, that the scripts use."""
    return (yield from execute(time_call(context)))


def time_call(context: QueueContext) -> Command[int]:
    """Return the call that reads the time, ms, that the scripts use."""
    key, now = context.shards[0].keys.meta, context.clock()
    return Command(key, ("TIME",), lambda reply: int(now or int(reply[0]) * 1000 + int(reply[1]) // 1000))
