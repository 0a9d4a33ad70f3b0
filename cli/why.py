"""why: what keeps a message from being delivered."""

from __future__ import annotations

from delayq.model.text import printable_id
from delayq.queue import Queue

from .lakes import queue_argument
from .options import command, id_argument, json_option
from .output import print_json, say


@command(
    """
    delayq send emails '{"to": "a@example.org"}' --id order-42 --delay 1h
    delayq why emails order-42
    """,
    "Say why a message has not been delivered.",
)
@queue_argument
@id_argument
@json_option
def why(queue: Queue, message_id: str, as_json: bool) -> None:
    """Say in one sentence why the message ID of QUEUE has not been delivered, or what became of it.

    It is not due; or it is, but the queue is paused, a limit holds it back, others are due earlier, or there is no
    consumer; it runs; it waits for its next attempt; it is dead; or it is gone: how, only the ledger tells.
    """
    told = queue.why(message_id)
    if as_json:
        print_json({"queue": queue.name, "id": printable_id(message_id), "why": told})
    else:
        say(told)
