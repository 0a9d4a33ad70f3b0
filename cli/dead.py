"""dead list, causes, show, bury, requeue, edit and purge: the messages rejected or out of retries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from delayq.model.actions import ACTIONS
from delayq.model.outcome import BURIED
from delayq.model.show import plural
from delayq.model.text import printable_id
from delayq.model.validation import MOST_LISTED
from delayq.queue import Queue

from . import candidates
from .dead_edit import edit
from .dead_redrive import filter_options, redrive
from .formats import show_moment
from .manage import print_count, print_outcomes
from .options import (
    DURATION,
    RATE,
    command_group,
    delay_option,
    dry_run_option,
    id_argument,
    ids_argument,
    json_option,
    long_option,
    queue_argument,
    yes_option,
)
from .output import note, print_json, print_table
from .progress import progress
from .show import limit_option, phase, print_messages, show_message

DIES = """\
delayq send emails hello --id order-42
delayq consume emails --exec 'exit 65' --burst
"""


@command_group(DIES + "delayq dead list emails", "Dead letters: list, causes, requeue, edit, purge …")
def dead() -> None:
    """Handle dead letters: messages that were rejected or ran out of retries."""


@dead.command(DIES + "delayq dead list emails", "List dead letters, the oldest first.", "list")
@queue_argument
@limit_option
@long_option
@json_option
def list_(queue: Queue, limit: int | None, long: bool, as_json: bool) -> None:
    """List the dead letters of QUEUE, the oldest first."""
    print_messages(queue, "dead", limit, long, as_json)


@dead.command(DIES + "delayq dead causes emails", "Count dead letters by cause.")
@queue_argument
@click.option(
    "--most",
    type=click.IntRange(1, MOST_LISTED),
    default=10_000,
    help="How many dead letters to count, the latest first.",
)
@long_option
@json_option
def causes(queue: Queue, most: int, long: bool, as_json: bool) -> None:
    """Count the dead letters of QUEUE by cause, the most frequent first, each with an example id.

    Errors that differ only in numbers count as one cause; numbers are shown as #.
    """
    found = queue.dead.causes(most)
    if as_json:
        for each in found.causes:
            print_json(each)
    elif not found.causes:
        note(f"queue {queue.name} has no dead letters")
    else:
        rows = [
            (f"{each.count:,}", show_moment(each.last_at, long), printable_id(each.example), each.text)
            for each in found.causes
        ]
        print_table(("#count", "last died", "example", "cause"), rows)
    if found.looked_at < found.total:
        note(f"counted the latest {found.looked_at:,} of {found.total:,} dead letters; --most N counts more")


@dead.command(DIES + "delayq dead show emails order-42", "Show everything about a dead letter.")
@queue_argument
@id_argument
@json_option
def show(queue: Queue, message_id: str, as_json: bool) -> None:
    """Show everything about the dead letter ID of QUEUE. Exit code 1 if it does not exist."""
    info = queue.get(message_id)
    if info is not None and info.state != "dead":
        raise click.ClickException(f"message {message_id!r} is not dead but {phase(info, queue.stats().at)}")
    show_message(queue, message_id, info, as_json)


@dead.command(
    "delayq send emails hello --id order-42 --delay 1h\ndelayq dead bury emails order-42",
    "Move waiting messages to the dead letters.",
)
@queue_argument
@ids_argument
@click.option("--reason", metavar="TEXT", default=BURIED, help="Why they are dead.")
@json_option
def bury(queue: Queue, ids: Sequence[str], reason: str, as_json: bool) -> int:
    """Move waiting messages of QUEUE by ID to its dead letters, where you can view, edit, requeue or purge them.

    Running messages are not moved. Exit code 1 if one of the messages is not waiting.
    """
    outcomes = {message_id: queue.dead.bury(message_id, reason) for message_id in dict.fromkeys(ids)}
    return print_outcomes(ACTIONS["bury"], outcomes, "buried {}", as_json)


@dead.command(
    DIES + "delayq dead requeue emails --error 'code 65' --newer-than 1h --dry-run",
    "Move dead letters back to pending.",
)
@queue_argument
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=candidates.ids)
@click.option("--all", "everything", is_flag=True, help="All current dead letters, instead of IDs.")
@filter_options
@delay_option
@click.option("--rate", type=RATE, metavar="RATE", help="At most this rate: 100/s, 5/10s, 30/min. Default: no limit.")
@dry_run_option
@json_option
def requeue(
    queue: Queue, ids: Sequence[str], everything: bool, filters: dict[str, Any], delay: float | None,
    rate: float | None, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Requeue dead letters of QUEUE and reset their retries: by ID, all, or by filters.

    A message must match all filters that you give: --older-than, --newer-than, --error, --error-regex, --reason and
    --header. Messages that die after the start are not touched. You can interrupt the command at any point: what was
    requeued stays requeued, the rest stays dead. Exit code 1 if one of the IDs is not dead or its payload is gone.
    """
    if bool(ids) + everything + bool(filters) != 1:
        raise click.UsageError("give either IDs, or --all for all dead letters, or filters")
    after = delay or 0
    if not ids:
        redrive(queue, filters | {"delay": after, "rate": rate}, dry_run, as_json)
        return
    if dry_run or rate is not None:
        raise click.UsageError("--rate and --dry-run work with --all or filters, not with IDs")
    with progress(f"requeueing {queue.name}", len(ids)) as bar:
        count = queue.dead.requeue(ids, delay=after, progress=bar.advance)
    print_count("requeued", count, as_json)
    if left := len(set(ids)) - count:
        raise click.ClickException(f"not requeued: {left} of {len(set(ids))}, {ACTIONS['requeue'].refusal('left')}")


dead.add_command(edit)


@dead.command(DIES + "delayq dead purge emails --older-than 30d --yes", "Discard dead letters.")
@queue_argument
@click.option(
    "--older-than",
    type=DURATION,
    metavar="TIME",
    help="Only those that died at least this long ago: 12h, 30d. Default: all.",
)
@dry_run_option
@yes_option(
    lambda **given: f"Permanently discard {plural(_count(**given), 'dead letter')} of queue {given['queue'].name}?"
)
@json_option
def purge(queue: Queue, older_than: float | None, dry_run: bool, as_json: bool) -> None:
    """Discard the dead letters of QUEUE; they are counted as purged."""
    count = _count(queue, older_than)
    if dry_run:
        print_count("would purge", count, as_json)
        return
    with progress(f"purging {queue.name}", count) as bar:
        purged = queue.dead.purge(older_than, bar.advance)
    print_count("purged", purged, as_json)


def _count(queue: Queue, older_than: float | None, **_others: object) -> int:
    """Count the dead letters, or those that died at least that long ago."""
    if older_than is None:
        return queue.stats().dead
    return queue.dead.redrive(older_than=older_than, dry_run=True).matched
