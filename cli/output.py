"""Output: JSON for programs, and text for people, which no payload can garble."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec

from delayq.errors import UnreadableEnvelope
from delayq.model.envelope import JSON, decode_json
from delayq.model.message_info import MessageInfo
from delayq.model.text import printable, printable_id

WIDE = 1000  # columns without a terminal: a pipe gets whole ids
PREVIEW = 60  # characters of a payload in a list
LEAST = 16  # characters of the last column, even if the line has no room for them

_encode = msgspec.json.Encoder().encode


def print_json(document: Any) -> None:
    """Print a document on one line."""
    click.echo(printable_json(_encode(document).decode()).encode())


def printable_json(text: str) -> str:
    """Escape terminal control characters in JSON, and put it on one line."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    # JSON strings cannot contain these, so they are space between values.
    return json.dumps(char).strip('"') if char >= " " else " "


def say(text: str) -> None:
    """Print a line of text."""
    click.echo(printable(text))


def report(document: Any, text: str, as_json: bool) -> None:
    """Print what a command has done: as a document, or as a line of text."""
    if as_json:
        print_json(document)
    else:
        say(text)


def note(text: str) -> None:
    """Print a line to stderr that is not data."""
    click.echo(printable(text), err=True)


def record(info: MessageInfo) -> dict[str, Any]:
    """Return everything about a message for printing as JSON.

    The payload is under `payload` if it was sent as JSON; otherwise its bytes are under `payload_base64`.
    """
    known = {name: getattr(info, name) for name in info.__struct_fields__ if name != "envelope"}
    known |= {"id": printable_id(info.id), "schedule": info.schedule, "slot": info.slot, "group": info.group}
    known["progress"] = None if info.progress is None else info.progress._asdict()
    if info.envelope is None:
        return known
    if info.envelope.kind == JSON and _is_json(info.envelope.body):
        return known | {"payload": msgspec.Raw(info.envelope.body)}
    return known | {"payload_base64": info.envelope.body}


def payload_text(info: MessageInfo, most: int | None = None) -> str:
    """Return the payload in at most `most` printable characters; ``-`` if it is gone."""
    if info.body is None:
        return "-"
    body = info.body if most is None else info.body[: 4 * most]
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = body.decode("latin-1").encode("unicode_escape").decode()
    return shortened(printable(text), most)


def shortened(text: str, most: int | None) -> str:
    """Cut a text to `most` characters, ending in an ellipsis."""
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def print_list(
    found: Sequence[Any], columns: Sequence[str], rows: Iterable[Sequence[object]], nothing: str, as_json: bool
) -> None:
    """Print named tuples as documents, one per line, or their rows as a table; if there are none, note `nothing`."""
    if as_json:
        for each in found:
            print_json(each._asdict())
    elif found:
        print_table(columns, rows)
    else:
        note(nothing)


def print_filled(columns: Sequence[str], rows: Sequence[Sequence[object]], least: int = 0) -> None:
    """Print a table without the columns after the first `least` ones that are empty in all rows."""
    kept = [at for at in range(len(columns)) if at < least or any(row[at] != "" for row in rows)]
    print_table([columns[at] for at in kept], [[row[at] for at in kept] for row in rows])


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under the names of their columns; a column of numbers has a name that begins with ``#``.

    On a terminal, the last column is cut to the rest of the line.
    """
    from rich.cells import cell_len  # noqa: PLC0415  # not needed by the programs that read JSON
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.lstrip("#"), justify="right" if column.startswith("#") else "left", overflow="fold")
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    width = _width()
    taken = sum(max(cell_len(each) for each in column) + 2 for column in list(zip(columns, *cells, strict=True))[:-1])
    for row in cells:
        table.add_row(*(Text(cell) for cell in row[:-1]), Text(shortened(row[-1], max(LEAST, width - taken))))
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair per line, without those that are None."""
    pairs = [(printable(name), value) for name, value in fields if value is not None]
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        say(f"{name:<{width}}  {value}")


def _is_json(body: bytes) -> bool:
    try:
        decode_json(body)
    except UnreadableEnvelope:
        return False
    return True
