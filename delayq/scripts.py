"""One typed method a script: which keys it touches, what it is told, and how its reply reads.

The scripts' own headers, in ``lua/``, say what each does, its units, its errors and its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from delayq.calls import Call, Raw, as_is, id_of, is_foreign, script, text, word
from delayq.envelope import FORMAT
from delayq.keys import STATES, QueueKeys, State
from delayq.limits import FIELDS, Changes, Configuration, configured
from delayq.times import MAX_TIME_MS

T = TypeVar("T")

MAX_IDS = 500
"""The most messages that one call touches: no call holds the server for more than a few milliseconds."""

MAX_MOVED = MAX_IDS // 2
"""The most of a call that changes five structures for each message, which takes twice the time of others."""


class Claimed(NamedTuple):
    """What ready_to_unack handed out; `held` is whether a limit has left messages behind, None without limits."""

    now_ms: int
    micros: int
    ids: list[str]
    dues_ms: list[int]
    deliveries: list[str | None]
    held: bool | None = None


class Rested(NamedTuple):
    """What rest and watch say: how long to sleep, and which message is due then, "" when there is none."""

    micros: int
    message_id: str


class Keyed(NamedTuple):
    """A delivery that takes part in the limit per key."""

    key: str
    message_id: str
    receipt: str
    due_ms: int = 0


class Kept(NamedTuple):
    """A message as restore puts it back: its score, ms, its envelope with the stamp; empty is what there is none of."""

    message_id: str
    score: Raw
    stored: bytes
    deliveries: str = ""
    error: str = ""
    reason: str = ""


class Seen(NamedTuple):
    """A message as discard is to find it: its score, ms, and the stamp of its envelope, "" where that is gone."""

    message_id: str
    score: Raw
    stamp: str


class Found(NamedTuple):
    """What find knows of a message."""

    scores: dict[State, float]
    deliveries: str | None
    error: str | None
    reason: str | None
    cancelled: bool
    stored: bytes | None


class Counts(NamedTuple):
    """What stats read."""

    now_ms: int
    paused_ms: int | None
    counts: dict[State, int]
    heads_ms: dict[State, float]
    counters: dict[str, int]


class Standing(NamedTuple):
    """What why knows of a message that waits: what may keep it from being handed out.

    Attributes:
        earlier: how many messages that wait are due earlier.
        running: how many are handed out and not settled.
        free: how many may go now by the limits, None without any and while it is paused.
        opens_ms: when the rate lets the next one go behind those, None where it is not the rate.
        parked: until when it waits for others of its key at the longest, ms, and its due time, ms.
    """

    now_ms: int
    paused_ms: int | None
    earlier: int
    running: int
    free: int | None
    opens_ms: int | None
    parked: tuple[int, int] | None


class Crew(NamedTuple):
    """What consumers told of themselves: name, when it was last seen, ms, and document of each."""

    now_ms: int
    told: list[tuple[str, int, bytes]]


class Fires(NamedTuple):
    """What upcoming counted: of each bucket, those in pending and those in retry."""

    now_ms: int
    pending: list[int]
    retry: list[int]


class Looked(NamedTuple):
    """What history found: the last entry that was looked at, "" at the end; ids and fields of a message's entries."""

    last: str
    entries: list[tuple[str, list[bytes]]]


