"""queue list and remove: which queues there are, and forgetting one."""

from __future__ import annotations

import click

from delayq.operations import manage

from . import candidates
from .connection import ServerOptions
from .options import ExampledCommand, example, json_option, server_options, yes_option
from .output import note, plural, print_json, say

SENDS = "delayq send emials hello\n"


@click.group(epilog=example(SENDS + "delayq queue list"), short_help="List queues, or remove one.")
def queue() -> None:
    """List queues, or remove one. delayq stats counts their messages."""


queue.command_class = ExampledCommand


@queue.command("list", epilog=example(SENDS + "delayq queue list"), short_help="List the names of all queues.")
@server_options
@json_option
def list_(server: ServerOptions, as_json: bool) -> None:
    """List the names of all queues, one per line: those ever sent to, consumed, configured or paused."""
    names = server.queue_names()
    for name in names:
        if as_json:
            print_json({"queue": name})
        else:
            say(name)
    if not names and not as_json:
        note("no queue here: nothing was ever sent")


@queue.command(
    epilog=example(SENDS + "delayq purge emials --yes\ndelayq queue remove emials --yes"),
    short_help="Remove a queue that holds no messages.",
)
@click.argument("name", metavar="QUEUE", shell_complete=candidates.queues)
@server_options
@yes_option("Forget queue {name} with its limits, schedules, counts and ledger?")
def remove(server: ServerOptions, name: str) -> None:
    """Remove QUEUE with its limits, schedules, counts and ledger.

    It must hold no messages; otherwise it stays and the exit code is 1.

    Stop the programs that use QUEUE first. A program that still uses it logs within a minute that the queue was
    removed; until then delayq stats does not list it. A program that starts later creates the queue again.
    """
    queue = server.queue(name)
    if not server.has("queue", name):
        raise click.ClickException(f"queue {name} is not on this server: delayq queue list shows those that are")
    if held := queue.execute(manage.remove):
        raise click.ClickException(
            f"queue {name} holds {plural(held, 'message')}: let consumers finish, or discard what waits by "
            f"delayq purge {name}"
        )
    say(f"removed {name}")
