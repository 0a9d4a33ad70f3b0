"""Write a whole queue to Parquet, to keep it or to move it to another server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's usual name

from delayq.errors import InvalidInput, LakeMismatch, PipelineError
from delayq.lake.shown_path import shown
from delayq.model.backup import ExpectedMessage
from delayq.model.envelope import STAMP
from delayq.model.placement import STATES
from delayq.model.progress import Progress
from delayq.model.queue_stats import QueueStats
from delayq.model.show import plural
from delayq.model.units import timestamp_ms
from delayq.operations import backup, partitions
from delayq.queue import Queue
from delayq.spark.archiving.folders import for_spark
from delayq.spark.errors import translated
from delayq.spark.jobs import manifest as folder
from delayq.spark.jobs.manifest import DrainManifest, MessageChecksum, measure
from delayq.spark.jobs.partitions import in_tasks
from delayq.spark.redis_options import RedisOptions

TRIES = 3

_LEFT_OUT = ("body",)  # part of the envelope
_ASIDE = {"collected", "promoted"}  # counters of events that change no message


class Drained(msgspec.Struct, frozen=True):
    """The result of a drain.

    Attributes:
        removed: messages that were removed from the queue.
        left: messages that were not removed, as they changed after they were read.
    """

    manifest: DrainManifest
    removed: int = 0
    left: int = 0


def drain(
    spark: SparkSession, server: RedisOptions, queue: str, path: str, *, live: bool = False, remove: bool = False
) -> Drained:
    """Write a queue to a folder: its messages, schedules, configuration and counts.

    Args:
        path: the folder, local or such as ``s3://…``, without a drained queue.
        live: read a queue in use: each message is as it was at some moment, and messages that move may be missing.
        remove: remove the written messages from the queue, after reading the files again and comparing them; messages
            that changed meanwhile stay.

    Raises:
        InvalidInput: there is no such queue, it is not paused, or the folder is taken; nothing was changed.
        PipelineError: the queue changed while it was read; nothing was removed.
        LakeMismatch: the files do not match the queue; nothing was removed.
    """
    if live and remove:
        raise InvalidInput("live and remove were given: pause the queue and drain it without live to remove messages")
    if folder.is_written(path):
        raise InvalidInput(f"{shown(path)!r} already holds a drained queue: choose another folder")
    with server.queue(queue) as opened, translated():
        _check(opened, live)
        folder.begin(path)
        found, stats = _write(spark, server, opened, path, live)
        kept = opened.execute(backup.schedules)
        folder.settle_messages(path)
        folder.write_schedules(path, kept)
        manifest = _manifest(opened, found, stats, len(kept), live)
        folder.write(path, manifest)
        if not remove:
            return Drained(manifest)
        _check_again(found, measure(all_messages(spark, server, queue)), path)
        for schedule in kept:
            opened.execute(backup.discard_schedule, schedule)
    removed, left = discard_drained(spark, server, queue, path)
    return Drained(manifest, removed, left)


def all_messages(spark: SparkSession, server: RedisOptions, queue: str) -> DataFrame:
    """Return one row per message of a queue."""
    return spark.read.format("delayq").options(**server.options(queue=queue, read="messages")).load()


def _check(queue: Queue, live: bool) -> None:
    """Refuse a queue that cannot be drained in its state at one instant."""
    if queue.execute(partitions.shard_count) is None:
        raise InvalidInput(f"there is no queue {queue.name!r} on this server: check its name and the prefix")
    stats = queue.stats()
    if stats.held:
        raise InvalidInput(
            f"queue {queue.name} has {plural(stats.held, 'held message')}, and the files keep no groups: wait until "
            "the groups have ended, or cancel them"
        )
    if live:
        return
    remedy = f"with `delayq pause {queue.name}`, or drain it live, which does not give its state at one instant"
    if stats.paused_since is None:
        raise InvalidInput(f"queue {queue.name} is not paused and would change while it is read: pause it {remedy}")
    if stats.paused_until is not None:
        raise InvalidInput(f"the pause of queue {queue.name} ends by itself: pause it without a time {remedy}")
    if stats.unack:
        raise InvalidInput(
            f"queue {queue.name} has {plural(stats.unack, 'running message')}: wait until all are settled or their "
            "leases have run out, or drain the queue live"
        )


def _write(
    spark: SparkSession, server: RedisOptions, queue: Queue, path: str, live: bool
) -> tuple[MessageChecksum, QueueStats]:
    """Write the messages, again if some came or went meanwhile; return what was written, and the counts then."""
    for _ in range(TRIES):
        before = queue.stats()
        messages = all_messages(spark, server, queue.name)
        if live:  # a message that moves meanwhile may be read twice
            messages = messages.dropDuplicates(["id"])
        written = messages.drop(*_LEFT_OUT).write.mode("overwrite").option("compression", "zstd")
        written.parquet(for_spark(folder.messages_of(path)))
        files = spark.read.parquet(for_spark(folder.messages_of(path)))
        found, after = measure(files), queue.stats()
        if live or (_books(before) == _books(after) and found.total == after.inside == _ids(files)):
            return found, after
    raise PipelineError(
        f"queue {queue.name} changed each of the {TRIES} times that it was read: stop its consumers and the programs "
        "that send, cancel or reschedule, or drain it live"
    )


def _ids(files: DataFrame) -> int:
    return files.select("id").distinct().count()


def _books(stats: QueueStats) -> dict[str, int]:
    return {name: getattr(stats, name) for name in QueueStats.COUNTERS if name not in _ASIDE}


def _manifest(queue: Queue, found: MessageChecksum, stats: QueueStats, schedules: int, live: bool) -> DrainManifest:
    return DrainManifest(
        queue=queue.name,
        drained_at=dt.datetime.now(dt.UTC),
        live=live,
        server=queue.execute(backup.server_version),
        shards=queue.execute(partitions.shard_count) or 1,
        rows=found.rows,
        checksum=found.checksum,
        schedules=schedules,
        configuration=queue.configuration(),
        stats={name: getattr(stats, name) for name in (*STATES, *QueueStats.COUNTERS)},
    )


def _check_again(found: MessageChecksum, again: MessageChecksum, path: str) -> None:
    if (again.total, again.checksum) != (found.total, found.checksum):
        raise LakeMismatch(
            f"{shown(path)!r} has {found.total} messages with checksum {found.checksum}, but the queue now has "
            f"{again.total} with {again.checksum}: nothing was removed; drain it again into another folder"
        )


def discard_drained(spark: SparkSession, server: RedisOptions, queue: str, path: str) -> tuple[int, int]:
    """Remove the messages in a folder from a queue, except those that changed since they were read.

    Returns:
        how many were removed, and how many are left.
    """
    files = spark.read.parquet(for_spark(folder.messages_of(path)))
    due = F.coalesce("due_at", "died_at").alias("at")
    with translated():
        done = in_tasks(files.select("id", "state", due, "created_at"), Discarder(server, queue), "removed boolean")
        counts = dict(map(tuple, done.groupBy("removed").count().collect()))
    return counts.get(True, 0), counts.get(False, 0)


class Discarder:
    """Removes the messages of a task from the queue. It is sent to the tasks."""

    def __init__(self, server: RedisOptions, queue: str) -> None:
        self._server = server
        self._queue = queue

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[tuple[bool]]]:
        """Yield which were removed."""
        progress = Progress("messages of this task are removed, unless they had changed")
        rest = ": all are in the folder; drain the rest of the queue into another one"
        with progress.explained(rest), self._server.queue(self._queue) as queue:
            for batch in batches:
                seen = [(row["state"], _seen(row)) for row in batch.to_pylist()]
                yield [(removed,) for removed in queue.execute(backup.discard, seen, progress)]


def _seen(row: dict[str, Any]) -> ExpectedMessage:
    created = row["created_at"]
    stamp = "" if created is None else f"{timestamp_ms(created):0{STAMP}}"
    return ExpectedMessage(row["id"], timestamp_ms(row["at"]), stamp)
