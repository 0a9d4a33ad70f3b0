"""topic read and tail: the records of a topic, and new ones."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from delayq.topic import Topic

from .. import candidates
from ..options import DURATION, POSITION, command, json_option, long_option
from ..output import print_json, say
from .options import existing, print_records, record_document, record_text, topic_argument

PUBLISHES = "delayq topic publish orders '{\"order\": 1}'\n"
POLLS = "delayq topic group create orders billing --start 0\n"


@command(
    PUBLISHES
    + "delayq topic read orders --from 2026-01-01T00:00Z --limit 5\n"
    + POLLS
    + "delayq topic read orders billing --consumer billing-1 --ack",
    "Read the records of a topic, or poll for a group.",
)
@topic_argument
@click.argument("group_name", metavar="[GROUP]", required=False, shell_complete=candidates.groups)
@click.option("--from", "start", type=POSITION, metavar="POSITION", help="Where to start; see above.  [default: -]")
@click.option("--to", "end", type=POSITION, metavar="POSITION", help="Where to end.  [default: +]")
@click.option("--reverse", is_flag=True, help="Newest first.")
@click.option("--consumer", metavar="NAME", help="With GROUP: the consumer that takes the records.")
@click.option(
    "--own", is_flag=True, help="With GROUP: read the records that the consumer already holds, instead of new ones."
)
@click.option("--ack", is_flag=True, help="With GROUP: ack the records once they are printed.")
@click.option("--wait", type=DURATION, metavar="TIME", help="With GROUP: how long to wait for the first record.")
@click.option(
    "--limit",
    default=10,
    type=click.IntRange(1, 1_000_000),
    help="Read at most this many records.",
)
@long_option
@json_option
def read(
    topic: Topic, start: Any, end: Any, reverse: bool, group_name: str | None, consumer: str | None, own: bool,
    ack: bool, wait: float | None, limit: int, long: bool, as_json: bool,
) -> None:  # fmt: skip
    """Read the records of TOPIC between two positions or, with GROUP, poll records that are new to the group.

    \b
    A position is one of
      1700000000000-0            the id of a record; to exclude this record,
                                 put ( in front
      2026-12-24T18:00+01:00     a time with a zone
      -, +                       the first record, the last record

    Polled records belong to the consumer until you ack them, with --ack or delayq topic group ack.
    """  # noqa: D301  # click wants the character
    if group_name is None:
        if consumer is not None or own or ack or wait is not None:
            raise click.UsageError("--consumer, --own, --ack and --wait need GROUP")
        found = topic.range("-" if start is None else start, "+" if end is None else end, limit, reverse)
        print_records(found, long, as_json, f"topic {topic.name} has no records in this range")
        return
    if start is not None or end is not None or reverse:
        raise click.UsageError(
            "leave out --from, --to and --reverse with GROUP: delayq topic group move sets its position"
        )
    if consumer is None:
        raise click.UsageError("GROUP needs --consumer: give the consumer that takes the records")
    if own and wait is not None:
        raise click.UsageError("leave out --wait with --own: there is nothing to wait for")
    group = existing(topic, group_name)
    polled = group.own_unacked(consumer, limit) if own else group.poll(consumer, limit, wait or 0)
    print_records(polled, long, as_json, f"no new records for group {group_name}")
    if ack and polled:
        group.ack(polled)


@command(PUBLISHES + "delayq topic tail orders --from 0 --wait 0", "Print records as they arrive.")
@topic_argument
@click.option(
    "--from", "start", type=POSITION, default="$", metavar="POSITION",
    help="Start after this id, at 0 (all records), at a time with a zone, or at $ (new records only).",
)  # fmt: skip
@click.option(
    "--wait", type=DURATION, metavar="TIME", help="Stop when no record arrives for this long. Default: never."
)
@json_option
def tail(topic: Topic, start: Any, wait: float | None, as_json: bool) -> None:
    """Print the records of TOPIC as they arrive, one per line, until Ctrl-C. This does not affect groups."""
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(topic.tail(start, wait)) as records:  # type: ignore[type-var]
        for record in records:
            if as_json:
                print_json(record_document(record))
            else:
                say(f"{record.id}  {record_text(record)}")