class Scripts:
    """The calls of one shard of a queue.

    Args:
        keys: of the shard.
        clock: returns the time, ms, that the scripts are to go by, or '' for the server's own.
    """

    def __init__(self, keys: QueueKeys, clock: Callable[[], float | str] = str) -> None:
        self.keys = keys
        self._clock = clock
        self._ledger = (keys.meta, keys.events)  # for the scripts that move messages

    def open(self, shards: int | None, create: bool) -> Call[list[int]]:
        k = self.keys
        return self._call("open", [k.meta], [FORMAT, shards or "", 1 if create else ""], as_is)

    def send(
        self,
        messages: Sequence[tuple[str, Raw, bytes]],
        named: bool = True,
        whole: bool = False,
        repeats: bool = True,
        read: Callable[[list[int]], T] = as_is,
    ) -> Call[T]:
        """Take messages as triples: id, due time ('+delay_ms' or ms), envelope."""
        k = self.keys
        keys = [k.pending, k.garbage, k.stats, k.bell, k.ready, k.unack, k.retry, k.dead, *self._ledger]
        args: list[Raw] = [self._clock(), 1 if named else ""]
        for message in messages:
            keys.append(k.message_prefix + message[0])
            args += message
        return self._call("send", keys, args, read, whole, repeats)

    def send_unique(
        self,
        messages: Sequence[tuple[str, Raw, bytes, int]],
        whole: bool = False,
        repeats: bool = True,
        read: Callable[[list[int]], T] = as_is,
        marks: Sequence[str] = (),
    ) -> Call[T]:
        """Take messages as quadruples: id, due time ('+delay_ms' or ms), envelope, ms for which the id is reserved.

        Where there are `marks`, these are reserved in place of the ids.
        """
        k = self.keys
        keys = [k.pending, k.garbage, k.stats, k.bell, k.ready, k.unack, k.retry, k.dead, *self._ledger]
        args: list[Raw] = [self._clock()]
        for i, (message_id, due, envelope, unique_ms) in enumerate(messages):
            keys += k.message(message_id), k.unique(marks[i] if marks else message_id)
            args += message_id, due, envelope, f"+{unique_ms}"
        return self._call("send_unique", keys, args, read, whole, repeats)

    def replace(
        self,
        message_id: str,
        due: Raw,
        envelope: bytes,
        read: Callable[[list[int]], T] = as_is,
        whole: bool = False,
    ) -> Call[T]:
        k = self.keys
        keys = [k.pending, k.garbage, k.stats, k.bell, k.ready, k.unack, k.retry, k.dead, k.attempts, k.errors]
        keys += [k.reasons, k.cancelled, k.message(message_id), *self._ledger]
        return self._call("replace", keys, [self._clock(), message_id, due, envelope], read, whole)

    def pending_to_ready(self, limit: int = MAX_IDS) -> Call[int]:
        k = self.keys
        keys = [k.pending, k.ready, k.stats, *self._ledger]
        return self._call("pending_to_ready", keys, [self._clock(), limit], int)

    def ready_to_unack(self, limit: int, lease_ms: int, consumer: str = "") -> Call[Claimed]:
        k = self.keys
        keys = [k.ready, k.retry, k.unack, k.attempts, k.meta, k.stats, k.bell, k.rate, k.events]
        args = [self._clock(), limit, lease_ms, consumer]
        return self._call("ready_to_unack", keys, args, _read_claimed, repeats=False)

    def unack_to_retry(self, limit: int = MAX_MOVED) -> Call[int]:
        k = self.keys
        keys = [k.unack, k.retry, k.garbage, k.attempts, k.errors, k.cancelled, k.stats, k.bell, *self._ledger]
        return self._call("unack_to_retry", keys, [self._clock(), limit], int)

    def ack(self, receipts: Sequence[tuple[str, str]]) -> Call[list[int]]:
        """Take deliveries as pairs: id, receipt."""
        k = self.keys
        ids = [message_id for message_id, _ in receipts]
        prefix = k.message_prefix
        keys = [k.unack, k.attempts, k.errors, k.cancelled, k.stats, *self._ledger]
        keys += [prefix + message_id for message_id in ids]
        return self._call("ack", keys, [self._clock(), *ids, *[receipt for _, receipt in receipts]], as_is)

    def ack_then(self, message_id: str, receipt: str, messages: Sequence[tuple[str, Raw, bytes, str]]) -> Call[int]:
        """Take messages as quadruples: id, due time, envelope, and "ignore", "replace", "error" or "new"."""
        k = self.keys
        keys = [k.pending, k.garbage, k.stats, k.bell, k.ready, k.unack, k.retry, k.dead, k.attempts, k.errors]
        keys += [k.reasons, k.cancelled, k.message(message_id), *self._ledger]
        args: list[Raw] = [self._clock(), message_id, receipt]
        for message in messages:
            keys.append(k.message_prefix + message[0])
            args += message
        return self._call("ack_then", keys, args, int)

    def nack(self, message_id: str, receipt: str, delay_ms: int, error: str = "") -> Call[int]:
        k = self.keys
        keys = [k.unack, k.retry, k.garbage, k.attempts, k.errors, k.cancelled, k.stats, k.bell, *self._ledger]
        return self._call("nack", keys, [self._clock(), message_id, receipt, f"+{delay_ms}", error], int)

    def extend(self, message_id: str, receipt: str, lease_ms: int) -> Call[int]:
        k = self.keys
        return self._call("extend", [k.unack, k.attempts], [self._clock(), message_id, receipt, lease_ms], int)

    def release(self, message_id: str, receipt: str, due_ms: int, handed_us: Raw = "") -> Call[int]:
        k = self.keys
        keys = [k.unack, k.ready, k.garbage, k.attempts, k.errors, k.cancelled, k.stats, k.bell, k.rate, *self._ledger]
        return self._call("release", keys, [self._clock(), message_id, receipt, due_ms, handed_us], int)

    def reject(self, message_id: str, receipt: str, reason: str, error: str = "", counted: bool = True) -> Call[int]:
        k = self.keys
        keys = [k.unack, k.dead, k.garbage, k.attempts, k.errors, k.reasons, k.cancelled, k.stats, *self._ledger]
        args = [self._clock(), word(message_id), receipt, reason, error, int(counted)]
        return self._call("reject", keys, args, int)

    def expire(self, message_id: str, receipt: str) -> Call[int]:
        k = self.keys
        keys = [k.unack, k.garbage, k.attempts, k.errors, k.cancelled, k.stats, *self._ledger]
        return self._call("expire", keys, [self._clock(), message_id, receipt], int)

    def admit(self, deliveries: Sequence[Keyed], net_ms: int, handed_us: Raw = "") -> Call[list[int]]:
        k = self.keys
        keys = [k.unack, k.pending, k.attempts, k.slots, k.waiting, k.parked, k.meta, k.stats, k.ready, k.garbage]
        keys += [k.errors, k.cancelled, k.rate, k.events]
        args: list[Raw] = [self._clock(), net_ms, handed_us]
        for each in deliveries:
            args += (word(each.key), each.message_id, each.receipt, each.due_ms)
        return self._call("admit", keys, args, as_is)

    def free(self, deliveries: Sequence[Keyed]) -> Call[int]:
        k = self.keys
        keys = [k.unack, k.ready, k.pending, k.attempts, k.slots, k.waiting, k.parked, k.meta, k.stats, k.bell]
        keys.append(k.events)
        args: list[Raw] = [self._clock()]
        for each in deliveries:
            args += (word(each.key), each.message_id, each.receipt)
        return self._call("free", keys, args, int)

    def held_keys(self, index: str, after: str, limit: int) -> Call[list[str]]:
        """List keys in `index`: that of slots, or of waiting."""
        return self._call("held_keys", [index], [word(after), limit], lambda reply: list(map(id_of, reply)))

    def cancel(self, message_id: str) -> Call[str]:
        k = self.keys
        keys = [k.pending, k.ready, k.retry, k.dead, k.unack, k.garbage, k.attempts, k.errors, k.reasons]
        keys += [k.cancelled, k.stats, *self._ledger]
        return self._call("cancel", keys, [self._clock(), word(message_id)], bytes.decode, repeats=False)

    def reschedule(self, message_id: str, due: Raw) -> Call[str]:
        k = self.keys
        keys = [k.pending, k.ready, k.retry, k.unack, k.dead, k.stats, k.bell, *self._ledger]
        return self._call("reschedule", keys, [self._clock(), word(message_id), due], bytes.decode)

    def requeue(self, ids: Sequence[str], due: Raw = "+0", up_to: Raw = "") -> Call[list[int]]:
        k = self.keys
        keys = [k.dead, k.pending, k.attempts, k.reasons, k.stats, k.bell, *self._ledger, *map(self._message_key, ids)]
        return self._call("requeue", keys, [self._clock(), due, up_to, *map(word, ids)], as_is, repeats=False)

    def edit(self, message_id: str, died_ms: Raw, due: Raw, envelope: bytes) -> Call[bool]:
        k = self.keys
        keys = [k.dead, k.pending, k.attempts, k.reasons, k.stats, k.bell, k.message(message_id), *self._ledger]
        return self._call("edit", keys, [self._clock(), message_id, died_ms, due, envelope], bool, repeats=False)

    def purge(self, source: State, up_to: Raw = "+inf", limit: int = MAX_IDS) -> Call[int]:
        k = self.keys
        keys = [k.state(source), k.garbage, k.attempts, k.errors, k.reasons, k.stats, *self._ledger]
        return self._call("purge", keys, [self._clock(), up_to, limit], int, repeats=False)

    def discard(self, source: State, messages: Sequence[Seen]) -> Call[list[int]]:
        k = self.keys
        keys: list[Any] = [k.state(source), k.garbage, k.attempts, k.errors, k.reasons, k.stats, *self._ledger]
        args: list[Raw] = [self._clock()]
        for each in messages:
            keys.append(self._message_key(each.message_id))
            args += (word(each.message_id), each.score, each.stamp)
        return self._call("discard", keys, args, as_is, repeats=False)

    def restore(self, target: State, messages: Sequence[Kept]) -> Call[list[int]]:
        k = self.keys
        keys: list[Any] = [k.state(target), k.garbage, k.stats, k.bell, k.pending, k.ready, k.unack, k.retry, k.dead]
        keys += [k.attempts, k.errors, k.reasons, *self._ledger]
        args: list[Raw] = [self._clock()]
        for each in messages:
            keys.append(self._message_key(each.message_id))
            args += (word(each.message_id), *each[1:])
        return self._call("restore", keys, args, as_is)

    def collect(self, ids: Sequence[str]) -> Call[int]:
        k = self.keys
        keys = [k.garbage, k.stats, *map(self._message_key, ids)]
        return self._call("collect", keys, list(map(word, ids)), int, repeats=False)

    def pause(self) -> Call[int]:
        return self._call("pause", [self.keys.meta], [self._clock()], int)

    def resume(self) -> Call[int]:
        return self._call("resume", [self.keys.meta, self.keys.bell], [], int)

    def configure(self, changes: Changes) -> Call[int]:
        args: list[Raw] = []
        for name, value in changes.items():
            args += [name, "" if value is None else value]
        return self._call("configure", [self.keys.meta, self.keys.bell], args, int)

    def ring(self) -> Call[int]:
        return self._call("ring", [self.keys.bell], [], int)

    def rest(self, name: str, most_ms: int, held: bool | None = False) -> Call[Rested]:
        k = self.keys
        keys = [k.pending, k.retry, k.unack, k.timer, *([k.ready, k.meta, k.rate] if held else [])]
        return self._call("rest", keys, [self._clock(), name, most_ms], _read_rested)

    def watch(self, name: str, most_ms: int) -> Call[Rested]:
        k = self.keys
        keys = [k.pending, k.retry, k.unack, k.timer, k.ready, k.garbage, k.meta, k.rate]
        return self._call("watch", keys, [self._clock(), name, most_ms], _read_rested)

    def find(self, message_id: str) -> Call[Found]:
        k = self.keys
        keys = [*map(k.state, STATES), k.attempts, k.errors, k.reasons, k.cancelled, self._message_key(message_id)]
        return self._call("find", keys, [word(message_id)], _read_found)

    def why(self, message_id: str) -> Call[Standing]:
        k = self.keys
        keys = [k.pending, k.ready, k.retry, k.unack, k.meta, k.rate, k.parked]
        return self._call("why", keys, [self._clock(), word(message_id)], _read_standing)

    def appear(self, name: str, document: Raw, times: Mapping[int, int] | None = None) -> Call[int]:
        """Take how many handlers ran for how long as buckets and counts, as does `leave`."""
        k = self.keys
        args = [self._clock(), name, document, *_flat(times)]
        return self._call("appear", [k.consumers, k.crew, k.stats], args, int)

    def leave(self, name: str, times: Mapping[int, int] | None = None) -> Call[int]:
        return self._call("leave", [self.keys.crew, self.keys.stats], [name, *_flat(times)], int, repeats=False)

    def consumers(self) -> Call[Crew]:
        return self._call("consumers", [self.keys.consumers, self.keys.crew], [self._clock()], _read_crew)

    def sample(self, counters: Sequence[str]) -> Call[int]:
        k = self.keys
        keys = [*map(k.state, STATES), k.stats, k.meta, k.samples_minute, k.samples_ten]
        return self._call("sample", keys, [self._clock(), *counters], int)

    def samples(self, key: str, since_ms: int = 0) -> Call[list[tuple[int, str]]]:
        """Read what is kept under one of the two keys: the time of each, ms, and its text; a plain command."""
        return Call(key, (b"XRANGE", key, since_ms, "+"), _read_samples)

    def stats(self) -> Call[Counts]:
        k = self.keys
        return self._call("stats", [*map(k.state, STATES), k.stats, k.meta], [self._clock()], _read_counts)

    def upcoming(self, bucket_ms: int, count: int) -> Call[Fires]:
        k = self.keys
        return self._call("upcoming", [k.pending, k.retry], [self._clock(), bucket_ms, count], _read_fires)

    def history(self, message_id: str, start: str = "+", limit: int = MAX_IDS) -> Call[Looked]:
        return self._call("history", [self.keys.events], [word(message_id), start, limit], _read_looked)

    def repair(self, message_id: str, latest_ms: int, lease_ms: int) -> Call[list[str]]:
        k = self.keys
        keys = [*map(k.state, STATES), k.attempts, k.errors, k.reasons, k.cancelled, self._message_key(message_id)]
        keys += [k.stats, *self._ledger]
        args = [self._clock(), word(message_id), latest_ms, lease_ms]
        return self._call("repair", keys, args, lambda reply: [words.decode() for words in reply])

    def balance(self) -> Call[int]:
        k = self.keys
        return self._call("balance", [k.pending, k.ready, k.unack, k.retry, k.dead, k.stats], [], int)

    def arm(
        self, name: str, slot: Raw, slot_id: str, record: bytes, to: Raw, to_id: str = "", envelope: bytes = b""
    ) -> Call[int]:
        """Take slots as ms, "" where there is none; an empty `record` keeps what is stored."""
        k = self.keys
        keys = [k.schedules, k.armed, k.pending, k.ready, k.garbage, k.unack, k.retry, k.dead, k.attempts, k.errors]
        keys += [k.stats, k.bell, k.message(to_id), *self._ledger]
        return self._call("arm", keys, [self._clock(), name, slot, slot_id, record, to, to_id, envelope], int)

    def confirm(self) -> Call[int]:
        """Write something, so that a WAIT that follows speaks of all that was written before; a plain command."""
        return Call(self.keys.stats, ("HINCRBY", self.keys.stats, "confirmed", 1), int)

    def configuration(self) -> Call[Configuration]:
        """Read the limits; a plain command."""
        return Call(self.keys.meta, ("HMGET", self.keys.meta, *FIELDS), configured)

    def last_seen(self) -> Call[tuple[str, int] | None]:
        """Read which consumer appeared last, and when, ms; a plain command."""
        key = self.keys.consumers
        return Call(key, ("ZRANGE", key, -1, -1, "WITHSCORES"), _read_seen)

    def envelopes(self, ids: Sequence[str], read: Callable[[list[bytes | None]], T] = as_is) -> Call[T]:
        """Read the stored envelopes, None where one is gone; a plain command, as are those below."""
        prefix = self.keys.message_prefix
        keys: list[Any] = [prefix + message_id for message_id in ids]
        try:
            "".join(ids).encode()
        except UnicodeEncodeError:
            keys = list(map(word, keys))
        return Call(prefix, ("MGET", *keys), read)

    def page(self, state: State, limit: int, after_ms: Raw = "-inf", up_to: Raw = "+inf") -> Call[list[str]]:
        """Read up to `limit` ids of a state with scores between the bounds, lowest first."""
        key = self.keys.state(state)
        words = ("ZRANGE", key, after_ms, up_to, "BYSCORE", "LIMIT", 0, limit)
        return Call(key, words, lambda reply: list(map(id_of, reply)))

    def ranked_page(self, state: State, limit: int, skip: int) -> Call[list[tuple[str, bytes]]]:
        """Read up to `limit` ids and scores of a state, lowest first, but for the first `skip`, which costs nothing."""
        key = self.keys.state(state)
        return Call(key, ("ZRANGE", key, skip, skip + limit - 1, "WITHSCORES"), _read_scored)

    def last(self, state: State, up_to: Raw = "+inf") -> Call[list[tuple[str, bytes]]]:
        """Read the id and score of a state that are the highest up to a bound; none when there are none."""
        key = self.keys.state(state)
        return Call(key, ("ZRANGE", key, up_to, "-inf", "BYSCORE", "REV", "LIMIT", 0, 1, "WITHSCORES"), _read_scored)

    def armed(self, limit: int, after_ms: Raw = 1, up_to: Raw = "+inf") -> Call[list[tuple[str, int]]]:
        """Read up to `limit` schedules with the slots that are armed, ms, earliest first; 0 is one that is paused."""
        key = self.keys.armed
        words = ("ZRANGE", key, after_ms, up_to, "BYSCORE", "LIMIT", 0, limit, "WITHSCORES")
        return Call(key, words, _read_armed)

    def armed_page(self, limit: int, skip: int) -> Call[list[tuple[str, int]] | None]:
        """Read the same of those that are not paused, but for the first `skip`; None when there are no more."""
        key = self.keys.armed
        words = ("ZRANGE", key, 1, "+inf", "BYSCORE", "LIMIT", skip, limit, "WITHSCORES")
        return Call(key, words, lambda reply: _read_armed(reply) if reply else None)

    def _message_key(self, message_id: str) -> Any:
        return word(self.keys.message(message_id))

    def _call(
        self,
        name: str,
        keys: Sequence[Any],
        args: Sequence[Raw],
        read: Callable[[Any], T],
        whole: bool = False,
        repeats: bool = True,
    ) -> Call[T]:
        return Call(keys[0], (len(keys), *keys, *args), read, script(name), whole, repeats)


