"""Send dead letters again: those selected by a condition in SQL, edited by a function of the user."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's usual name

from delayq.errors import InvalidInput
from delayq.model.rate_text import per_second
from delayq.model.units import due_word
from delayq.model.validation import check_queue_name
from delayq.spark.errors import checked, translated
from delayq.spark.jobs.dead_letter_edits import FAILED, GONE, SENT, DeadLetterEditor, Edit
from delayq.spark.jobs.partitions import in_tasks
from delayq.spark.redis_options import RedisOptions

MOST_ERRORS = 20


class RedriveSummary(msgspec.Struct, frozen=True):
    """The result for the selected dead letters.

    Messages that a task sent before it failed and was repeated are pending again but not counted here.

    Attributes:
        sent: pending again.
        gone: not dead, or died again since they were read; or the payload is gone.
        failed: still dead, as their edit failed.
        reasons: why edits failed and how often, the most frequent first; each task reports at most ten.
    """

    sent: int = 0
    gone: int = 0
    failed: int = 0
    reasons: dict[str, int] = {}

    @property
    def chosen(self) -> int:
        """The number of selected dead letters."""
        return self.sent + self.gone + self.failed


def dead_letters(spark: SparkSession, server: RedisOptions, queue: str, where: str | None = None) -> DataFrame:
    """Return one row per dead letter that matches a condition, with the columns of ``dead``.

    Args:
        where: a condition in Spark SQL over these columns; None for all.

    Raises:
        InvalidInput: Spark does not understand the condition.
    """
    options = server.options(queue=check_queue_name(queue), read="dead")
    with translated():
        found = spark.read.format("delayq").options(**options).load()
    if where is None:
        return found
    with checked("the condition", where, f"Dead letters have {', '.join(found.columns)}"):
        return found.where(where)


def count_errors(letters: DataFrame) -> tuple[int, dict[str, int]]:
    """Count dead letters, in total and by their error or else their reason.

    At most 20 errors are returned, the most frequent first.
    """
    error = F.coalesce("error", "reason", F.lit("")).alias("error")
    with translated():
        counts = letters.groupBy(error).agg(F.count("*").alias("count")).cache()
        try:
            total = counts.agg(F.sum("count")).first()
            first = counts.orderBy(F.desc("count"), "error").limit(MOST_ERRORS).collect()
        finally:
            counts.unpersist()
    assert total is not None, "an aggregate of all rows is one row"
    return total[0] or 0, {row[0]: row[1] for row in first}


def redrive(
    spark: SparkSession,
    server: RedisOptions,
    queue: str,
    where: str | None = None,
    edit: Edit | None = None,
    delay: float = 0,
    rate: float | str | None = None,
) -> RedriveSummary:
    """Send dead letters again, each only if it has not changed since it was selected.

    It may be interrupted at any point: messages not sent yet stay dead, and a second call continues.

    Args:
        where: a condition in Spark SQL over the columns of ``dead``; None for all.
        edit: changes each before it is sent; see `Edit`. None leaves them unchanged.
        delay: seconds from then until they are due.
        rate: the most messages to send: 100 a second, or "100/s", "5/10s"; a single task then does all the work.

    Raises:
        InvalidInput: an argument is out of range, or Spark does not understand the condition; nothing was changed.
    """
    if edit is not None and not callable(edit):
        raise InvalidInput(f"edit {edit!r} is not a function of a dict")
    due_word(delay, None)
    editor = DeadLetterEditor(server, check_queue_name(queue), edit, delay, None if rate is None else per_second(rate))
    letters = dead_letters(spark, server, queue, where)
    letters = letters.select("id", "died_at") if edit is None else letters.drop("body")
    with _by_value(edit), translated():
        done = in_tasks(letters if rate is None else letters.coalesce(1), editor, "outcome string, reason string")
        rows = done.groupBy("outcome", "reason").agg(F.count("*")).collect()
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for outcome, reason, count in rows:
        counts[outcome] += count
        if reason is not None:
            reasons[reason] += count
    return RedriveSummary(counts[SENT], counts[GONE], counts[FAILED], dict(reasons.most_common()))


@contextmanager
def _by_value(edit: Edit | None) -> Iterator[None]:
    """Send the user's function to the tasks by value, so that they need not import its module."""
    module = sys.modules.get(getattr(edit, "__module__", None) or "")
    if module is None or module.__name__ in {"__main__", "builtins"}:
        yield
        return
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # Spark's copy has no types
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
