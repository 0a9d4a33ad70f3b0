"""queue remove: forgetting a queue."""

from __future__ import annotations

import click

from delayq.operations import manage
from delayq.queue import Queue

from .options import ExampledCommand, example, queue_argument, yes_option
from .output import plural, say


@click.group(
    epilog=example("delayq purge emials --yes\ndelayq queue remove emials --yes"), short_help="Remove a queue."
)
def queue() -> None:
    """Remove a queue; delayq stats lists all."""


queue.command_class = ExampledCommand


@queue.command(
    epilog=example("delayq purge emials --yes\ndelayq queue remove emials --yes"),
    short_help="Remove a queue that holds no messages.",
)
@queue_argument
@yes_option("Forget queue {queue.name} with its limits, schedules, counts and ledger?")
def remove(queue: Queue) -> None:
    """Forget QUEUE with its limits, schedules, counts and ledger. Exit code 1 when it holds messages: it stays.

    Stop the programs that use QUEUE first. One that still uses it logs within a minute that the queue's data are lost,
    and until then the queue is missing from delayq stats. A program that starts later makes the queue again.
    """
    if held := queue.execute(manage.remove):
        raise click.ClickException(
            f"queue {queue.name} holds {plural(held, 'message')}: let consumers finish, or discard what waits by "
            f"delayq purge {queue.name}"
        )
    say(f"removed {queue.name}")