def _read_claimed(reply: list[Any]) -> Claimed:
    now_ms, micros, flat, deliveries, *limited = reply
    try:
        ids = [message_id.decode() for message_id in flat[::2]]
    except UnicodeDecodeError:
        ids = list(map(id_of, flat[::2]))
    try:
        dues = list(map(int, flat[1::2]))
    except ValueError:  # a score with a fraction, which only another program writes
        dues = [int(float(due)) for due in flat[1::2]]
    earlier: list[str | None] = [text(each) for each in deliveries] if deliveries else [None] * len(ids)
    return Claimed(now_ms, micros, ids, dues, earlier, bool(limited[0]) if limited else None)


def _read_rested(reply: list[Any]) -> Rested:
    micros, message_id = reply
    return Rested(micros, id_of(message_id))


def _read_scored(reply: list[Any]) -> list[tuple[str, bytes]]:
    if reply and isinstance(reply[0], list):  # RESP3
        return [(id_of(message_id), b"%.17g" % score) for message_id, score in reply]
    return [(id_of(message_id), score) for message_id, score in zip(reply[::2], reply[1::2], strict=True)]


def _read_armed(reply: list[Any]) -> list[tuple[str, int]]:
    rows = [(name, float(slot)) for name, slot in _read_scored(reply)]
    return [(name, int(slot)) for name, slot in rows if 0 <= slot <= MAX_TIME_MS and not is_foreign(name)]


