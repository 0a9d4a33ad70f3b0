"""Writing: each row of a table becomes exactly one message, however often its task or its job runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from delayq.errors import InvalidInput, RowRefused
from delayq.lake.object_store import whole, write_json
from delayq.log import log
from delayq.model.delivery import Outgoing
from delayq.model.envelope import MAX_PAYLOAD_BYTES
from delayq.model.message_ids import new_id
from delayq.model.placement import MAX_SHARDS
from delayq.model.progress import Progress
from delayq.operations.encode import EncodedMessage, encode_message, stored_retries
from delayq.operations.send import send_new
from delayq.spark.errors import ASIDE
from delayq.spark.reading.options import SourceOptions, check_known, one_of, required, seconds_of
from delayq.spark.reading.options import whole as number
from delayq.spark.redis_options import RedisOptions, ServerClock
from delayq.spark.writing.ids import Ids
from delayq.spark.writing.rejects import Rejects, forget_rejects
from delayq.spark.writing.rows import FORMATS, Rows, TableRow

DAY = 86_400.0
MOST_BYTES = 512 * 1024 * 1024  # of a value in Redis
MODES = ("FAILFAST", "PERMISSIVE")
OPTIONS = (
    *("url", "urlFrom", "prefix", "waitFor", "queue", "payloadFormat", "uniqueFor", "run", "mode", "rejects"),
    *("summary", "shards", "maxPayload"),
)
Encode: TypeAlias = Callable[[Outgoing], EncodedMessage]
_SPARKS = ("checkpointlocation", "queryname")  # options of Spark that it passes along for a stream


class Summary(msgspec.Struct, frozen=True):
    """The result for the rows of a table.

    Attributes:
        sent: new messages.
        existing: rows whose id existed or was reserved, as an earlier run or an earlier try of a task sent them.
        rejected: rows that could not be sent, in mode PERMISSIVE.
    """

    sent: int = 0
    existing: int = 0
    rejected: int = 0

    def __add__(self, other: Summary) -> Summary:
        return Summary(self.sent + other.sent, self.existing + other.existing, self.rejected + other.rejected)


@dataclass
class TaskSummary(WriterCommitMessage):
    """What a task has done."""

    summary: Summary


class WriteTask:
    """The options of a write, and the work of a task. It is sent to the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        options = SourceOptions(options)
        check_known({name: options[name] for name in options if name.lower() not in _SPARKS}, OPTIONS, "a write")
        self._server = RedisOptions.of(options)
        self._queue = required(options, "queue")
        self._rows = Rows(schema, one_of(options, "payloadFormat", FORMATS, "text"))
        self._unique_ms = round(seconds_of(options, "uniqueFor", DAY) * 1000)
        self._mode = one_of(options, "mode", MODES, "FAILFAST")
        self._rejects = whole(required(options, "rejects")) if self._mode == "PERMISSIVE" else None
        self._summary = options.get("summary")
        self._shards = number(options, "shards", MAX_SHARDS)
        self._max_payload = number(options, "maxPayload", MOST_BYTES) or MAX_PAYLOAD_BYTES

    def run(self, batches: Iterator[pa.RecordBatch], run: str, again: str, even_none: bool = True) -> TaskSummary:
        """Send the rows of a task.

        Args:
            again: what continues the write after a server's error, for the error's text.
            even_none: as in `Rejects.write`.
        """
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        rejects = None if self._rejects is None else Rejects(self._rejects, self._rows.schema, partition)
        task = TaskEncoder(partition, Ids(run, partition), self._unique_ms, rejects)
        summary = Summary()
        still = f"within {self._unique_ms / 1000:g} s" if self._unique_ms else "while they exist"
        explained = task.progress.explained(f": {again} does not send them again {still}")
        with explained, self._server.queue(self._queue, shards=self._shards) as queue:
            clock = ServerClock(queue)
            for batch in batches:
                rows = self._rows.read(batch, task.rows, clock.now())
                encode = partial(
                    encode_message, max_retries=queue.execute(stored_retries), max_payload=self._max_payload
                )
                new = queue.execute(send_new, list(task.encode(rows, encode)), task.progress)
                summary += Summary(sent=sum(new), existing=len(new) - sum(new))
        if rejects is None:
            return TaskSummary(summary)
        rejects.write(run, even_none)
        return TaskSummary(summary + Summary(rejected=rejects.count))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:
        """Log the total of all tasks."""
        total = sum((message.summary for message in messages if isinstance(message, TaskSummary)), Summary())
        counts: dict[str, Any] = msgspec.structs.asdict(total) | ({} if batch is None else {"batch": batch})
        log.info("rows sent", queue=self._queue, **counts)
        if self._summary is not None:
            write_json(self._summary, {"queue": self._queue} | counts)

    def forget(self, run: str, tasks: int) -> None:
        """Remove the rejects of an earlier try of the run with more tasks."""
        if self._rejects is not None:
            forget_rejects(self._rejects, run, tasks)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log that the job failed. Sent messages stay, and a rerun with the same ids does not send them again."""
        done = sum(message is not None for message in messages)
        log.warning("write failed", queue=self._queue, finished_tasks=done)


class TaskEncoder:
    """Encodes the rows of a task.

    Attributes:
        rows: how many it has seen.
        progress: how many are stored.
    """

    def __init__(self, partition: int, ids: Ids, unique_ms: int, rejects: Rejects | None) -> None:
        self.rows = 0
        self.progress = Progress(f"rows of partition {partition} are stored")
        self._partition = partition
        self._ids = ids
        self._unique_ms = unique_ms
        self._rejects = rejects

    def encode(self, rows: Iterable[TableRow], encode: Encode) -> Iterator[EncodedMessage]:
        """Yield the messages of the rows, with ids that are the same in each try.

        Raises:
            RowRefused: a row cannot be sent, and rejects are not kept.
        """
        for row in rows:
            self.rows += 1
            try:
                encoded = self._encode(row, encode)
            except InvalidInput as error:
                self._reject(row, error)
            else:
                yield encoded

    def _encode(self, row: TableRow, encode: Encode) -> EncodedMessage:
        if isinstance(row.message, InvalidInput):
            raise row.message
        encoded = encode(row.message)
        message_id = encoded.id
        if row.id is None:
            lasting = encoded
            if row.expires_at is not None:
                lasting = encode(msgspec.structs.replace(row.message, expires_in=None))
            message_id = self._ids.make(lasting.due, lasting.envelope, row.expires_at)
        return EncodedMessage(message_id, encoded.due, encoded.envelope, "ignore", True, self._unique_ms)

    def _reject(self, row: TableRow, error: InvalidInput) -> None:
        if self._rejects is None:
            named = "" if row.id is None else f" (id {row.id!r})"
            raise RowRefused(
                f"row {row.number} of partition {self._partition}{named} cannot be sent: {error}. Rows before it may "
                "have been sent: a rerun with the same ids does not send them again. "
                f'{ASIDE}.option("mode", "PERMISSIVE")'
            ) from error
        self._rejects.add(row.batch, row.position, row.number, str(error))


class Sink(DataSourceArrowWriter):
    """Sends a table, each row exactly once."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._task = WriteTask(options, schema)
        self._run = options.get("run") or new_id()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task."""
        return self._task.run(iterator, self._run, f'a rerun with run "{self._run}"')

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log what was sent."""
        self._task.forget(self._run, len(messages))
        self._task.commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log that the job failed."""
        self._task.abort(messages)
