"""Work that tasks do on the rows of a table, batch by batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's usual name
from pyspark.sql.pandas.functions import ArrowUDFType

TaskWork: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[Sequence[Sequence[Any]]]]
"""Called once in each task; yields, for each batch, a tuple of cells for each of its rows."""


def in_tasks(table: DataFrame, work: TaskWork, returns: str) -> DataFrame:
    """Return the result of `work` for each row of a table, as one row each.

    It runs each time the returned table is used, and again if a task fails.

    Args:
        returns: the columns as Spark's DDL, such as ``"id string, done boolean"``.
    """
    names = list(table.columns)
    fields = [part.split()[0] for part in returns.split(", ")]

    def run(columns: Iterator[Any]) -> Iterator[pa.Array]:
        batches = (pa.RecordBatch.from_arrays(_several(each), names=names) for each in columns)
        for said in work(batches):
            cells = list(zip(*said, strict=True)) or [()] * len(fields)
            yield pa.StructArray.from_arrays(list(map(pa.array, cells)), names=fields)

    with warnings.catch_warnings():  # the variant with type hints needs pandas, like mapInArrow
        warnings.simplefilter("ignore", UserWarning)
        function = F.arrow_udf(run, returns, ArrowUDFType.SCALAR_ITER)  # type: ignore[attr-defined]  # its stubs lag
        column = function.asNondeterministic()
    return table.select(column(*names).alias("said")).select("said.*")


def _several(columns: Any) -> list[Any]:
    return list(columns) if isinstance(columns, tuple) else [columns]
