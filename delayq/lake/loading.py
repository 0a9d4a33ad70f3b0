"""Loading a file of a lake into Redis: each of its messages goes in once, however often that is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from delayq.calls import Call, Steps, as_is, expect
from delayq.errors import LakeMismatch
from delayq.lake import layout
from delayq.lake.layout import File, Loaded, Resting
from delayq.lake.plans import server_ms
from delayq.lake.shelf import Shelf, rows_of
from delayq.operations.core import Core
from delayq.operations.sealing import Sealed
from delayq.operations.sending import send_new
from delayq.queue import Queue

BATCH_ROWS = 10_000
MARKS_A_TRIP = 1000


class Task(NamedTuple):
    """A file to be loaded.

    Attributes:
        reserved_until_ms: until then no other load sends its messages again.
    """

    queue: str
    hour: str
    file: str
    reserved_until_ms: int


def load(queue: Queue, shelf: Shelf, task: Task) -> Loaded:
    """Send the messages of a file, but for those that were cancelled or moved.

    A file that is gone, or not what was written, is left: it has a `trouble`.
    """
    file = File.read(task.file)
    assert file is not None, f"{task.file} was listed as a file of messages"
    loaded = Loaded(task.file, task.reserved_until_ms, file.rows, file.checksum)
    try:
        table = shelf.read(task.hour, file)
        changes = shelf.changes(task.hour)  # last before the sends: a change holds its mark for so long
        counts: Counter[str] = Counter()
        for batch in table.to_batches(BATCH_ROWS):
            resting = [Resting(task.hour, file.source, row) for row in rows_of(batch)]
            left = [each for each in resting if each.mark not in changes]
            there = [each for each in left if shelf.is_there(each)]
            counts["cancelled"] += len(resting) - len(left)
            if len(there) < len(left):
                counts["held" if shelf.is_being_moved(task.hour, file) else "void"] += len(left) - len(there)
            counts.update(queue.connection.do(_send(queue.core, there, task.reserved_until_ms)))
    except LakeMismatch as error:
        return replace(loaded, trouble=str(error))
    return replace(loaded, **counts)


def _send(core: Core, resting: Sequence[Resting], reserved_until_ms: int) -> Steps[Counter[str]]:
    now = yield from server_ms(core)
    reserve = max(1, reserved_until_ms - now)
    new = yield from send_new(core, [_sealed(each, now, reserve) for each in resting])
    taken = [each for each, is_new in zip(resting, new, strict=True) if not is_new]
    values = yield from marks(core, taken)
    held = sum(value is not None and value >= layout.HELD for value in values)
    return Counter(sent=sum(new), existing=len(taken) - held, held=held)


def _sealed(resting: Resting, now: int, reserve: int) -> Sealed:
    row = resting.row
    return Sealed(row.id, row.due_ms, layout.envelope_at(row, now), "ignore", True, reserve, resting.mark)


def marks(core: Core, resting: Sequence[Resting]) -> Steps[list[int | None]]:
    """Return what Redis keeps under the marks of messages, in their order."""
    values: list[int | None] = []
    for start in range(0, len(resting), MARKS_A_TRIP):
        keys = [core.shard(each.row.id).keys.unique(each.mark) for each in resting[start : start + MARKS_A_TRIP]]
        replies = yield [Call(key, ("GET", key), as_is) for key in keys]
        values += [None if reply is None else int(reply) for reply in map(expect, replies)]
    return values
