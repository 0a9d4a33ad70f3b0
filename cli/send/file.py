"""Sending a file of messages: in batches, with bounded memory, and resumable after an interruption."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import click
from msgspec.structs import replace

from delayq.checkpoint import MAX_BYTES, MAX_SENT, CheckpointExecutor, Note
from delayq.errors import DuplicateMessage, InvalidInput, QueueFull, ServerError
from delayq.model.delivery import Outgoing, SentMessage
from delayq.model.message_ids import new_ids
from delayq.model.placement import shard_of
from delayq.model.show import plural, show_duration
from delayq.queue import Queue

from ..json_lines import JsonLine, parse_line, read_lines
from ..output import note, print_json, say
from ..progress import progress


class FileMessage(NamedTuple):
    """A message and its line."""

    line: JsonLine
    message: Outgoing


def send_file(queue: Queue, path: Path, resume: bool, as_json: bool) -> None:
    """Send the messages of a JSON Lines file, and print how many.

    Raises:
        InvalidInput: a line is malformed; the error names it, and the lines before it were sent.
        QueueFull: the queue has no room for a line; the lines before it were sent.
        DuplicateMessage: the id of a line with "on_conflict": "error" exists; the lines before it were sent.
    """
    started = time.monotonic()
    with click.open_file(str(path), "rb") as stream:
        name = "stdin" if str(path) == "-" else path.name
        seekable = name != "stdin" and stream.seekable()
        if resume and not seekable:
            raise click.UsageError(f"--resume needs a file that can be read again: {name} cannot be")
        sender = FileSender(queue, name, open_journal(queue, name, stream, resume) if seekable else None)
        sender.send(stream, path.stat().st_size if seekable else None)
    if as_json:
        print_json({"queue": queue.name, "file": str(path), "sent": sender.sent, "existed": sender.existed})
        return
    existed = f" ({sender.existed:,} already existed: kept or replaced)" if sender.existed else ""
    seconds = time.monotonic() - started
    say(
        f"sent {plural(sender.sent, 'message')} from {sender.name} to {queue.name} in {show_duration(seconds)}{existed}"
    )


def open_journal(queue: Queue, name: str, stream: IO[bytes], resume: bool) -> CheckpointExecutor:
    """Return the journal of a file, positioned where to continue.

    Raises:
        InvalidInput: the lines that were sent have changed in the file.
    """
    journal = CheckpointExecutor(queue, _identity(name, stream))
    if resume and journal.known_run is None:
        note(f"no earlier send of {name} to {queue.name} is known: starting with line 1")
    elif resume:
        notes = journal.current
        if _holds(name, stream, notes):
            note(f"continuing {name} after line {min(each.line for each in notes):,}")
            return journal
        if not notes[0].done:
            raise InvalidInput(
                f"{name} has changed: some of its first {max(each.line for each in notes):,} lines, which were sent, "
                "are different now. Restore them, or send the remaining lines as another file"
            )
    elif lines := max(each.line for each in journal.current):
        note(
            f"{plural(lines, 'line')} of {name}, or of a file like it, already sent to {queue.name}: lines without an "
            "id are sent again; --resume sends only the missing lines"
        )
    journal.begin(new_ids(1)[0])
    return journal


def _identity(name: str, stream: IO[bytes]) -> str:
    """Return a digest that identifies a file, even if it moves or grows: of its name and first line."""
    first = next(read_lines(stream, name), None)
    stream.seek(0)
    known = name.encode(errors="surrogateescape") + (first.text if first else b"")
    return hashlib.blake2b(known, digest_size=16).hexdigest()


def _holds(name: str, stream: IO[bytes], notes: list[Note]) -> bool:
    """Whether the file still begins with the lines that were sent according to the checkpoints."""
    wanted = {each.line: each.digest for each in notes if each.line}
    for line in read_lines(stream, name) if wanted else ():
        if wanted.pop(line.number, line.digest) != line.digest:
            return False
        if not wanted:
            break
    stream.seek(0)
    return not wanted


class FileSender:
    """Sends the messages of one file.

    Args:
        name: of the file, for errors.
        journal: records how far the file was sent; None for a stream that can be read only once.

    Attributes:
        sent, existed: messages so far: new ones, and those whose id existed.
        line: the last line so far.
    """

    def __init__(self, queue: Queue, name: str, journal: CheckpointExecutor | None = None) -> None:
        self.name = name
        self.sent = self.existed = self.line = 0
        self._queue = queue
        self._journal = journal

    def send(self, stream: IO[bytes], size: int | None) -> None:
        """Send the messages that were not sent yet."""
        place = 0
        try:
            with progress(f"sending {self.name}", size) as bar:
                for batch in batches(self.entries(stream)):
                    self.send_batch(batch)
                    bar.advance(batch[-1].line.end - place)
                    place = batch[-1].line.end
        except (InvalidInput, DuplicateMessage, QueueFull, ServerError) as error:
            raise type(error)(f"{error}; {self._so_far(isinstance(error, ServerError))}") from error
        if self._journal is not None:
            self._journal.finish()

    def _so_far(self, in_doubt: bool) -> str:
        """Say how many messages were sent, and how to continue; if `in_doubt`, the next ones may have been sent."""
        count = self.sent + self.existed
        if self._journal is not None and (count or in_doubt):
            return f"{plural(count, 'message')} sent before that; continue with --resume, which sends nothing twice"
        if not count and not in_doubt:
            return "nothing was sent"
        doubt = ", but some of the next messages may already be sent" if in_doubt else ""
        return f"{plural(count, 'message')} sent before that; continue with line {self.line + 1}{doubt}"

    def entries(self, stream: IO[bytes]) -> Iterator[FileMessage]:
        """Yield the messages of the lines after the checkpoints."""
        notes = self._journal.current if self._journal else [Note(new_ids(1)[0])]
        begin = min(each.line for each in notes)
        for line in read_lines(stream, self.name):
            message = parse_line(line) if line.number > begin else None
            if message is None:
                continue
            id_ = f"{notes[0].run}-{line.number}" if message.id is None else message.id
            if line.number > notes[shard_of(id_, len(notes))].line:
                yield FileMessage(line, replace(message, id=id_))

    def send_batch(self, batch: list[FileMessage]) -> None:
        """Send messages, and record it in the same transaction."""
        messages, last = [entry.message for entry in batch], batch[-1].line
        if self._journal is not None:
            run = self._journal.known_run or ""
            self._journal.upcoming = [Note(run, entry.line.number, entry.line.digest) for entry in batch]
        try:
            results = (self._journal or self._queue).send_many(messages)
        except InvalidInput as error:  # one is bad, so nothing was sent: find it, and send those before it
            if len(batch) == 1:
                raise last.wrong(error) from error
            for entry in batch:
                self.send_batch([entry])
        except DuplicateMessage as error:
            raise DuplicateMessage(f"{last.file}, line {last.number}: {error}") from error
        except QueueFull as error:
            stored = batch[: error.unsent[0]]
            self._count(stored, error.sent)
            line = batch[len(stored)].line
            raise QueueFull(
                f"{line.file}, line {line.number} was not sent: queue {self._queue.name} is full, with max_length "
                f"{error.max_length:,}: wait until messages have been handled, or configure a higher max_length"
            ) from error
        else:
            self._count(batch, results)

    def _count(self, stored: list[FileMessage], results: Sequence[SentMessage]) -> None:
        created = sum(result.created for result in results[: len(stored)])
        self.sent, self.existed = self.sent + created, self.existed + len(stored) - created
        if stored:
            self.line = stored[-1].line.number


def batches(entries: Iterator[FileMessage]) -> Iterator[list[FileMessage]]:
    """Group messages so that a batch takes one call per shard: bounded, with distinct ids, conflicts on their own.

    An error of `entries` is raised after the batch of the messages before it.
    """
    batch: list[FileMessage] = []
    ids: set[str | None] = set()
    size = 0
    error = None
    try:
        for entry in entries:
            alone = _goes_alone(entry.message)
            full = len(batch) >= MAX_SENT or size + len(entry.line.text) > MAX_BYTES
            if batch and (full or alone or _goes_alone(batch[-1].message) or entry.message.id in ids):
                yield batch
                batch, ids, size = [], set(), 0
            batch.append(entry)
            ids.add(entry.message.id)
            size += len(entry.line.text)
    except InvalidInput as raised:
        error = raised
    if batch:
        yield batch
    if error is not None:
        raise error


def _goes_alone(message: Outgoing) -> bool:
    return message.on_conflict != "ignore" or message.unique_for is not None
