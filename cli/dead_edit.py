"""dead edit: requeue a dead letter with a corrected payload, headers or timeout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import IO, Any

import click
import msgspec

from delayq.errors import InvalidInput, UnreadableEnvelope
from delayq.model.envelope import RAW, decode_json
from delayq.model.message_info import MessageInfo
from delayq.queue import Queue

from .formats import Kind, payload_of
from .options import (
    HEADER,
    check_terminal,
    command,
    delay_option,
    id_argument,
    json_option,
    kind_option,
    queue_argument,
    timeout_option,
)
from .output import note, report
from .show import phase

MAX_FILE_BYTES = 64 * 1024**2  # far above any queue's limit; an endless pipe must not fill the memory


@command(
    """
        delayq send emails '{"to": "nobody"}' --id order-42
        delayq consume emails --exec 'exit 65' --burst
        delayq dead edit emails order-42 --payload '{"to": "a@example.org"}'
        """,
    "Requeue one with a new payload, headers or timeout.",
)
@queue_argument
@id_argument
@click.option("--payload", metavar="TEXT", help="The new payload.")
@click.option("--file", "-f", type=click.File("rb"), help="A file that holds the new payload; - is stdin.")
@kind_option("What the payload is, as in delayq send. Default: raw if the old one is bytes, else auto.")
@click.option(
    "--header",
    "-H",
    "headers",
    type=HEADER,
    multiple=True,
    metavar="NAME=VALUE",
    help="Add or replace a header; repeatable.",
)
@click.option("--without-header", "without", multiple=True, metavar="NAME", help="Remove a header; repeatable.")
@delay_option
@timeout_option
@click.option("--without-timeout", is_flag=True, help="Remove the message's time limit; the consumer's applies.")
@json_option
def edit(
    queue: Queue, message_id: str, payload: str | None, file: IO[bytes] | None, kind: Kind | None,
    headers: Sequence[tuple[str, str]], without: Sequence[str], delay: float | None, timeout: float | None,
    without_timeout: bool, as_json: bool,
) -> None:  # fmt: skip
    """Requeue the dead letter ID of QUEUE with a new payload, headers or timeout, and reset its retries.

    Without --payload, --file, or an option for headers or timeout, the payload opens in your editor ($VISUAL,
    $EDITOR). If you save no change, nothing happens. Exit code 1 if the message is not dead, or has died again in the
    meantime.
    """
    if payload is not None and file is not None:
        raise click.UsageError("give either --payload or --file, not both")
    if timeout is not None and without_timeout:
        raise click.UsageError("give either --timeout or --without-timeout, not both")
    info = queue.get(message_id)
    if info is None or info.state != "dead":
        where = "is not in the queue" if info is None else f"is not dead but {phase(info, queue.stats().at)}"
        raise click.ClickException(f"message {message_id!r} {where}")
    is_raw = info.envelope is not None and info.envelope.kind == RAW
    given: dict[str, Any] = {}
    if headers or without:
        given["headers"] = _changed(info, headers, without)
    if timeout is not None or without_timeout:
        given["timeout"] = timeout
    body = payload.encode(errors="surrogateescape") if payload is not None else _read(file) if file else None
    if body is not None:
        given["payload"] = payload_of(body, kind or ("raw" if is_raw else "auto"))
    elif not given:
        given["payload"] = _edited(info, kind or ("raw" if is_raw else "json"))
    if not queue.dead.edit(message_id, delay=delay or 0, died_at=info.died_at, **given):
        raise click.ClickException(f"message {message_id!r} has left the dead letters in the meantime, or died again")
    report({"id": message_id, "requeued": 1}, f"edited and requeued {message_id}", as_json)


def _changed(info: MessageInfo, headers: Sequence[tuple[str, str]], without: Sequence[str]) -> dict[str, Any]:
    old = info.headers or {}
    if missing := [name for name in without if name not in old]:
        raise InvalidInput(
            f"message {info.id!r} has no header {missing[0]!r}: its headers are {', '.join(old) or 'none'}"
        )
    return {name: value for name, value in old.items() if name not in without} | dict(headers)


def _read(file: IO[bytes]) -> bytes:
    body = file.read(MAX_FILE_BYTES)
    if len(body) == MAX_FILE_BYTES:
        raise InvalidInput("the file is 64 MiB or larger: the limit of a queue is far lower")
    return body


def _edited(info: MessageInfo, kind: Kind) -> Any:
    """Return the payload as edited in the user's editor; offer to edit it again if it cannot be sent."""
    check_terminal("to edit without an editor, give --payload or --file")
    text = before = _text(info, kind)
    while True:
        saved = click.edit(text, extension=".json" if kind == "json" else ".txt")
        if saved is None:
            raise click.ClickException(f"nothing was saved: message {info.id!r} is unchanged")
        text = saved
        if kind == "raw" and not before.endswith("\n"):
            text = text.removesuffix("\n")  # editors end a file in one
        try:
            return payload_of(text.encode(), kind)
        except InvalidInput as error:
            note(f"delayq: {error}")
            click.confirm("Edit again?", default=True, abort=True, err=True)


def _text(info: MessageInfo, kind: Kind) -> str:
    body = info.body or b""
    try:
        return (decode_json(body, partial(msgspec.json.format, indent=2)) if kind == "json" and body else body).decode()
    except (UnicodeDecodeError, UnreadableEnvelope) as error:
        raise click.UsageError("the payload is not text: give a new one with --payload or --file") from error
