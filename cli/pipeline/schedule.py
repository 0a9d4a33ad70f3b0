"""``delayq pipeline schedule``: send the rows of a table as messages."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from delayq.lake.shown_path import shown
from delayq.model.show import plural
from delayq.spark.errors import put_aside_by
from delayq.spark.jobs import schedule as job
from delayq.spark.jobs.preview import preview
from delayq.spark.writing.sink import DAY

from .. import candidates
from ..connection import ServerOptions
from ..options import DURATION, command
from ..output import note, print_json, say
from .spark_session import OpenSession, job_options, redis_of, watched
from .tables import ASIDE, table_options, tell_preview, tell_rejected


@command(
    """
    echo '{"payload": "a@example.org", "delay": 3600}' > reminders.jsonl
    delayq pipeline schedule emails reminders.jsonl
    """,
    "Send each row of a table as a message.",
)
@click.argument("name", metavar="QUEUE", shell_complete=candidates.queues)
@table_options
@click.option(
    "--unique-for",
    type=DURATION,
    default=DAY,
    show_default=False,
    metavar="TIME",
    help="How long a sent id stays reserved. Default: 1d.",
)
@job_options
def schedule(
    name: str,
    table: str,
    source: dict[str, Any],
    run: str | None,
    rejects: str | None,
    dry_run: bool,
    unique_for: float,
    as_json: bool,
    server: ServerOptions,
    open_session: OpenSession,
) -> int:
    """Send each row of TABLE to QUEUE.

    TABLE is a file or folder of Parquet, CSV, JSON lines or ORC, or the name of a table in Spark's catalog. A row is
    skipped if its id exists or was sent within --unique-for, so you can rerun an interrupted job. Rows without an id
    get one, which stays the same only with the same --run. Exit code 1 if rows were rejected.
    """
    spark, to = open_session(), redis_of(server)
    if dry_run:
        with watched(spark, f"reading {shown(table)}"):
            found = preview(spark, table, to, name, **source)
        tell_preview(found, as_json)
        return 0
    with watched(spark, f"sending {shown(table)}"), put_aside_by(ASIDE):
        sent = job.schedule(spark, table, to, name, unique_for=unique_for, run=run, rejects=rejects, **source)
    if as_json:
        print_json({"queue": name, "table": shown(table)} | msgspec.structs.asdict(sent))
    else:
        say(f"sent {plural(sent.sent, 'message')} from {shown(table)} to {name}")
        if sent.existing:
            note(f"skipped {plural(sent.existing, 'row')}: the id exists or was sent before")
    return tell_rejected(sent.rejected, rejects, as_json)
