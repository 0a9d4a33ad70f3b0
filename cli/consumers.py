"""consumers: the consumers of one or all queues."""

from __future__ import annotations

import click
import msgspec

from delayq.model.consumer_info import ConsumerInfo
from delayq.model.text import printable_id

from . import candidates
from .connection import ServerOptions
from .formats import show_moment
from .options import command, json_option, long_option, server_options
from .output import note, print_json, print_table


@command(
    """
    delayq send emails hello --delay 1h
    delayq consumers emails
    """,
    "List the consumers of a queue, or of all queues.",
)
@click.argument("name", metavar="[QUEUE]", required=False, shell_complete=candidates.queues)
@long_option
@server_options
@json_option
def consumers(server: ServerOptions, name: str | None, long: bool, as_json: bool) -> None:
    """List the consumers of QUEUE, or of every queue, that were seen within the last hour.

    A consumer that has not been seen for 30 seconds is shown as gone, with the messages that it held when last seen.
    For a topic, use delayq topic groups TOPIC GROUP.
    """
    names = server.queue_names() if name is None else [name]
    found = [(each, consumer) for each in names for consumer in server.queue(each).consumers()]
    if as_json:
        for queue, consumer in found:
            print_json({"queue": queue, "alive": consumer.is_alive} | msgspec.structs.asdict(consumer))
    elif not found:
        note(f"no consumer of {'any queue' if name is None else f'queue {name}'} was seen within the last hour")
    else:
        columns = ["queue"] * (name is None) + ["consumer", "seen", "#handled", "#failed", "#holds", ""]
        rows = [[queue] * (name is None) + _row(consumer, long) for queue, consumer in found]
        print_table(columns, rows)


def _row(consumer: ConsumerInfo, long: bool) -> list[str]:
    figures = [consumer.handled, consumer.failed, consumer.holds_count]
    counts = ["-"] * 3 if consumer.receives else [f"{count:,}" for count in figures]
    condition = "receives" if consumer.receives else "" if consumer.is_alive else "gone"
    return [printable_id(consumer.name), show_moment(consumer.seen_at, long), *counts, condition]
