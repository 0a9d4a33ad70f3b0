"""result: what the task of a message returned."""

from __future__ import annotations

import click
import msgspec

from delayq.model.result import DONE, failure
from delayq.queue import Queue

from .options import DURATION, command, id_argument, json_option, queue_argument
from .output import note, print_json


@command(
    """
    delayq send orders '{"item": "tea"}' --task price --results 1h --id order-7
    delayq result orders order-7 --wait 30s
    """,
    "Print what the task of a message returned.",
)
@queue_argument
@id_argument
@click.option(
    "--wait", type=DURATION, metavar="TIME", default="0", show_default=False, help="Wait this long for the task to end."
)
@json_option
def result(queue: Queue, message_id: str, wait: float, as_json: bool) -> None:
    """Print what the task of the message ID of QUEUE returned, as JSON. With --wait, wait for it.

    A result is kept if the message was sent with --results, or if its task is registered with results. If the id was
    used more than once, this command prints the result of the latest message.

    Exit code 1 if the task has failed, has not ended yet, or keeps no result. If it has failed, print its traceback to
    stderr.

    With --json, print everything that is known about an ended task, and exit with code 0 even if it has failed: check
    "status".
    """
    record = queue.result(message_id, wait)
    assert record is not None  # as this waits
    if as_json:
        print_json(msgspec.to_builtins(record))
    elif record.status == DONE:
        print_json(record.value)
    else:
        if record.error is not None:
            for line in record.error.traceback.splitlines():
                note(line)
        raise failure(record)
