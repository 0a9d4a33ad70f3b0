"""send: one message, or a file of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from delayq.errors import DuplicateMessage, InvalidInput
from delayq.model.delivery import OnConflict, SentMessage
from delayq.queue import Queue

from ..formats import Kind, payload_of, show_moment
from ..options import (
    DURATION,
    command,
    due_options,
    header_option,
    in_options,
    json_option,
    kind_option,
    new_queue_argument,
    one_of,
    results_option,
    retries_option,
    task_option,
    timeout_option,
)
from ..output import print_json, say

MAX_STDIN_BYTES = 64 * 1024**2  # far above any queue's limit; an endless pipe must not fill the memory


@command(
    """
    delayq send emails '{"to": "a@example.org"}' --delay 10s
    delayq send emails alarm --id alarm-7 --unique-for 5m
    delayq send emails '{"user_id": 42}' --task welcome --results 1h
    echo '{"payload": "hello", "delay": "1h30m", "id": "order-9"}' > mails.jsonl
    delayq send emails --file mails.jsonl
    """,
    "Send a message, or a file of them.",
)
@new_queue_argument
@click.argument("payload", metavar="[PAYLOAD|-]", required=False)
@due_options
@click.option("--id", "id_", metavar="ID", help="The message's id, 1 to 256 bytes. Default: random.")
@click.option(
    "--on-conflict",
    type=click.Choice(["ignore", "replace", "error"]),
    help="If the id exists: keep that message (the default), replace it, or fail.",
)
@click.option(
    "--unique-for",
    type=DURATION,
    metavar="TIME",
    help="Reserve the --id for this long, even after the ack; other sends with --unique-for are dropped.",
)
@click.option(
    "--expires-in", type=DURATION, metavar="TIME", help="Drop the message if it has not started within this time."
)
@retries_option
@timeout_option
@header_option
@task_option
@results_option
@kind_option(
    "What PAYLOAD is: JSON, a string, or bytes. Default: auto, which means JSON if it is valid, else a string."
)
@click.option(
    "--file",
    "-f",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Send the messages in a JSON Lines file instead; - is stdin.",
)
@click.option("--resume", is_flag=True, help="Continue an interrupted --file; it sends no line twice.")
@json_option
def send(
    queue: Queue, payload: str | None, id_: str | None, headers: Sequence[tuple[str, str]], kind: Kind | None,
    file: Path | None, resume: bool, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Send PAYLOAD, stdin (-) or each line of a file to QUEUE.

    \b
    If PAYLOAD is valid JSON, it is sent as JSON, otherwise as a string:
      42, true, "42" and {"to": "a"} are JSON
      hello and a@example.org are strings; with --as text, 42 is one too

    Each line of a --file is a JSON object: {"payload": …} and, optionally, "delay" (seconds, or as in --delay), "at",
    "id", "headers", "max_retries", "expires_in", "on_conflict", "unique_for", "timeout", "task", "results". If
    a line is malformed, the lines before it are sent and the exit code is 2: correct the line, then run again with
    --resume. The queue remembers for 30 days how far a file was sent, in the same transaction as the messages, so
    --resume sends each line once, even after a kill -9.
    """  # noqa: D301  # click wants the character
    given = {"id": id_, "headers": dict(headers) or None} | options
    given = {name: value for name, value in given.items() if value is not None}
    if file is not None:
        if payload is not None or kind is not None or given:
            raise click.UsageError("leave out PAYLOAD and its options with --file: each line of the file has its own")
        from .file import send_file  # noqa: PLC0415  # few sends need it, and it needs much

        send_file(queue, file, resume, as_json)
        return
    if payload is None or resume:
        raise click.UsageError("--resume needs --file" if resume else "give PAYLOAD, - for stdin, or --file")
    _send_one(queue, payload, kind or "auto", as_json, **given)


def _send_one(queue: Queue, payload: str, kind: Kind, as_json: bool, **options: Any) -> None:
    one_of(options.get("delay"), options.get("at"))
    if "results" in options and "task" not in options:
        raise click.UsageError("--results keeps the result of a task: give its name with --task")
    body = read_stdin() if payload == "-" else payload.encode(errors="surrogateescape")
    try:
        sent = queue.send(payload_of(body, kind), **options)
    except (InvalidInput, DuplicateMessage) as error:
        raise type(error)(in_options(str(error), options)) from error
    if as_json:
        print_json(sent._asdict())
    else:
        say(_outcome(queue, sent, options.get("on_conflict", "ignore"), "unique_for" in options))


def read_stdin() -> bytes:
    """Return the contents of stdin; raise InvalidInput if they are too much for any queue."""
    body = sys.stdin.buffer.read(MAX_STDIN_BYTES)
    if len(body) == MAX_STDIN_BYTES:
        raise InvalidInput("stdin is 64 MiB or larger: the limit of a queue is far lower")
    return body


def _outcome(queue: Queue, sent: SentMessage, on_conflict: OnConflict, unique: bool) -> str:
    due = show_moment(sent.due_at)
    if sent.created:
        return f"sent {sent.id} to {queue.name}, due {due}"
    if on_conflict == "replace":
        return f"replaced {sent.id} in {queue.name}, due {due}"
    if unique:
        return f"{sent.id} is already in {queue.name}, or reserved: nothing was sent"
    return f"{sent.id} is already in {queue.name}: unchanged, due {due}"
