"""Write a stream, with classes that came with Spark 4.1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from delayq.spark.writing.sink import WriteTask


class StreamSink(DataSourceStreamArrowWriter):
    """Sends a stream of tables, each row of each batch exactly once, even if a batch is repeated."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._task = WriteTask(options, schema)
        self._run = options.get("run")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task."""
        context = TaskContext.get()
        assert context is not None, "a stream is written by tasks"
        # A repeated batch has the same number, and so do its rows.
        query = self._run or context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query is not None, "Spark tells each task its query"
        assert batch is not None, "Spark tells each task its batch"
        return self._task.run(iterator, f"{query}-{batch}", "a restart from its checkpoint", even_none=False)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's
        """Log what was sent."""
        self._task.commit(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        """Log that the batch failed."""
        self._task.abort(messages)
