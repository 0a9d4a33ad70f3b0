"""dead list, show, requeue, edit and purge: the messages that were rejected or ran out of retries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from delayq.operations import manage
from delayq.operations.bulk.redrive import Redrive
from delayq.operations.bulk.selection import Choice
from delayq.queue import Queue

from . import candidates
from .dead_edit import edit
from .dead_redrive import filter_options, redrive
from .manage import print_count
from .options import (
    DURATION,
    RATE,
    ExampledCommand,
    delay_option,
    example,
    id_argument,
    json_option,
    queue_argument,
    yes_option,
)
from .progress import progress, watched
from .show import limit_option, print_messages, show_message

DIES = """\
delayq send emails hello --id order-42
delayq consume emails --exec 'exit 65' --burst
"""


@click.group(
    epilog=example(DIES + "delayq dead list emails"), short_help="Dead letters: list, show, requeue, edit, purge."
)
def dead() -> None:
    """List, show, requeue, edit or purge dead letters: messages rejected, or out of retries."""


dead.command_class = ExampledCommand


@dead.command("list", epilog=example(DIES + "delayq dead list emails"), short_help="List them, those that died first.")
@queue_argument
@limit_option
@json_option
def list_(queue: Queue, limit: int | None, as_json: bool) -> None:
    """List the dead letters of QUEUE, those that died first."""
    print_messages(queue, "dead", limit, as_json)


@dead.command(epilog=example(DIES + "delayq dead show emails order-42"), short_help="Show all that is known of one.")
@queue_argument
@id_argument
@json_option
def show(queue: Queue, message_id: str, as_json: bool) -> None:
    """Show all that is known of the dead letter ID of QUEUE. Exit code 1 when there is none."""
    info = queue.get(message_id)
    if info is not None and info.state != "dead":
        raise click.ClickException(f"message {message_id!r} is not dead, it is in {info.state}")
    show_message(queue, message_id, info, as_json)


@dead.command(
    epilog=example(DIES + "delayq dead requeue emails --error 'exit code 65' --newer-than 1h --rate 100/s --dry-run"),
    short_help="Bring them back to pending.",
)
@queue_argument
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=candidates.ids)
@click.option("--all", "everything", is_flag=True, help="All that is dead now, instead of IDs.")
@filter_options
@delay_option
@click.option(
    "--rate", type=RATE, metavar="RATE", help="No faster than this: 100/s, 5/10s, 30/min. Default: as fast as it goes."
)
@click.option("--dry-run", is_flag=True, help="Change nothing, and tell how many it would be.")
@json_option
def requeue(
    queue: Queue, ids: Sequence[str], everything: bool, filters: dict[str, Any], delay: float | None,
    rate: float | None, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Bring dead letters of QUEUE back to pending, with their retries reset: by ID, all, or by filters.

    Those come back to which all of --older-than, --newer-than, --error, --error-regex, --reason and --header applies.
    What dies later, perhaps anew, is not touched. It may be interrupted at any point: what has come back is back, all
    else is dead as before. Exit code 1 when one of the IDs is not dead, or its payload is gone.
    """
    if bool(ids) + everything + bool(filters) != 1:
        raise click.UsageError("give IDs, or --all for all that is dead, or filters: one of these")
    after = delay or 0
    if not ids:
        redrive(queue, Redrive(Choice(**filters), after, rate, dry_run), dry_run, as_json)
        return
    if dry_run or rate is not None:
        raise click.UsageError("--rate and --dry-run go with --all or filters, not with IDs")
    with progress(f"requeueing {queue.name}", len(ids)) as bar:
        count = queue.execute(watched(manage.requeue, "requeue", bar.advance), ids, after)
    print_count("requeued", count, as_json)
    if left := len(set(ids)) - count:
        raise click.ClickException(f"left alone {left} of {len(set(ids))}: not dead, or the payload is gone")


dead.add_command(edit)


@dead.command(epilog=example(DIES + "delayq dead purge emails --older-than 30d --yes"), short_help="Discard them.")
@queue_argument
@click.option("--older-than", type=DURATION, metavar="TIME", help="Only what died so long ago: 12h, 30d. Default: all.")
@yes_option("Discard dead letters of queue {queue.name} for good?")
@json_option
def purge(queue: Queue, older_than: float | None, as_json: bool) -> None:
    """Discard dead letters of QUEUE, counted as purged."""
    with progress(f"purging {queue.name}", queue.stats().dead) as bar:
        purged = queue.execute(watched(manage.purge, "purge", bar.advance), ["dead"], older_than)
    print_count("purged", purged, as_json)
