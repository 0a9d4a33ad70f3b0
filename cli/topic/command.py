"""topic publish, cancel, trim, delete and shrink: add and remove records; and the group of commands."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from delayq.model.show import plural
from delayq.topic import Topic

from ..formats import Kind, payload_of, show_moment
from ..options import DURATION, MOMENT, POSITION, command_group, header_option, json_option, kind_option, one_of
from ..output import note, print_json, report, say
from ..send.command import read_stdin
from .counts import list_
from .file import publish_file
from .groups import claim, destroy, group, groups, unacked
from .options import published_topic_argument, topic_argument
from .read import read, tail

PUBLISHES = """\
delayq topic publish orders '{"order": 1}'
"""


@command_group(
    PUBLISHES + "delayq topic group create orders billing --start 0\ndelayq topic groups orders",
    "Topics: each group of readers gets every record.",
)
def topic() -> None:
    """Publish records to topics and read them: a message goes to one consumer, a record to every group."""


@topic.command(
    PUBLISHES
    + "delayq topic publish orders '{\"order\": 2}' --delay 10m --id later-2\n"
    + """echo '{"payload": {"order": 3}, "delay": "1h"}' > orders.jsonl\n"""
    + "delayq topic publish orders --file orders.jsonl --max-length 100000",
    "Publish a record, or a file of them.",
)
@published_topic_argument
@click.argument("payload", metavar="[PAYLOAD|-]", required=False)
@click.option(
    "--delay", type=DURATION, metavar="TIME", help="Append the record after this time: 500ms, 10s, 1h30m, 2d."
)
@click.option("--at", type=MOMENT, metavar="ISO8601", help="Append the record at this time; include the time zone.")
@click.option(
    "--id",
    "id_",
    metavar="ID",
    help="The record's id, such as 1700000000000-0; for a delayed record any id, with which you can cancel it.",
)
@click.option("--key", metavar="KEY", help="Records with the same key stay in order, even in a topic with shards.")
@header_option
@kind_option("What PAYLOAD is, as in send.")
@click.option("--max-length", type=click.IntRange(0), metavar="N", help="Drop the oldest records beyond this number.")
@click.option(
    "--exact",
    is_flag=True,
    help="With --max-length: keep exactly this number. Default: keep up to about a hundred more.",
)
@click.option(
    "--file",
    "-f",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Publish the records in a JSON Lines file instead; - is stdin.",
)
@json_option
def publish(
    topic: Topic, payload: str | None, delay: float | None, at: dt.datetime | None, id_: str | None, key: str | None,
    headers: Sequence[tuple[str, str]], kind: Kind | None, max_length: int | None, exact: bool, file: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Publish PAYLOAD, stdin (-) or each line of a file to TOPIC.

    If PAYLOAD is valid JSON, it is published as JSON, otherwise as a string.

    Each line of a --file is a JSON object: {"payload": …} and, optionally, "delay" (seconds, or as in --delay), "at",
    "id", "key", "headers". If a line is malformed, the lines before it are published and the exit code is 2. If you
    publish a file twice, its records are published twice, except those with their own id.
    """
    if exact and max_length is None:
        raise click.UsageError("--exact needs --max-length")
    options = {"delay": delay, "at": at, "id": id_, "key": key, "headers": dict(headers) or None}
    if file is not None:
        if payload is not None or kind is not None or any(each is not None for each in options.values()):
            raise click.UsageError("leave out PAYLOAD and its options with --file: each line of the file has its own")
        publish_file(topic, file, max_length, exact, as_json)
        return
    if payload is None:
        raise click.UsageError("give PAYLOAD, - for stdin, or --file")
    one_of(delay, at)
    body = read_stdin() if payload == "-" else payload.encode(errors="surrogateescape")
    done: Any = topic.publish(payload_of(body, kind or "auto"), max_length=max_length, exact=exact or None, **options)  # type: ignore[arg-type]
    if as_json:
        print_json(done._asdict())
    elif done.due_at is not None:
        say(f"delayed {done.id} in {topic.name}, due {show_moment(done.due_at)}")
    elif done.created:
        say(f"published {done.id} to {topic.name}")
    else:
        say(f"{done.id} is already delayed in {topic.name}: unchanged")


