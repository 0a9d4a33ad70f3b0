"""What the topic commands share: arguments, and how to print records."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from delayq.errors import UnreadableEnvelope
from delayq.model.event import read as read_event
from delayq.model.record import Record
from delayq.model.text import printable
from delayq.topic import Topic
from delayq.topic_group import Group

from .. import candidates
from ..connection import ServerOptions
from ..formats import show_moment
from ..history import event_text
from ..options import Function, server_options
from ..output import PREVIEW, note, print_json, print_table, shortened


def topic_argument(function: Function) -> Function:
    """TOPIC, --ledger and the server's options; the function gets the `Topic` as `topic`."""

    @click.argument("name", metavar="TOPIC", shell_complete=candidates.topics)
    @ledger_option
    @server_options
    @functools.wraps(function)
    def with_topic(*args: Any, server: ServerOptions, name: str, ledger: bool, **kwargs: Any) -> Any:
        with server.topic(name, ledger, dead_retention=None) as topic:  # no command deletes what programs keep
            return function(*args, topic=topic, **kwargs)

    return with_topic


def published_topic_argument(function: Function) -> Function:
    """TOPIC and the server's options, without --ledger, since only the queue writes its ledger."""

    @click.argument("name", metavar="TOPIC", shell_complete=candidates.topics)
    @server_options
    @functools.wraps(function)
    def with_topic(*args: Any, server: ServerOptions, name: str, **kwargs: Any) -> Any:
        with server.topic(name) as topic:
            return function(*args, topic=topic, **kwargs)

    return with_topic


ledger_option = click.option("--ledger", is_flag=True, help="TOPIC is a queue; use its ledger.")


def group_argument(function: Function) -> Function:
    """TOPIC, GROUP and the server's options; the function gets the `Group`, which is not created, as `group`."""

    @topic_argument
    @click.argument("group_name", metavar="GROUP", shell_complete=candidates.groups)
    @functools.wraps(function)
    def with_group(*args: Any, topic: Any, group_name: str, **kwargs: Any) -> Any:
        return function(*args, group=existing(topic, group_name), **kwargs)

    return with_group


def existing(topic: Topic, name: str) -> Group:
    """Return a group of a topic without creating it; its calls raise UnknownGroup if it does not exist."""
    return topic.group(name, create=False)


records_option = click.option("--limit", default=10, type=click.IntRange(1, 10_000), help="At most this many records.")


def record_document(record: Record) -> dict[str, Any]:
    """Return everything about a record for printing as JSON.

    Its content is under `payload` if it was published as JSON, under `payload_base64` if as bytes, and under `fields`
    if another program has appended it.
    """
    known: dict[str, Any] = {"id": record.id, "published_at": record.published_at, "shard": record.shard}
    if record.deliveries:
        known["deliveries"] = record.deliveries
    try:
        payload, headers = record.payload, record.headers
    except UnreadableEnvelope:
        return known | {"fields": record.values}
    known["headers"] = headers
    if isinstance(payload, bytes):
        return known | {"payload_base64": payload}
    return known | ({"payload": msgspec.Raw(record.body)} if record.body else {"fields": payload})


def record_text(record: Record, most: int | None = None) -> str:
    """Return the content of a record in at most `most` printable characters."""
    document = record_document(record)
    event = read_event(record.id, record.fields)
    if event is not None:
        text = event_text(event)
    elif "fields" in document:
        text = " ".join(f"{name}={value}" for name, value in document["fields"].items())
    else:
        body = record.body if most is None else record.body[: 4 * most]
        text = body.decode(errors="backslashreplace")
    return shortened(printable(text), most)


def print_records(records: Sequence[Record], long: bool, as_json: bool, nothing: str) -> None:
    """Print records, one per line; if there are none, print `nothing` as a note."""
    if as_json:
        for record in records:
            print_json(record_document(record))
    elif not records:
        note(nothing)
    else:
        is_polled = any(each.deliveries for each in records)
        rows = [
            (each.id, show_moment(each.published_at, long), *[each.deliveries] * is_polled, record_text(each, PREVIEW))
            for each in records
        ]
        print_table(("id", "published", *["#deliveries"] * is_polled, "payload"), rows)
