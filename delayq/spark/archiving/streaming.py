"""Streaming queries of Spark that run until they are done or stopped, and fail with delayq's errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from delayq.errors import DelayqError, PipelineError
from delayq.lake.shown_path import shown
from delayq.spark.archiving import folders
from delayq.spark.archiving.append_table import AppendTable, StoredBatch
from delayq.spark.errors import own, translated

LOOK_SECONDS = 0.5

OnBatch = Callable[[StoredBatch], None]


MakeRows: TypeAlias = Callable[[DataFrame, int], AbstractContextManager[DataFrame]]
"""Makes the rows that a batch adds to a table, from the rows that were read and the batch's number."""


def unchanged(frame: DataFrame, _: int) -> AbstractContextManager[DataFrame]:
    """Add the rows that were read."""
    return nullcontext(frame)


def ignore(_: StoredBatch) -> None:
    """Ignore a finished batch."""


class AppendQuery:
    """Adds each batch of a query to a table, and then reports it."""

    def __init__(self, table: AppendTable, tell: OnBatch = ignore, make: MakeRows = unchanged) -> None:
        self.queue = table.queue
        self._table = table
        self._tell = tell
        self._make = make
        self._is_first = True
        self.error: Exception | None = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Add a batch; the first one may have been tried before."""
        try:
            with translated(), self._make(frame, number) as rows:
                stored = self._table.add(rows, number, again=self._is_first)
            self._is_first = False
            self._tell(stored)
        except Exception as error:  # noqa: BLE001  # its cause is raised where the queries are awaited
            self.error = error
            # Spark parses the text of this error, and overflows its stack if the text is long.
            raise PipelineError(f"queue {self.queue}: batch {number} failed") from None

    def start(self, writer: DataStreamWriter, **trigger: Any) -> StreamingQuery:
        """Start the query."""
        self._table.check()
        writer = writer.queryName(f"delayq {self._table.table} {shown(self._table.path)} {self._table.queue}")
        writer = writer.option("checkpointLocation", folders.for_spark(self._table.checkpoint)).trigger(**trigger)
        return writer.foreachBatch(self).start()


def run(
    queries: Sequence[StreamingQuery],
    appending: Sequence[AppendQuery],
    stop: threading.Event,
    look: Sequence[Callable[[], None]] = (),
) -> None:
    """Wait until all queries have ended; if `stop` is set, stop them.

    Args:
        look: functions that are called repeatedly meanwhile, and at the end.

    Raises:
        DelayqError: one of them failed; the others were stopped.
    """
    try:
        while not stop.is_set() and any(query.isActive for query in queries):
            for query in queries:
                query.awaitTermination(LOOK_SECONDS / len(queries))  # type: ignore[arg-type]  # it takes a float
            _call(look)
        if not stop.is_set():
            for query in queries:
                query.awaitTermination()  # raises its error
        _call(look)
    except PySparkException as error:
        raise next((_raised(each) for each in appending if each.error), None) or own(error) from error
    finally:
        for query in queries:
            with suppress(PySparkException):
                query.stop()


def _call(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()


def _raised(appending: AppendQuery) -> DelayqError:
    error = appending.error
    return error if isinstance(error, DelayqError) else PipelineError(f"queue {appending.queue}: {error!r}")
