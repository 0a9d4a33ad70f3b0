"""pipeline defer: write a table of messages to a lake."""

from __future__ import annotations

from typing import Any

import click

from delayq.lake.layout import check_run
from delayq.lake.queue_folder import QueueFolder
from delayq.lake.shown_path import shown
from delayq.model.message_ids import new_id
from delayq.model.show import plural
from delayq.spark.errors import put_aside_by
from delayq.spark.jobs import defer as job
from delayq.spark.jobs.preview import preview
from delayq.spark.jobs.tables import read_messages

from ..options import command, json_option
from ..output import note, print_json, say
from .spark_session import OpenSession, spark_options, watched
from .tables import ASIDE, table_options, tell_preview, tell_rejected


@command(
    """
    echo '{"payload": "a year later", "delay": 31536000}' > reminders.json
    delayq pipeline defer reminders reminders.json --lake lake
    """,
    "Write a table of messages to a lake, outside Redis.",
)
@click.argument("queue", metavar="QUEUE")
@table_options
@click.option("--lake", required=True, metavar="PATH", help="A folder, or a URI such as s3://bucket/folder.")
@json_option
@spark_options
def defer(
    queue: str,
    table: str,
    source: dict[str, Any],
    lake: str,
    run: str | None,
    rejects: str | None,
    dry_run: bool,
    as_json: bool,
    open_session: OpenSession,
) -> int:
    """Write each row of TABLE to a lake, as a message for QUEUE. Redis is not contacted.

    TABLE is a file or folder of Parquet, CSV, JSON lines or ORC, or the name of a table in Spark's catalog. To continue
    an interrupted run, repeat it with --run and its name, which is printed at the start. Exit code 1 if rows were
    rejected.
    """
    run = check_run(new_id() if run is None else run)
    spark = open_session()
    if dry_run:
        with watched(spark, f"reading {shown(table)}"):
            found = preview(spark, table, None, queue, **source)
        tell_preview(found, as_json)
        return 0
    messages = read_messages(spark, table, **source)
    note(f"run {run}")
    with watched(spark, f"deferring {shown(table)}"), put_aside_by(ASIDE):
        files = job.defer(
            spark, messages, lake, queue, payload_format=source["payload_format"], run=run, rejects=rejects
        ).collect()
    done = QueueFolder(lake, queue).run(run)
    assert done is not None, f"the run {run} has ended"
    rows, hours = sum(row["rows"] for row in files), len({row["hour"] for row in files})
    if as_json:
        summary = {"queue": queue, "table": table, "run": run, "deferred": rows, "hours": hours, "files": len(files)}
        print_json(summary | {"repeated": done.repeated, "rejected": done.rejected})
    else:
        say(f"deferred {plural(rows, 'message')} from {shown(table)} to {plural(hours, 'hour')} of {shown(lake)}")
        if done.repeated:
            note(f"skipped {plural(done.repeated, 'row')}: a row that is due earlier has the same id")
    return tell_rejected(done.rejected, rejects, as_json)
