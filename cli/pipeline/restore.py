"""``delayq pipeline restore``: restore a drained queue into Redis."""

from __future__ import annotations

import click
import msgspec

from delayq.lake.shown_path import shown
from delayq.model.placement import MAX_SHARDS
from delayq.model.show import plural
from delayq.spark.jobs import restore as job

from ..connection import ServerOptions
from ..options import command
from ..output import note, print_json, say
from .spark_session import OpenSession, job_options, redis_of, watched


@command(
    """
    delayq send emails '{"to": "a@example.org"}' --delay 1h
    delayq pause emails
    delayq pipeline drain emails emails.folder
    delayq pipeline restore emails.folder --queue emails2 --resume
    """,
    "Restore a drained queue.",
)
@click.argument("folder")
@click.option("--queue", metavar="NAME", help="Restore under this name. Default: its old name.")
@click.option(
    "--shards",
    type=click.IntRange(1, MAX_SHARDS),
    help="Number of shards, if the queue is new. Default: its old number.",
)
@click.option(
    "--resume", is_flag=True, help="Resume the queue once all messages are restored. Default: it stays paused."
)
@job_options
def restore(
    folder: str,
    queue: str | None,
    shards: int | None,
    resume: bool,
    as_json: bool,
    server: ServerOptions,
    open_session: OpenSession,
) -> None:
    """Restore the queue in FOLDER, each message as it was.

    FOLDER comes from delayq pipeline drain. The queue must be empty, or hold only what an interrupted run restored: to
    continue it, run it again. At the end, all messages are counted and compared with the manifest.
    """
    with watched(open_session(), f"restoring {shown(folder)}"):
        to = redis_of(server)
        summary = job.restore(open_session(), folder, to, queue, shards=shards, resume=resume)
    if as_json:
        print_json({"folder": shown(folder)} | msgspec.structs.asdict(summary))
        return
    say(
        f"restored {plural(summary.restored, 'message')} and {plural(summary.schedules, 'schedule')} to {summary.queue}"
    )
    if summary.existing:
        note(f"{plural(summary.existing, 'message')} had already been restored")
    if not resume:
        note(f"{summary.queue} is paused: to resume it, run delayq resume {summary.queue}")
