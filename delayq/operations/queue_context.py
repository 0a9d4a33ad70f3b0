"""A queue as the operations see it: its settings and its shards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from delayq.errors import InvalidInput
from delayq.log import log
from delayq.model import backoff as backoffs
from delayq.model.backoff import DEFAULT_BACKOFF, DEFAULT_RETRIES, Backoff, WrittenBackoff, seeing_errors
from delayq.model.configuration import Changes, Configuration, changes, check_retries, check_shards
from delayq.model.envelope import MAX_PAYLOAD_BYTES
from delayq.model.middleware import Middleware
from delayq.model.outcome import is_coroutine_function
from delayq.model.placement import shard_of
from delayq.model.units import Seconds, lease_ms, milliseconds
from delayq.operations.byte_budget import ByteBudget
from delayq.operations.shard_outages import Outages
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import Operation, execute
from delayq.protocol.queue_commands import QueueCommands
from delayq.protocol.queue_keys import QueueKeys

T = TypeVar("T")

MAX_SHARDS = 1024
DEAD_RETENTION = 90 * 86400
WAS_RECORDED = 1
LOST = "lost"
"""A field of the queue's record: somebody has found that the data of the queue were lost."""
LOOK_SECONDS = 60.0  # a server that lost its data has lost the record, too


@dataclass(frozen=True, slots=True)
class Settings:
    """What a client of a queue may choose for itself.

    Attributes:
        lease: how long a delivery may go without a sign of life.
        max_retries: deliveries after the first one, for messages that don't say; None says nothing.
        backoff: the waits before them; None says nothing.
        max_payload: bytes.
        dead_retention: how long dead letters are kept, or None for ever.
        wishes: configuration that it stores when it begins to use the queue, where none is stored yet.
        concurrency_key: tells of a message with which others it shares a limit, or None.
    """

    lease: Seconds = 30
    max_retries: int | None = None
    backoff: Backoff | None = None
    max_payload: int = MAX_PAYLOAD_BYTES
    dead_retention: Seconds | None = DEAD_RETENTION
    wishes: Changes = field(default_factory=dict)
    concurrency_key: Callable[[Any], str | None] | None = None

    def __post_init__(self) -> None:
        lease_ms(self.lease)
        if self.max_retries is not None:
            check_retries(self.max_retries)
        if not is_whole(self.max_payload) or self.max_payload < 1:
            raise InvalidInput(f"max_payload {self.max_payload!r} is not a number of bytes, 1 or more")
        if self.dead_retention is not None:
            milliseconds(self.dead_retention, "dead_retention")
        if self.concurrency_key is not None and (
            not callable(self.concurrency_key) or is_coroutine_function(self.concurrency_key)
        ):
            raise InvalidInput(f"concurrency_key {self.concurrency_key!r} is not a plain function of a message")


