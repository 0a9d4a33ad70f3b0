"""queue list and remove: list queues, or remove one."""

from __future__ import annotations

import click

from delayq.model.show import plural
from delayq.operations import manage

from . import candidates
from .connection import ServerOptions
from .options import command_group, json_option, server_options, yes_option
from .output import note, print_json, say

SENDS = "delayq send emials hello\n"


@command_group(SENDS + "delayq queue list", "List queues, or remove one.")
def queue() -> None:
    """List queues, or remove one. delayq stats counts their messages."""


@queue.command(SENDS + "delayq queue list", "List the names of all queues.", "list")
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
        note("no queues")


@queue.command(
    SENDS + "delayq purge emials --yes\ndelayq queue remove emials --yes", "Remove a queue that holds no messages."
)
@click.argument("name", metavar="QUEUE", shell_complete=candidates.queues)
@server_options
@yes_option("Remove queue {name} with its limits, schedules, counts and ledger?")
def remove(server: ServerOptions, name: str) -> None:
    """Remove QUEUE with its limits, schedules, counts and ledger.

    QUEUE must hold no messages; otherwise nothing changes and the exit code is 1.

    First stop the programs that use QUEUE. A program that still uses it creates it again: a running program within a
    minute, with a warning in its log; another one when it starts.
    """
    queue = server.queue(name)
    if not server.has("queue", name):
        raise click.ClickException(f"queue {name} does not exist: delayq queue list shows the names of all queues")
    if held := queue.execute(manage.remove):
        raise click.ClickException(
            f"queue {name} holds {plural(held, 'message')}: let consumers finish, or discard waiting messages with "
            f"delayq purge {name}"
        )
    say(f"removed {name}")
