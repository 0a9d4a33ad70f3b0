"""Restore a drained queue into Redis: on the same or another server, under the same or another name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from delayq.errors import InvalidInput, LakeMismatch
from delayq.lake.shown_path import shown
from delayq.model.backup import KeptMessage, renamed
from delayq.model.configuration import changes, check_shards
from delayq.model.delivery import Deliveries
from delayq.model.envelope import STAMP
from delayq.model.placement import State
from delayq.model.progress import Progress
from delayq.model.units import timestamp_ms
from delayq.operations import backup, partitions
from delayq.queue import Queue
from delayq.spark.archiving.folders import for_spark
from delayq.spark.errors import translated
from delayq.spark.jobs import manifest as folder
from delayq.spark.jobs.drain import all_messages
from delayq.spark.jobs.manifest import DrainManifest, MessageChecksum, measure
from delayq.spark.jobs.partitions import in_tasks
from delayq.spark.redis_options import RedisOptions


class Restored(msgspec.Struct, frozen=True):
    """The result of a restore.

    Attributes:
        queue: the name of the restored queue.
        restored: messages that were restored.
        existing: messages that an earlier run had already restored.
        schedules: schedules that were restored.
    """

    queue: str
    restored: int
    existing: int
    schedules: int


def restore(
    spark: SparkSession,
    path: str,
    server: RedisOptions,
    queue: str | None = None,
    *,
    shards: int | None = None,
    resume: bool = False,
) -> Restored:
    """Restore a drained queue: its messages as they were, its schedules and its configuration.

    The queue is paused first and stays paused. If a run is interrupted, run it again. Reserved ids (`unique_for`) are
    not restored, and neither is the ledger, which gets an entry for each restored message.

    Args:
        path: the folder that `drain` has written.
        queue: a name other than the original one.
        shards: the number of shards of a new queue; None for the original number.
        resume: whether to resume the queue once everything is restored and verified.

    Raises:
        InvalidInput: there is no drained queue, or the queue holds other messages; no message was changed.
        LakeMismatch: the folder does not match its manifest, and nothing was changed; or, at the end, the queue does
            not match the folder.
    """
    manifest = folder.read(path)
    name = queue or manifest.queue
    with translated():
        messages = _read(spark, path, manifest)
        schedules = folder.read_schedules(path, manifest)
        shards = shards or _shards(server, name) or manifest.shards
        kept = msgspec.structs.asdict(manifest.configuration)
        limits = {field: value for field, value in kept.items() if value is not None}
        check_shards(shards, changes(**limits), f"queue {name}")
        with server.queue(name, shards=shards) as opened:
            opened.execute(partitions.shard_count, create=True)
            messages = _as_restored(messages, renamed(schedules, manifest.shards, shards))
            _check_empty(all_messages(spark, server, name), messages, opened)
            opened.configure(**limits)
            opened.pause()
            expected = measure(messages)
            done = in_tasks(messages, Restorer(server, name), "is_new boolean")
            counts = dict(map(tuple, done.groupBy("is_new").count().collect()))
            armed = sum(opened.execute(backup.restore_schedule, each) for each in schedules)
            _verify(expected, measure(all_messages(spark, server, name)), opened)
            if resume:
                opened.resume()
    return Restored(name, counts.get(True, 0), counts.get(False, 0), armed)


def _shards(server: RedisOptions, name: str) -> int | None:
    """Return how many shards a queue has; None for one that is new."""
    with server.queue(name) as there:
        return there.execute(partitions.shard_count)


def _read(spark: SparkSession, path: str, manifest: DrainManifest) -> DataFrame:
    """Return the messages of a drained queue, if they match the manifest."""
    messages = spark.read.schema(_COLUMNS).parquet(for_spark(folder.messages_of(path)))
    found = measure(messages)
    if found != manifest.measure:
        raise LakeMismatch(
            f"{shown(path)!r} has {found.total} messages with checksum {found.checksum}, but its manifest says "
            f"{manifest.measure.total} with {manifest.checksum}: these are not the files that were written; nothing "
            "was changed"
        )
    return messages


_COLUMNS = (
    "id string, state string, due_at timestamp, lease_until timestamp, died_at timestamp, deliveries string, "
    "error string, reason string, cancelled boolean, created_at timestamp, envelope binary"
)


def _as_restored(messages: DataFrame, new_ids: Mapping[Any, Any]) -> DataFrame:
    """Return messages as they will be: without those cancelled in flight, and with new ids of occurrences."""
    found = messages.where("NOT coalesce(cancelled, false)")
    return found.replace(dict(new_ids), subset=["id"]) if new_ids else found


def _check_empty(there: DataFrame, messages: DataFrame, queue: Queue) -> None:
    """Refuse a queue that holds messages which an earlier run did not restore."""
    if not queue.stats().inside:
        return
    same = ["id", "envelope", "created_at"]
    matches = [there[name].eqNullSafe(messages[name]) for name in same]
    others = there.join(messages.select(same), matches, "left_anti").limit(5)
    ids = [row[0] for row in others.select(there["id"]).collect()]
    if ids:
        raise InvalidInput(
            f"queue {queue.name} holds messages that are not among the drained ones, such as {', '.join(ids)}: restore "
            "into an empty queue, or under another name"
        )


def _verify(expected: MessageChecksum, found: MessageChecksum, queue: Queue) -> None:
    if (found.total, found.checksum) != (expected.total, expected.checksum):
        raise LakeMismatch(
            f"queue {queue.name} holds {found.total} messages with checksum {found.checksum}, but should hold "
            f"{expected.total} with {expected.checksum}: other programs use it. It is still paused: purge it and "
            "restore again"
        )


class Restorer:
    """Restores the messages of a task. It is sent to the tasks."""

    def __init__(self, server: RedisOptions, queue: str) -> None:
        self._server = server
        self._queue = queue

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[tuple[bool]]]:
        """Yield which messages did not exist."""
        progress = Progress("messages of this task are restored")
        with progress.explained(": a second run restores the others"), self._server.queue(self._queue) as queue:
            for batch in batches:
                messages = list(map(kept, batch.to_pylist()))
                yield [(is_new,) for is_new in queue.execute(backup.restore, messages, progress)]


def kept(row: Mapping[str, Any]) -> tuple[State, KeptMessage]:
    """Return a row as a message to restore. A message in flight counts as a lost delivery."""
    state, deliveries, at = row["state"], row["deliveries"] or "", row["due_at"] or row["died_at"]
    if state == "unack":
        past = Deliveries.read(row["deliveries"])
        state, at = "retry", row["lease_until"]
        deliveries = ".".join(map(str, past._replace(past=past.past + 1, lost=past.lost + 1)))
    stored = b""
    if row["envelope"] is not None:
        created = 0 if row["created_at"] is None else timestamp_ms(row["created_at"])
        stored = f"{created:0{STAMP}}".encode() + row["envelope"]
    known = KeptMessage(row["id"], timestamp_ms(at), stored, deliveries, row["error"] or "", row["reason"] or "")
    return state, known
