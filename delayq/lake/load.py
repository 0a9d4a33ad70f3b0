"""Loading a file of a lake into Redis: each message is sent once, however often the file is loaded."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from delayq.errors import LakeMismatch
from delayq.lake import layout
from delayq.lake.deferred_messages import HOLD_MS
from delayq.lake.layout import DeferredMessage, File, Loaded
from delayq.lake.queue_folder import QueueFolder, rows_of
from delayq.model.progress import Progress
from delayq.operations.encode import EncodedMessage
from delayq.operations.inspect import find_all
from delayq.operations.queue_context import QueueContext, server_ms
from delayq.operations.send import send_new
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import Operation, unwrap
from delayq.queue import Queue

BATCH_ROWS = 10_000
SNAPSHOT_SECONDS = 5.0
STILL_MS = HOLD_MS // 2  # limit from a snapshot to a send: a later change still holds its mark then
MARKS_A_TRIP = 1000
LEAST_RESERVE_MS = 600_000  # enough to send a batch; with less, Redis may forget meanwhile what an earlier try has sent


class LoadTask(NamedTuple):
    """A file to load.

    Attributes:
        reserved_until_ms: until then, no other load sends its messages again.
        known_until_ms: until then, Redis knows what it was sent of the same run, from this file or another one.
    """

    queue: str
    hour: str
    file: str
    reserved_until_ms: int
    known_until_ms: int


class ChangeSnapshot(NamedTuple):
    """The messages of an hour that were cancelled or moved.

    Attributes:
        at_ms: when it was taken, by the scripts' clock.
        marks: of these messages.
    """

    at_ms: int
    marks: set[str]


class ChangeSnapshots:
    """Which messages of hours were cancelled or moved: one snapshot serves all files loaded within some seconds.

    A message changed after a snapshot holds its mark in Redis, and its file is loaded again.
    """

    def __init__(self, queue: Queue, folder: QueueFolder) -> None:
        self._queue = queue
        self._folder = folder
        self._seen: dict[str, tuple[float, ChangeSnapshot]] = {}

    def of(self, hour: str) -> ChangeSnapshot:
        """Return a snapshot of an hour: a new one, unless the last one is only some seconds old."""
        if hour not in self._seen or time.monotonic() - self._seen[hour][0] > SNAPSHOT_SECONDS:
            now = self._queue.execute(server_ms)
            snapshot = ChangeSnapshot(now, self._folder.changes(hour))
            self._seen = {hour: (time.monotonic(), snapshot)}
        return self._seen[hour][1]


def load(queue: Queue, folder: QueueFolder, task: LoadTask, snapshots: ChangeSnapshots | None = None) -> Loaded:
    """Send the messages of a file, except those that were cancelled or moved.

    A file that is gone or damaged is not loaded: the result has a `trouble`.

    Args:
        snapshots: of changes; None to take its own.
    """
    file = File.read(task.file)
    assert file is not None, f"{task.file} was listed as a file of messages"
    loaded = Loaded(task.file, task.reserved_until_ms, file.rows, file.checksum)
    try:
        table = folder.read(task.hour, file)
        snapshots = snapshots or ChangeSnapshots(queue, folder)
        counts: Counter[str] = Counter()
        progress = Progress(f"of {file.rows:,} messages of {task.queue}, {task.hour}, {task.file} are stored")
        with progress.explained(": the next run loads the others"):
            for batch in table.to_batches(BATCH_ROWS):
                snapshot = snapshots.of(task.hour)
                deferred = [DeferredMessage(task.hour, file.source, row) for row in rows_of(batch)]
                left = [each for each in deferred if each.mark not in snapshot.marks]
                there, others = _arrived(queue, folder, left)
                counts["cancelled"] += len(deferred) - len(left)
                counts.update(others)
                counts.update(queue.execute(_send, there, task, snapshot, progress))
    except LakeMismatch as error:
        return replace(loaded, trouble=str(error))
    return replace(loaded, **counts)


def _arrived(
    queue: Queue, folder: QueueFolder, deferred: list[DeferredMessage]
) -> tuple[list[DeferredMessage], Counter[str]]:
    """Return the messages that belong here, and count the others, whose moves here are unfinished or broke off."""
    absent = [each for each in deferred if not folder.is_there(each)]
    if not absent:
        return deferred, Counter()
    values = queue.execute(_origins, absent)
    # A move writes its change while it holds the mark: if the change is missing after the mark was read, it stays so.
    others = {
        each: "held" if layout.is_held(value) else "void"
        for each, value in zip(absent, values, strict=True)
        if not folder.is_there(each)
    }
    return [each for each in deferred if each not in others], Counter(others.values())


def _send(
    context: QueueContext,
    deferred: Sequence[DeferredMessage],
    task: LoadTask,
    snapshot: ChangeSnapshot,
    progress: Progress,
) -> Operation[Counter[str]]:
    now = yield from server_ms(context)
    if task.known_until_ms - now < LEAST_RESERVE_MS:
        raise LakeMismatch(_too_close(task))
    if now - snapshot.at_ms > STILL_MS:
        raise LakeMismatch(_stood_still(task))
    encoded = [_encoded(each, now, task.reserved_until_ms - now) for each in deferred]
    new = yield from send_new(context, encoded, progress)
    taken = [each for each, is_new in zip(deferred, new, strict=True) if not is_new]
    values = yield from marks(context, taken)
    free = [each.row.id for each, value in zip(taken, values, strict=True) if value is None]
    held = sum(map(layout.is_held, values)) + (yield from _count_nowhere(context, free))
    return Counter(sent=sum(new), existing=len(taken) - held, held=held)


def _count_nowhere(context: QueueContext, ids: list[str]) -> Operation[int]:
    """Count the messages that Redis does not have: another message or a change had their ids or marks at the send."""
    found = yield from find_all(context, ids)
    return sum(not each.scores.keys() - {"garbage"} for each in found)


def _too_close(task: LoadTask) -> str:
    return (
        f"the load of {task.file} of {task.queue}, {task.hour}, is so late that Redis may forget before it ends which "
        f"messages it was already sent: run it again in {LEAST_RESERVE_MS // 60_000} minutes to see what can be done"
    )


def _stood_still(task: LoadTask) -> str:
    return (
        f"the load of {task.file} of {task.queue}, {task.hour}, was suspended for minutes, and messages may have been "
        "cancelled or moved since: the next load completes it"
    )


def _encoded(deferred: DeferredMessage, now: int, reserve: int) -> EncodedMessage:
    row = deferred.row
    return EncodedMessage(row.id, row.due_ms, layout.envelope_at(row, now), "ignore", True, reserve, deferred.mark)


def marks(context: QueueContext, deferred: Sequence[DeferredMessage]) -> Operation[list[int | None]]:
    """Return the values of the messages' marks in Redis, in order."""
    return (yield from _kept([context.shard(each.row.id).keys.unique(each.mark) for each in deferred]))


def _origins(context: QueueContext, deferred: Sequence[DeferredMessage]) -> Operation[list[int | None]]:
    """Return the values of the marks of the rows that messages were moved from, in order."""
    yield from context.opened()  # as nothing was sent yet
    return (yield from _kept([context.shard(each.row.id).keys.unique(each.row.origin_mark) for each in deferred]))


def _kept(keys: Sequence[str]) -> Operation[list[int | None]]:
    values: list[int | None] = []
    for start in range(0, len(keys), MARKS_A_TRIP):
        replies = yield [Command(key, ("GET", key), identity) for key in keys[start : start + MARKS_A_TRIP]]
        values += [None if reply is None else int(reply) for reply in map(unwrap, replies)]
    return values
