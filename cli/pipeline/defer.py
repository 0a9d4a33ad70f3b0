"""pipeline defer: a table of messages goes into a lake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from pyspark.sql import DataFrame

from delayq.lake.layout import check_run
from delayq.lake.shelf import Shelf
from delayq.names import new_id
from delayq.spark.failures import checked
from delayq.spark.jobs import defer as job
from delayq.spark.jobs.tables import read_table

from ..options import command, json_option
from ..output import note, plural, print_json, say
from .running import OpenSession, spark_options, watched

FORMATS = ("parquet", "json", "csv", "orc")


@command(
    """
    echo '{"payload": "a year later", "delay": 31536000}' > reminders.json
    delayq pipeline defer reminders reminders.json --format json --lake lake
    """,
    "Put a table of messages into a lake, outside Redis.",
)
@click.argument("queue", metavar="QUEUE")
@click.argument("table", metavar="TABLE")
@click.option("--lake", required=True, metavar="PATH", help="A folder, or a URI such as s3://bucket/folder.")
@click.option("--format", "form", default="parquet", show_default=True, type=click.Choice(FORMATS), help="Of TABLE.")
@click.option("--select", "columns", multiple=True, metavar="SQL", help="A column to take; repeatable. Default: all.")
@click.option("--run", metavar="NAME", help="Names what is written; run again under it, nothing is doubled.")
@click.option(
    "--payload-format",
    default="text",
    show_default=True,
    type=click.Choice(("text", "json")),
    help="What a string payload is.",
)
@click.option("--rejects", metavar="FOLDER", help="Put rows that cannot be sent there, with the reason.")
@spark_options
@json_option
def defer(
    queue: str,
    table: str,
    lake: str,
    form: str,
    columns: tuple[str, ...],
    run: str | None,
    rejects: str | None,
    payload_format: str,
    open_session: OpenSession,
    as_json: bool,
) -> int:
    """Put the messages of TABLE, files that Spark reads, into a lake for QUEUE: Redis is not asked.

    Its columns are payload, due_at (a timestamp) or delay (seconds), and perhaps id, headers, max_retries, expires_at.
    A run that broke off is run again under its name. Exit code 1 when rows were rejected.
    """
    run = check_run(new_id() if run is None else run)
    spark = open_session()
    rows = _chosen(read_table(spark, table, form, {"header": "true"} if form == "csv" else None), columns)
    note(f"run {run}")
    with watched(spark, "deferring"):
        files = job.defer(spark, rows, lake, queue, run=run, rejects=rejects, payload_format=payload_format).collect()
    done = Shelf(lake, queue).run(run)
    assert done is not None, f"the run {run} has ended"
    told: dict[str, Any] = {
        "queue": queue,
        "run": run,
        "deferred": sum(row["rows"] for row in files),
        "repeated": done.repeated,
        "rejected": done.rejected,
        "hours": len({row["hour"] for row in files}),
        "files": len(files),
    }
    if as_json:
        print_json(told)
    else:
        _tell(told)
    return 1 if told["rejected"] else 0


def _chosen(table: DataFrame, columns: Sequence[str]) -> DataFrame:
    for column in columns:
        with checked("the column", column, f"The table has {', '.join(table.columns) or 'no columns'}"):
            table.selectExpr(column)
    return table.selectExpr(*columns) if columns else table


def _tell(told: dict[str, Any]) -> None:
    say(
        f"{plural(told['deferred'], 'message')} deferred, to {plural(told['hours'], 'hour')}, "
        f"in {plural(told['files'], 'file')}; {told['repeated']} repeated, {told['rejected']} rejected"
    )
