"""topic publish --file: publish the records of a JSON Lines file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from delayq import NewRecord
from delayq.errors import InvalidInput, RecordOrder, ServerError
from delayq.model.show import plural, show_duration
from delayq.topic import Topic

from ..json_lines import JsonLine, arguments, parsed, read_lines
from ..output import report
from ..progress import progress

BATCH = 500
BATCH_BYTES = 4 * 1024 * 1024


class RecordFields(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a line: the options of `delayq topic publish`."""

    payload: msgspec.Raw
    delay: float | str | None = None
    at: str | None = None
    id: str | None = None
    key: str | None = None
    headers: dict[str, str | int | float | bool | None] | None = None


_decode = msgspec.json.Decoder(RecordFields).decode


class FileRecord(NamedTuple):
    """A record and its line."""

    line: JsonLine
    record: NewRecord


def publish_file(topic: Topic, path: Path, max_length: int | None, exact: bool, as_json: bool) -> None:
    """Publish the records of a JSON Lines file, and print how many.

    Raises:
        InvalidInput, RecordOrder: a line is wrong; the error names it, and the lines before it were published.
        ServerError: the server failed; the error says which lines were certainly published.
    """
    started = time.monotonic()
    with click.open_file(str(path), "rb") as stream:
        name = "stdin" if str(path) == "-" else path.name
        size = path.stat().st_size if name != "stdin" and stream.seekable() else None
        published = place = last = 0
        with progress(f"publishing {name}", size) as bar:
            for batch in _batches(_entries(read_lines(stream, name))):
                try:
                    _publish(topic, batch, max_length, exact)
                except ServerError as error:
                    so_far = f"lines 1 to {last:,} of {name} are published; some of the next {len(batch)} may be"
                    raise type(error)(f"{error}; {so_far}") from error
                published, last = published + len(batch), batch[-1].line.number
                bar.advance(batch[-1].line.end - place)
                place = batch[-1].line.end
    took = show_duration(time.monotonic() - started)
    said = f"published {plural(published, 'record')} from {name} to {topic.name} in {took}"
    report({"topic": topic.name, "file": str(path), "published": published}, said, as_json)


def _publish(topic: Topic, batch: Sequence[FileRecord], max_length: int | None, exact: bool) -> None:
    first, last = batch[0].line, batch[-1].line
    try:
        topic.publish_many([entry.record for entry in batch], max_length=max_length, exact=exact or None)
    except InvalidInput as error:  # one is bad, so nothing was stored: find it, and publish those before it
        if len(batch) == 1:
            raise last.wrong(error) from error
        for entry in batch:
            _publish(topic, [entry], max_length, exact)
    except RecordOrder as error:
        lines = f"line {first.number}" if first is last else f"lines {first.number} to {last.number}"
        raise RecordOrder(f"{first.file}, {lines}: {error}") from error


def _entries(lines: Iterator[JsonLine]) -> Iterator[FileRecord]:
    for line in lines:
        record = parsed(line, _decode, lambda fields: NewRecord(**arguments(fields)))
        if record is not None:
            yield FileRecord(line, record)


def _batches(entries: Iterator[FileRecord]) -> Iterator[list[FileRecord]]:
    """Group records into calls; an error of `entries` is raised after the batch of the records before it."""
    batch: list[FileRecord] = []
    size = 0
    error = None
    try:
        for entry in entries:
            named = batch and (batch[-1].record.id is None) != (
                entry.record.id is None
            )  # a call takes records with ids or without, not both
            if batch and (named or len(batch) == BATCH or size + len(entry.line.text) > BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(entry)
            size += len(entry.line.text)
    except InvalidInput as raised:
        error = raised
    if batch:
        yield batch
    if error is not None:
        raise error
