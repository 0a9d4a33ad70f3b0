"""One typed method for each script: its keys, its arguments, and how to read its reply.

The scripts' headers in ``lua/`` describe what each does, its units, its errors and its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from delayq.model.configuration import Configuration, Usage, configured
from delayq.model.envelope import STAMP
from delayq.model.placement import State
from delayq.model.queue_stats import Counts
from delayq.model.result import RECORD_FIELDS
from delayq.model.settings import FIELDS, Changes
from delayq.model.text import decode_id, encode_id
from delayq.protocol.command import Command, Raw, identity, texts
from delayq.protocol.queue_keys import QueueKeys
from delayq.protocol.record_commands import RecordCommands
from delayq.protocol.replies import (
    CancelledGroup,
    Claimed,
    ConsumersReply,
    DueCounts,
    KeyedDelivery,
    LedgerExtent,
    LedgerPage,
    MendedPage,
    SleepReply,
    StoredGroup,
    StoredMessage,
    _read_armed,
    _read_cancelled_group,
    _read_claimed,
    _read_consumers,
    _read_counts,
    _read_due_counts,
    _read_finished,
    _read_group,
    _read_last_seen,
    _read_ledger_extent,
    _read_ledger_page,
    _read_mended,
    _read_samples,
    _read_scored,
    _read_sleep,
    _read_standing,
    _read_stored,
    _read_usage,
)
from delayq.protocol.script import script

if TYPE_CHECKING:
    from delayq.model.backup import ExpectedMessage, KeptMessage
    from delayq.model.explanation import Standing

T = TypeVar("T")

MAX_IDS = 500
"""The most messages that one call touches, so that no call blocks the server for more than a few milliseconds."""

MAX_MOVED = MAX_IDS // 2
"""The most for a call that changes five structures for each message, which takes twice as long as others."""

LARGE = 8192
"""The most bytes of an envelope that is not large: ``lua/prelude.lua`` has the same number."""

_ROOM = b"0" * STAMP  # into which the send script writes the time

MAX_RESULTS = 100
"""The most results that one call keeps or looks at."""

Kept: TypeAlias = tuple[Raw, Raw, Raw, Raw, Raw, Raw, str | bytes]
"""What `keep_result` in ``lua/prelude.lua`` is given."""

RUN_CHARS = 16  # of a claim's name: the run of the consumer; a rising number follows
LAST_CLAIM = "f" * 16  # the highest number
CLAIM_KEPT_MS = 60_000  # as long as the script keeps an empty reply


class QueueCommands(RecordCommands[QueueKeys]):
    """The calls of one shard of a queue.

    Args:
        keys: of the shard.
        clock: returns the time, ms, that the scripts use, or '' for the server's own.
    """

    def __init__(self, keys: QueueKeys, clock: Callable[[], float | str] = str) -> None:
        super().__init__(keys, clock)

    def send(
        self,
        messages: Sequence[tuple[str, str, bytes]],
        named: bool = True,
        whole: bool = False,
        repeats: bool = True,
        read: Callable[[list[int]], T] = identity,
    ) -> Command[T]:
        """Take messages as triples: id, due time ('+delay_ms' or ms), envelope."""
        prefix, payloads = self.keys.message_prefix, list[str]()
        args: list[Raw] = [str(self._clock()), "1" if named else ""]
        for message_id, due, envelope in messages:
            payloads.append(prefix + message_id)
            args += message_id, due, envelope if len(envelope) <= LARGE else _ROOM + envelope
        return self._call("send", args, read, payloads, whole, repeats, are_texts=True)

    def send_one(self, message_id: str, due: str, envelope: bytes) -> Command[int]:
        """Take a message with a random id; the reply is its due time, ms, or -1 if it is for `send`."""
        args = str(self._clock()), message_id, due, envelope if len(envelope) <= LARGE else _ROOM + envelope
        return self._call("send_one", args, identity, (self.keys.message_prefix + message_id,), are_texts=True)

    def send_unique(
        self,
        messages: Sequence[tuple[str, Raw, bytes, int]],
        whole: bool = False,
        repeats: bool = True,
        read: Callable[[list[int]], T] = identity,
        marks: Sequence[str] = (),
    ) -> Command[T]:
        """Take messages as quadruples: id, due time ('+delay_ms' or ms), envelope, ms for which the id is reserved.

        If there are `marks`, they are reserved instead of the ids.
        """
        k, keys = self.keys, list[str]()
        args: list[Raw] = [self._clock()]
        for i, (message_id, due, envelope, unique_ms) in enumerate(messages):
            keys += k.message(message_id), k.unique(marks[i] if marks else message_id)
            args += message_id, due, envelope, f"+{unique_ms}"
        return self._call("send_unique", args, read, keys, whole, repeats)

    def replace(
        self,
        message_id: str,
        due: Raw,
        envelope: bytes,
        read: Callable[[list[int]], T] = identity,
        whole: bool = False,
    ) -> Command[T]:
        args = [self._clock(), message_id, due, envelope]
        return self._call("replace", args, read, whole=whole, payload=self.keys.message(message_id))

    def send_group(
        self, name: str, mode: str, messages: Sequence[tuple[str, str, bytes]], waits: bool, named: bool = True
    ) -> Command[list[Any]]:
        """Take messages as triples: id, due time, envelope; if one `waits`, it comes first."""
        args: list[Raw] = [self._clock(), name, mode, "1" if named else "", int(waits)]
        for message in messages:
            args += message
        return self._call("send_group", args, identity, [self.keys.message(message[0]) for message in messages])

    def group(self, name: str) -> Command[StoredGroup | None]:
        return self._call("group", [name], _read_group)

    def cancel_group(self, name: str) -> Command[CancelledGroup | None]:
        return self._call("cancel_group", [self._clock(), name], _read_cancelled_group, repeats=False)

    def sweep_groups(self) -> Command[MendedPage]:
        return self._call("sweep_groups", [self._clock()], _read_mended)

    def mend_groups(self) -> Command[MendedPage]:
        return self._call("mend_groups", [self._clock()], _read_mended)

    def begin_sweeps(self) -> Command[int]:
        """Let the next calls of both begin a sweep, even if one has just ended."""
        return Command(self.keys.groups, ("HDEL", self.keys.groups, "", "\0"), int)

    def pending_to_ready(self, limit: int = MAX_IDS) -> Command[int]:
        return self._call("pending_to_ready", [str(self._clock()), str(limit)], int, are_texts=True)

    def ready_to_unack(
        self, limit: int, lease_ms: int, consumer: str = "", claim: str = "", by_ms: Raw = ""
    ) -> Command[Claimed]:
        """Take a claim name of 32 characters: 16 for the run of the consumer, then a rising number."""
        key = self.keys.claim(consumer, claim[:RUN_CHARS])
        args = [str(self._clock()), str(limit), str(lease_ms), consumer, claim, str(by_ms)]
        return self._call("ready_to_unack", args, _read_claimed, repeats=bool(claim), are_texts=True, claim=key)

    def unack_to_retry(
        self,
        limit: int = MAX_MOVED,
        by_ms: Raw = "",
        is_consumer: bool = False,
        read: Callable[[list[int]], int] = itemgetter(0),
    ) -> Command[int]:
        """Return the number of deliveries taken back."""
        return self._call("unack_to_retry", [self._clock(), limit, by_ms, 1 if is_consumer else ""], read)

    def ack(self, receipts: Sequence[tuple[str, str]]) -> Command[list[int]]:
        """Take deliveries as pairs: id, receipt."""
        ids = [message_id for message_id, _ in receipts]
        prefix = self.keys.message_prefix
        args = [str(self._clock()), *ids, *[receipt for _, receipt in receipts]]
        return self._call("ack", args, identity, [prefix + message_id for message_id in ids], are_texts=True)

    def ack_result(self, deliveries: Sequence[tuple[str, str, Kept]]) -> Command[list[int]]:
        """Take up to MAX_RESULTS deliveries: id, receipt, and what to keep."""
        args: list[Raw] = [self._clock()]
        keys: list[str] = []
        for message_id, receipt, kept in deliveries:
            args += (message_id, receipt, *kept)
            keys += self._result_keys(message_id)[:2]
        return self._call("ack_result", args, identity, keys)

    def ack_then(
        self,
        message_id: str,
        receipt: str,
        messages: Sequence[tuple[str, Raw, bytes, str]],
        kept: Kept | tuple[()] = (),
    ) -> Command[int]:
        """Take messages as quadruples: id, due time, envelope, and "ignore", "replace", "error" or "new"."""
        args: list[Raw] = [self._clock(), message_id, receipt]
        for message in messages:
            args += message
        args += kept
        keys = [self.keys.message(message[0]) for message in messages]
        keys += self._result_keys(message_id)[1:] if kept else ()
        return self._call("ack_then", args, int, keys, payload=self.keys.message(message_id))

    def nack(
        self,
        message_id: str,
        receipt: str,
        delay_ms: int,
        error: str = "",
        free: bool = False,
        begun: bool = True,
        handed_us: Raw = "",
        kept: Kept | tuple[()] = (),
    ) -> Command[int]:
        begins = [int(free), int(begun), handed_us]
        args: list[Raw] = [self._clock(), message_id, receipt, f"+{delay_ms}", error, *begins, *kept]
        return self._call("nack", args, int, self._result_keys(message_id)[1:] if kept else ())

    def extend(self, message_id: str, receipt: str, lease_ms: int) -> Command[int]:
        return self._call("extend", [self._clock(), encode_id(message_id), receipt, lease_ms], int)

    def progress(self, message_id: str, receipt: str, reported: bytes) -> Command[int]:
        key = encode_id(self.keys.progress(message_id))
        return self._call("progress", [encode_id(message_id), receipt, reported], int, progress=key)

    def forget_progress(self, message_id: str) -> Command[int]:
        """Forget what a message's handler has reported; a plain command."""
        key: Any = encode_id(self.keys.progress(message_id))
        return Command(key, ("UNLINK", key), int)

    def give_up_place(self, message_id: str, receipt: str) -> Command[int]:
        return self._call("give_up_place", [encode_id(message_id), receipt], int)

    def release(
        self, message_id: str, receipt: str, due_ms: int, handed_us: Raw = "", begun: bool = False
    ) -> Command[int]:
        args = [self._clock(), encode_id(message_id), receipt, due_ms, handed_us, int(begun)]
        return self._call("release", args, int)

    def reject(
        self,
        message_id: str,
        receipt: str,
        reason: str,
        error: str = "",
        counted: bool = True,
        kept: Kept | tuple[()] = (),
    ) -> Command[int]:
        args = [self._clock(), encode_id(message_id), receipt, reason, error, int(counted), *kept]
        return self._call("reject", args, int, self._result_keys(message_id) if kept else ())

    def expire(self, message_id: str, receipt: str, kept: Kept | tuple[()] = ()) -> Command[int]:
        more = self._result_keys(message_id) if kept else ()
        return self._call("expire", [self._clock(), message_id, receipt, *kept], int, more)

    def results(self, waited: Sequence[tuple[str, str]]) -> Command[list[bytes]]:
        """Take up to MAX_RESULTS ids with their tokens, "" for the latest message of an id."""
        keys = [key for message_id, _ in waited for key in self._result_keys(message_id)[:2]]
        return self._call("results", [encode_id(each) for pair in waited for each in pair], identity, keys)

    def _result_keys(self, message_id: str) -> tuple[Any, Any, Any]:
        return self._message_key(message_id), encode_id(self.keys.result(message_id)), self.keys.finished

    def acquire_slot(self, deliveries: Sequence[KeyedDelivery], net_ms: int, handed_us: Raw = "") -> Command[list[int]]:
        args: list[Raw] = [self._clock(), net_ms, handed_us]
        for each in deliveries:
            args += (encode_id(each.key), each.message_id, each.receipt, each.due_ms)
        return self._call("acquire_slot", args, identity)

    def release_slot(self, deliveries: Sequence[KeyedDelivery]) -> Command[int]:
        args: list[Raw] = [self._clock()]
        for each in deliveries:
            args += (encode_id(each.key), each.message_id, each.receipt)
        return self._call("release_slot", args, int)

    def held_keys(self, index: str, after: str, limit: int) -> Command[list[str]]:
        """List keys in `index`, which is that of slots or of waiting."""
        return self._call(
            "held_keys", [encode_id(after), limit], lambda reply: list(map(decode_id, reply)), index=index
        )

    def cancel(self, message_id: str, running: bool = False, group: Raw = "") -> Command[str]:
        args: list[Raw] = [self._clock(), encode_id(message_id), int(running), group]
        return self._call("cancel", args, bytes.decode, repeats=False)

    def bury(self, message_id: str, reason: str) -> Command[str]:
        return self._call("bury", [self._clock(), encode_id(message_id), reason], bytes.decode, repeats=False)

    def reschedule(self, message_id: str, due: Raw) -> Command[str]:
        return self._call("reschedule", [self._clock(), encode_id(message_id), due], bytes.decode)

    def requeue(self, ids: Sequence[str], due: Raw = "+0", up_to: Raw = "") -> Command[list[int]]:
        args = [self._clock(), due, up_to, *map(encode_id, ids)]
        return self._call("requeue", args, identity, list(map(self._message_key, ids)), repeats=False)

    def edit(
        self, message_id: str, died_ms: Raw, due: Raw, envelope: bytes, created_ms: int | None = None
    ) -> Command[bool]:
        args = [self._clock(), message_id, died_ms, due, envelope, "" if created_ms is None else f"{created_ms:013}"]
        return self._call("edit", args, bool, repeats=False, payload=self.keys.message(message_id))

    def purge(
        self, source: State, up_to: Raw = "+inf", limit: int = MAX_IDS, shards: int | None = None
    ) -> Command[int]:
        args: list[Raw] = [self._clock(), up_to, limit, "" if shards is None else shards]
        return self._call("purge", args, int, repeats=shards is not None, source=self.keys.state(source))

    def remove_queue(self) -> Command[int]:
        return self._call("remove_queue", [], int, self.keys.others())

    def remove_if_unchanged(self, source: State, messages: Sequence[ExpectedMessage]) -> Command[list[int]]:
        args: list[Raw] = [self._clock()]
        for each in messages:
            args += (encode_id(each.message_id), each.score, each.stamp)
        payloads, key = [self._message_key(each.message_id) for each in messages], self.keys.state(source)
        return self._call("remove_if_unchanged", args, identity, payloads, repeats=False, source=key)

    def restore(self, target: State, messages: Sequence[KeptMessage]) -> Command[list[int]]:
        args: list[Raw] = [self._clock()]
        for each in messages:
            args += (encode_id(each.message_id), *each[1:])
        payloads = [self._message_key(each.message_id) for each in messages]
        return self._call("restore", args, identity, payloads, target=self.keys.state(target))

    def delete_payloads(self, ids: Sequence[str]) -> Command[int]:
        payloads = list(map(self._message_key, ids))
        return self._call("delete_payloads", list(map(encode_id, ids)), int, payloads, repeats=False)

    def pause(self, for_ms: int | None = None, if_running: bool = False) -> Command[int]:
        args: list[Raw] = [self._clock(), "" if for_ms is None else for_ms, "1" if if_running else ""]
        return self._call("pause", args, int)

    def resume(self, until: Raw = "") -> Command[int]:
        return self._call("resume", [until], int)

    def configure(self, changes: Changes, are_wishes: bool = False) -> Command[int]:
        words = ["1" if are_wishes else "", *_fields(changes)]
        return self._call("configure", words, int)

    def ring(self) -> Command[int]:
        return self._call("ring", [], int)

    def plan_sleep(self, name: str, most_ms: int, held: bool | None = False) -> Command[SleepReply]:
        args = [str(self._clock()), name, str(most_ms), "1" if held else ""]
        return self._call("plan_sleep", args, _read_sleep, are_texts=True)

    def poll_idle(self, name: str, most_ms: int) -> Command[SleepReply]:
        return self._call("poll_idle", [self._clock(), name, most_ms], _read_sleep)

    def get(self, message_id: str) -> Command[StoredMessage]:
        keys = {"payload": self._message_key(message_id), "progress": encode_id(self.keys.progress(message_id))}
        return self._call("get", [encode_id(message_id)], _read_stored, **keys)

    def why(self, message_id: str) -> Command[Standing]:
        return self._call("why", [self._clock(), encode_id(message_id)], _read_standing)

    def usage(self, late_ms: int) -> Command[Usage]:
        return self._call("usage", [self._clock(), late_ms], _read_usage)

    def heartbeat(self, name: str, document: Raw, runs: Mapping[str, int] | None = None) -> Command[int]:
        """Take how handlers ran as fields and counts, like `deregister`."""
        return self._call("heartbeat", [self._clock(), name, document, *_flat(runs)], int)

    def deregister(self, name: str, runs: Mapping[str, int] | None = None) -> Command[int]:
        return self._call("deregister", [name, *_flat(runs)], int, repeats=False)

    def consumers(self, skip: int = 0) -> Command[ConsumersReply]:
        return self._call("consumers", [self._clock(), skip], _read_consumers)

    def sample(self, counters: Sequence[str]) -> Command[int]:
        return self._call("sample", [self._clock(), *counters], int)

    def samples(self, key: str, since_ms: int = 0) -> Command[list[tuple[int, str]]]:
        """Read the samples under one of the two keys: the time of each, ms, and its text; a plain command."""
        return Command(key, (b"XRANGE", key, since_ms, "+"), _read_samples)

    def stats(self) -> Command[Counts]:
        return self._call("stats", [self._clock()], _read_counts)

    def upcoming(self, bucket_ms: int, count: int) -> Command[DueCounts]:
        return self._call("upcoming", [self._clock(), bucket_ms, count], _read_due_counts)

    def history(self, message_id: str, start: str = "+", limit: int = MAX_IDS) -> Command[LedgerPage]:
        return self._call("history", [encode_id(message_id), start, limit], _read_ledger_page)

    def ledger_extent(self, start: str) -> Command[LedgerExtent]:
        return self._call("ledger_extent", [start], _read_ledger_extent)

    def repair(self, message_id: str, latest_ms: int, lease_ms: int) -> Command[list[str]]:
        args, payload = [self._clock(), encode_id(message_id), latest_ms, lease_ms], self._message_key(message_id)
        return self._call("repair", args, lambda reply: [words.decode() for words in reply], payload=payload)

    def reconcile_stats(self) -> Command[int]:
        return self._call("reconcile_stats", [], int)

    def enqueue_occurrence(
        self,
        name: str,
        slot: Raw,
        slot_id: str,
        record: bytes,
        to: Raw,
        to_id: str = "",
        envelope: bytes = b"",
        missed: int = 0,
    ) -> Command[int]:
        """Take slots as ms, "" for none; an empty `record` keeps the stored one."""
        words: list[Raw] = [self._clock(), name, slot, slot_id, record, to, to_id, envelope, missed]
        return self._call("enqueue_occurrence", words, int, payload=self.keys.message(to_id))

    def confirm(self) -> Command[int]:
        """Write something, so that a following WAIT covers all earlier writes; a plain command."""
        return Command(self.keys.stats, ("HINCRBY", self.keys.stats, "confirmed", 1), int)

    def configuration(self) -> Command[Configuration]:
        """Read the configuration; a plain command."""
        return Command(self.keys.meta, ("HMGET", self.keys.meta, *FIELDS), configured)

    def last_seen(self) -> Command[tuple[str, int] | None]:
        """Read which consumer reported last, and when, ms; a plain command."""
        key = self.keys.consumers
        return Command(key, ("ZRANGE", key, -1, -1, "WITHSCORES"), _read_last_seen)

    def end_claims(self, consumer: str, run: str) -> Command[Any]:
        """Answer no more claims of a consumer's run, which has ended: a frozen server may still execute copies."""
        key = self.keys.claim(consumer, run)
        return Command(key, ("SET", key, run + LAST_CLAIM, "PX", CLAIM_KEPT_MS), identity)

    def fitting(self, ids: Sequence[str], most_bytes: int) -> Command[int]:
        keys = self._message_keys(ids)
        return Command(self.keys.message_prefix, texts((len(keys), *keys, most_bytes)), int, script("fitting"))

    def envelopes(
        self, ids: Sequence[str], read: Callable[[list[bytes | None]], T] = identity, repeats: bool = True
    ) -> Command[T]:
        """Read the stored envelopes, None if one is gone; a plain command, like those below.

        Several envelopes may have any size together: `delayq.operations.fetch` bounds them.
        """
        keys = self._message_keys(ids)
        return Command(self.keys.message_prefix, ("MGET", *keys), read, repeats=repeats)

    def are_small(self) -> Command[bool]:
        """Read whether all envelopes that were ever stored have at most `LARGE_BYTES`, as far as Redis knows."""
        return Command(self.keys.stats, ("HMGET", self.keys.stats, "large"), lambda reply: reply[0] == b"0")

    def page(self, state: State, limit: int, after_ms: Raw = "-inf", up_to: Raw = "+inf") -> Command[list[str]]:
        """Read up to `limit` ids of a state with scores between the bounds, lowest first."""
        key = self.keys.state(state)
        words = ("ZRANGE", key, after_ms, up_to, "BYSCORE", "LIMIT", 0, limit)
        return Command(key, words, lambda reply: list(map(decode_id, reply)))

    def ranked_page(self, state: State, limit: int, skip: int) -> Command[list[tuple[str, bytes]]]:
        """Read up to `limit` ids and scores of a state, lowest first, after the first `skip`, which cost nothing."""
        key = self.keys.state(state)
        return Command(key, ("ZRANGE", key, skip, skip + limit - 1, "WITHSCORES"), _read_scored)

    def record(self, message_id: str) -> tuple[Command[list[bytes | None]], Command[int]]:
        """Read the RECORD_FIELDS of a task's record, and how long it is kept, ms; plain commands."""
        key: Any = encode_id(self.keys.result(message_id))
        return Command(key, ("HMGET", key, *RECORD_FIELDS), identity), Command(key, ("PTTL", key), int)

    def last_finished(self) -> Command[str]:
        """Read the stream id of the last message that ended with a result; a plain command."""
        key = self.keys.finished
        return Command(
            key, (b"XREVRANGE", key, "+", "-", "COUNT", 1), lambda found: found[0][0].decode() if found else "0-0"
        )

    def finished(self, after: str) -> Command[list[tuple[str, str]]]:
        """Read the stream ids and ids of messages that have ended with a result, after a stream id; a plain command."""
        key = self.keys.finished
        return Command(key, (b"XRANGE", key, f"({after}", "+", "COUNT", 1000), _read_finished)

    def last(self, state: State, up_to: Raw = "+inf") -> Command[list[tuple[str, bytes]]]:
        """Read the id and score of the last message of a state up to a bound; empty if there is none."""
        key = self.keys.state(state)
        return Command(key, ("ZRANGE", key, up_to, "-inf", "BYSCORE", "REV", "LIMIT", 0, 1, "WITHSCORES"), _read_scored)

    def has_stops(self) -> Command[int]:
        """Read whether any delivery is to be stopped."""
        return Command(self.keys.stops, ("EXISTS", self.keys.stops), int)

    def stopping(self, receipts: Sequence[tuple[str, str]]) -> Command[list[bytes | None]]:
        """Read which of these deliveries, as pairs of id and receipt, are to be stopped: None for the others."""
        return Command(self.keys.stops, ("ZMSCORE", self.keys.stops, *_stops(receipts)), identity)

    def stopped(self, receipts: Sequence[tuple[str, str]]) -> Command[int]:
        """Forget that these deliveries are to be stopped: they have ended."""
        return Command(self.keys.stops, ("ZREM", self.keys.stops, *_stops(receipts)), int)

    def armed_page(self, limit: int, skip: int) -> Command[list[tuple[str, int]] | None]:
        """Read up to `limit` schedules with their armed slots, ms, earliest first; None after the last ones."""
        key = self.keys.armed
        words = ("ZRANGE", key, 1, "+inf", "BYSCORE", "LIMIT", skip, limit, "WITHSCORES")
        return Command(key, words, lambda reply: _read_armed(reply) if reply else None)

    def _message_keys(self, ids: Sequence[str]) -> list[Any]:
        prefix = self.keys.message_prefix
        keys: list[Any] = [prefix + message_id for message_id in ids]
        try:
            "".join(ids).encode()
        except UnicodeEncodeError:
            keys = list(map(encode_id, keys))
        return keys

    def _message_key(self, message_id: str) -> Any:
        return encode_id(self.keys.message(message_id))


def _stops(receipts: Sequence[tuple[str, str]]) -> list[str | bytes]:
    return [encode_id(f"{receipt}\0{message_id}") for message_id, receipt in receipts]


def _fields(changes: Changes) -> list[Raw]:
    return ["" if each is None else each for pair in changes.items() for each in pair]


def _flat(counts: Mapping[str, int] | None) -> list[Raw]:
    return [each for pair in (counts or {}).items() for each in pair]
