"""``delayq pipeline drain``: write a whole queue to Parquet."""

from __future__ import annotations

import click
import msgspec

from delayq.lake.shown_path import shown
from delayq.model.show import plural
from delayq.spark.jobs import drain as job

from .. import candidates
from ..connection import ServerOptions
from ..options import command
from ..output import note, print_json, say
from .spark_session import OpenSession, job_options, redis_of, watched


@command(
    """
    delayq send emails '{"to": "a@example.org"}' --delay 1h
    delayq pause emails
    delayq pipeline drain emails emails.backup
    """,
    "Write a whole queue to Parquet.",
)
@click.argument("name", metavar="QUEUE", shell_complete=candidates.queues)
@click.argument("folder")
@click.option(
    "--live", is_flag=True, help="Allow a queue that is in use; the result is then not a snapshot of one instant."
)
@click.option("--remove", is_flag=True, help="Discard the written messages from the queue after verifying them.")
@job_options
def drain(
    name: str, folder: str, live: bool, remove: bool, as_json: bool, server: ServerOptions, open_session: OpenSession
) -> None:
    """Write QUEUE to FOLDER: messages, schedules, limits, counts.

    The queue must be paused, with no running messages. delayq pipeline restore restores it, on any server. The
    manifest, which is written last, has the number of messages in each state and their checksum.
    """
    with watched(open_session(), f"draining {name}"):
        summary = job.drain(open_session(), redis_of(server), name, folder, live=live, remove=remove)
    manifest = summary.manifest
    if as_json:
        print_json(
            {"folder": shown(folder), "removed": summary.removed, "left": summary.left}
            | msgspec.structs.asdict(manifest)
        )
        return
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(manifest.rows.items()))
    total, schedules = plural(manifest.measure.total, "message"), plural(manifest.schedules, "schedule")
    say(f"wrote {total} and {schedules} of {name} to {shown(folder)}{f' ({states})' if states else ''}")
    if live:
        note("the queue was in use: this is not a snapshot of one instant, and messages that moved may be missing")
    if remove:
        say(f"removed {plural(summary.removed, 'message')} from {name}")
    if summary.left:
        note(f"not removed: {plural(summary.left, 'message')} that changed after being read")