class QueueContext:
    """One queue: its shards, and the check that they are what this client believes.

    Args:
        shards: 1 to 1,024, or None to take what Redis has recorded.
        clock: the time, ms, that scripts are to go by, or '' for the server's own.

    Attributes:
        queue: the queue to which its messages turn.
        max_retries: of messages that are sent without: what is stored of the queue, or else of its settings.
        backoff: the waits before them, likewise, by the attempt and its error.
        middleware: what its sends run within.
        id_factory: makes ids for messages that are sent without one, instead of random ones; for tests.
        next_shard: the shard that the last claim began with.
        claimed_unfetched: what was handed out and could not be fetched.
        outages: of its shards, as far as claims have met them.
        next_armed: of the slots of schedules, the rank at which the next look for lost ones begins.
        next_ahead: likewise, for those that are too far ahead.
        fetching: what was handed out and is being fetched.
        budget: how much a round trip may bring.
        is_limited: whether the queue has limits, as far as claims have met them.
        undeclared: configuration of this client's that it has not stored yet, in all shards.
        declared: the shards, by the names of a key, that have it nevertheless.
        losses: how often it was found that the server has lost the queue's data.
        unlimited_until: when to ask again whether there is a limit per key, on the monotonic clock.
        scan_cursors: of slots and of what waits for them, the last key that was looked at.
    """

    def __init__(
        self, name: str, prefix: str, shards: int | None, settings: Settings, clock: Callable[[], float | str] = str
    ) -> None:
        if shards is not None and not (is_whole(shards) and 1 <= shards <= MAX_SHARDS):
            raise InvalidInput(f"shards {shards!r} is not a number from 1 to {MAX_SHARDS}")
        check_shards(shards, settings.wishes, f"queue {name}")
        self.name = name
        self.prefix = prefix
        self.settings = settings
        self._check_shards(shards or 1, settings)
        self._expected = shards
        self.queue: Any = None
        self.middleware = Middleware()
        self.begin(clock)

    def begin(self, clock: Callable[[], float | str]) -> None:
        """Know nothing of Redis yet, and go by this clock."""
        self.clock = clock
        self.id_factory: Callable[[], str] | None = None
        self._recorded = False
        self._since = b""
        self.losses = 0
        self._look_at = 0.0
        self.next_shard = 0
        self.budget = ByteBudget()
        self.claimed_unfetched: list[Any] = []
        self.next_armed = self.next_ahead = 0
        self.fetching: list[Any] = []
        self.is_limited = False
        self.undeclared = self._wishes = self.settings.wishes
        self.declared: set[str] = set()
        self.unlimited_until = 0.0
        self.scan_cursors: dict[str, str] = {}
        self.follow(Configuration())
        self.outages = Outages(self.name)
        self.shards = [QueueCommands(QueueKeys(self.prefix, self.name), clock)]

    def wish(self, events: bool) -> None:
        """Store this, too, when it is first used, unless the client was made with another wish."""
        self._wishes = changes(events=events) | self._wishes
        self.undeclared = self._wishes

    @property
    def is_open(self) -> bool:
        """Whether Redis has recorded the queue, and that was looked at within the last minute."""
        return self._recorded and time.monotonic() <= self._look_at

    @property
    def limits_keys(self) -> bool:
        """Whether there may be a limit per key."""
        return self.settings.concurrency_key is not None and time.monotonic() >= self.unlimited_until

    def follow(self, stored: Configuration) -> None:
        """Go by what `configure` has stored, and where it says nothing by the client's own settings."""
        own = self.settings
        written = None if stored.backoff is None else backoffs.parse(stored.backoff)
        self.max_retries = _first(stored.max_retries, own.max_retries, DEFAULT_RETRIES)
        self.backoff = seeing_errors(written or own.backoff or DEFAULT_BACKOFF)
        backoff = own.backoff.text if isinstance(own.backoff, WrittenBackoff) else own.backoff
        for name, found, wish in (
            ("max_retries", stored.max_retries, own.max_retries),
            ("backoff", stored.backoff, backoff),
        ):
            if None not in (found, wish) and found != wish:
                self.tell_difference(name, found, wish)

    def tell_difference(self, setting: str, found: object, wish: object) -> None:
        """Log, once for all of this process's clients of the queue, that what is stored holds."""
        key = (self.shards[0].keys.meta, setting)
        if key not in _told:
            _told.add(key)
            said = log.bind(queue=self.name, setting=setting, stored=found, constructor=wish)
            said.warning("stored setting overrides constructor", remedy="change it with configure")

    def opened(self, create: bool = False) -> Operation[list[QueueCommands]]:
        """Return the shards, after a look at what Redis has recorded of the queue: until it has, and once a minute.

        Each look brings the stored `max_retries` and `backoff`, too.

        Args:
            create: record a queue that is new.

        Raises:
            FormatTooNew, ShardsMismatch
        """
        if not self.is_open:
            known = (self._recorded, self._since)
            look = self.shards[0].open_queue(self._expected, create)
            count, recorded, since, stored = yield from execute(look)
            self._check_shards(count, self.settings)
            if count != len(self.shards):
                self.shards = [QueueCommands(QueueKeys(self.prefix, self.name, i), self.clock) for i in range(count)]
            # Another thread may have recorded the queue meanwhile, or have noticed the loss.
            is_known = self._recorded and known == (self._recorded, self._since)
            is_lost = is_known and (recorded != WAS_RECORDED or since != self._since)
            if is_lost or recorded != WAS_RECORDED:  # it is new, or the server has lost its data
                self.undeclared = self._wishes
                self.declared.clear()
            self.follow(stored)
            self._recorded, self._since = bool(recorded), since
            self._look_at = time.monotonic() + LOOK_SECONDS
            self.losses += is_lost
            if is_lost:
                yield from self._tell_loss()
        return self.shards

    def look_again(self) -> None:
        """Take nothing for granted of what Redis had recorded."""
        self._look_at = 0.0

    def _tell_loss(self) -> Operation[None]:
        """Log that the queue's record was replaced, or is gone, and leave a word for the doctor, if that is allowed."""
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
                f"queue {self.name} has {count} shards, each of which would count the messages of a key for itself: "
                "use concurrency_key with shards=1"
            )

    def shard(self, message_id: str) -> QueueCommands:
        """Return the shard that holds a message."""
        shards = self.shards
        return shards[0] if len(shards) == 1 else shards[shard_of(message_id, len(shards))]

    def by_shard(
        self, positions: Sequence[int], id_of: Callable[[int], str]
    ) -> Iterable[tuple[QueueCommands, Sequence[int]]]:
        """Sort the positions of messages, of which `id_of` tells the ids, by the shards that hold these."""
        if len(self.shards) == 1:
            return [(self.shards[0], positions)]
        found: dict[QueueCommands, list[int]] = {}
        for position in positions:
            found.setdefault(self.shard(id_of(position)), []).append(position)
        return found.items()


_told: set[tuple[str, str]] = set()  # names of a key and of a setting, of which this process has logged it


def _first(*values: T | None) -> T:
    return next(value for value in values if value is not None)


def is_whole(value: object) -> bool:
    """Return whether a value is an int, and not True or False."""
    return isinstance(value, int) and not isinstance(value, bool)


def server_ms(context: QueueContext) -> Operation[int]:
    """Return the time, ms, that the scripts go by."""
    return (yield from execute(time_call(context)))


def time_call(context: QueueContext) -> Command[int]:
    """Return the call that reads the time, ms, that the scripts go by."""
    key, now = context.shards[0].keys.meta, context.clock()
    return Command(key, ("TIME",), lambda reply: int(now or int(reply[0]) * 1000 + int(reply[1]) // 1000))
