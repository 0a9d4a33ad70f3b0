"""why: why a message has not been delivered, or where a record of a topic is."""

from __future__ import annotations

import click

from delayq.model.text import printable_id

from . import candidates
from .connection import ServerOptions
from .lake.options import lake_option, queue_of
from .options import command, id_argument, json_option, server_options
from .output import report


@command(
    """
    delayq send emails '{"to": "a@example.org"}' --id order-42 --delay 1h
    delayq why emails order-42
    """,
    "Say why a message has not been delivered.",
)
@click.argument("name", metavar="QUEUE|TOPIC", shell_complete=candidates.queues)
@lake_option
@server_options
@id_argument
@json_option
def why(server: ServerOptions, name: str, lake: str | None, message_id: str, as_json: bool) -> None:
    """Say in one sentence why the message ID of QUEUE has not been delivered, or what happened to it.

    Possible answers: it is not due yet; the queue is paused; a limit holds it back; other messages are due earlier;
    there is no consumer; it is running; it waits for its next attempt; it is dead; or it is gone, and the ledger says
    how.

    For the record ID of TOPIC: whether it is still delayed, or which groups have acked it.
    """
    is_topic = server.has("topic", name) and not server.has("queue", name)
    if is_topic:
        with server.topic(name) as topic:
            explanation = topic.why(message_id)
    else:
        explanation = queue_of(server, name, lake).why(message_id)
    where = "topic" if is_topic else "queue"
    report({where: name, "id": printable_id(message_id), "why": explanation}, explanation, as_json)
