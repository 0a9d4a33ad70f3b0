"""queue remove: forgetting a queue."""

from __future__ import annotations

import click

from delayq.operations import manage
from delayq.queue import Queue

from .options import ExampledCommand, example, queue_argument, yes_option
from .output import plural, say


@click.group(epilog=example("delayq pause emials\ndelayq queue remove emials --yes"), short_help="Remove a queue.")
def queue() -> None:
    """Remove a queue; delayq stats lists all."""


queue.command_class = ExampledCommand


@queue.command(
    epilog=example("delayq pause emials\ndelayq queue remove emials --yes"), short_help="Forget an empty one."
)
@queue_argument
@yes_option("Forget queue {queue.name} with its limits, schedules, counts and ledger?")
def remove(queue: Queue) -> None:
    """Forget QUEUE with its limits, schedules, counts and ledger. Exit code 1 when it holds messages: it stays.

    Whoever uses it later makes it anew, and so does a program that uses it still.
    """
    if held := queue.execute(manage.remove):
        raise click.ClickException(
            f"queue {queue.name} holds {plural(held, 'message')}: let consumers finish, or discard what waits by "
            f"delayq purge {queue.name}"
        )
    say(f"removed {queue.name}")