def _read_found(reply: list[Any]) -> Found:
    scores, deliveries, error, reason, cancelled, stored = reply
    where = {state: float(score) for state, score in zip(STATES, scores, strict=False) if score is not None}
    return Found(where, text(deliveries), text(error), text(reason), bool(cancelled), stored)


def _read_standing(reply: list[Any]) -> Standing:
    now_ms, paused, earlier, running, free, opens, parked = reply
    paused_ms = None if paused is None else int(paused)
    return Standing(now_ms, paused_ms, earlier, running, free, opens, None if parked is None else tuple(parked))


def _read_seen(reply: list[Any]) -> tuple[str, int] | None:
    return next(((name, int(float(seen))) for name, seen in _read_scored(reply)), None)


def _read_crew(reply: list[Any]) -> Crew:
    now_ms, flat = reply
    rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    return Crew(now_ms, [(id_of(name), int(float(seen)), document) for name, seen, document in rows])


def _read_samples(reply: list[Any]) -> list[tuple[int, str]]:
    return [(int(entry.partition(b"-")[0]), fields[1].decode(errors="replace")) for entry, fields in reply]


def _flat(times: Mapping[int, int] | None) -> list[Raw]:
    return [each for pair in (times or {}).items() for each in pair]


def _read_fires(reply: list[Any]) -> Fires:
    now_ms, counts = reply
    return Fires(now_ms, counts[::2], counts[1::2])


def _read_looked(reply: list[Any]) -> Looked:
    last, entries = reply
    return Looked(last.decode(), [(entry.decode(), fields) for entry, fields in entries])


def _read_counts(reply: list[Any]) -> Counts:
    now_ms, paused, counts, heads, flat = reply
    values = (int(value) for value in flat[1::2])
    return Counts(
        now_ms,
        None if paused is None else int(paused),
        dict(zip(STATES, counts, strict=True)),
        {state: float(score) for state, score in zip(STATES, heads, strict=False) if score is not None},
        dict(zip((name.decode() for name in flat[::2]), values, strict=True)),
    )