@topic.command(
    "delayq topic publish orders '{\"order\": 2}' --delay 10m --id later-2\ndelayq topic cancel orders later-2",
    "Cancel a delayed record.",
)
@published_topic_argument
@click.argument("record_id", metavar="ID")
@json_option
def cancel(topic: Topic, record_id: str, as_json: bool) -> int:
    """Cancel the delayed record ID of TOPIC. Exit code 1 if it does not exist."""
    cancelled = topic.cancel(record_id)
    if as_json:
        print_json({"id": record_id, "cancelled": cancelled})
    elif cancelled:
        say(f"cancelled {record_id}")
    else:
        raise click.ClickException(f"topic {topic.name} has no delayed record {record_id!r}")
    return int(not cancelled)


@topic.command(PUBLISHES + "delayq topic trim orders --max-length 100000", "Drop the oldest records.")
@topic_argument
@click.option("--max-length", type=click.IntRange(0), metavar="N", help="Keep this many records (per shard).")
@click.option("--from", "first", type=POSITION, metavar="ID|ISO8601", help="Keep this record and all later ones.")
@click.option("--acked", is_flag=True, help="Drop only records that every group has acked.")
@click.option(
    "--exact", is_flag=True, help="Trim to the exact record. Default: keep up to about a hundred more, at lower cost."
)
@json_option
def trim(
    topic: Topic, max_length: int | None, first: Any, acked: bool, exact: bool, as_json: bool
) -> None:  # fmt: skip
    """Drop the oldest records of TOPIC. --max-length and --from also drop records that a group has not acked.

    With --acked, the output names the group that holds back further records.
    """
    if (max_length is not None) + (first is not None) + acked != 1:
        raise click.UsageError("give one of --max-length, --from and --acked")
    if acked and exact:
        raise click.UsageError("--exact needs --max-length or --from: --acked is always exact")
    if not acked:
        _print_dropped(topic, topic.trim(max_length=max_length, min_id=first, approximate=not exact), as_json)
        return
    trimmed = topic.trim_acked()
    if as_json:
        print_json(trimmed._asdict())
        return
    _print_dropped(topic, trimmed.dropped, as_json)
    if trimmed.slowest is None and _length(topic):
        note(f"topic {topic.name} has no groups, so no record is acked")
    elif trimmed.slowest is not None and _length(topic):
        note(f"group {trimmed.slowest} still needs the records from {trimmed.oldest} on")


@topic.command(
    "delayq topic publish orders '{\"order\": 1}' --id 1700000000000-0\ndelayq topic delete orders 1700000000000-0",
    "Delete single records.",
)
@topic_argument
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@json_option
def delete(topic: Topic, ids: Sequence[str], as_json: bool) -> None:
    """Delete records by ID from a TOPIC without shards, acked or not. Exit code 1 if one of them does not exist."""
    deleted = topic.delete(ids)
    report({"deleted": deleted}, f"deleted {plural(deleted, 'record')}", as_json)
    if left := len(set(ids)) - deleted:
        raise click.ClickException(f"{left} of {plural(len(set(ids)), 'record')} not in topic {topic.name}")


@topic.command(PUBLISHES + "delayq topic shrink orders", "Drop the records that existed at the last shrink.")
@topic_argument
@json_option
def shrink(topic: Topic, as_json: bool) -> None:
    """Drop the records that TOPIC had at the last shrink, acked or not. Run it daily to keep one day of records."""
    _print_dropped(topic, topic.shrink_by_last_size(), as_json)


def _print_dropped(topic: Topic, count: int, as_json: bool) -> None:
    if as_json:
        print_json({"dropped": count})
    else:
        say(f"dropped {plural(count, 'record')} of topic {topic.name}; {_length(topic):,} left")


def _length(topic: Topic) -> int:
    """Count the records; this needs no right to append due records."""
    return topic.length(due=False)


for each in (list_, read, tail, groups, group, unacked, claim, destroy):
    topic.add_command(each)
