"""Loading a file of a lake into Redis: each of its messages goes in once, however often that is done."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from delayq.calls import Call, Steps, as_is, expect
from delayq.errors import LakeMismatch
from delayq.lake import layout
from delayq.lake.far import HOLD_MS
from delayq.lake.layout import File, Loaded, Resting
from delayq.lake.plans import server_ms
from delayq.lake.shelf import Shelf, rows_of
from delayq.operations.core import Core
from delayq.operations.inspecting import find_all
from delayq.operations.sealing import Sealed
from delayq.operations.sending import send_new
from delayq.queue import Queue

BATCH_ROWS = 10_000
LOOK_SECONDS = 5.0
STILL_MS = HOLD_MS // 2  # from a look to a send: what is changed behind the look still holds its mark then
MARKS_A_TRIP = 1000
LEAST_RESERVE_MS = 600_000  # a batch is sent within it: later, Redis may have forgotten what an earlier try has sent


class LoadTask(NamedTuple):
    """A file to be loaded.

    Attributes:
        reserved_until_ms: until then no other load sends its messages again.
        known_until_ms: until then Redis knows what it was sent of the same run, from this file or another one.
    """

    queue: str
    hour: str
    file: str
    reserved_until_ms: int
    known_until_ms: int


class Look(NamedTuple):
    """A look for the messages of an hour that were cancelled or moved.

    Attributes:
        at_ms: when it began, by the time that the scripts go by.
        marks: of these messages.
    """

    at_ms: int
    marks: set[str]


class Looks:
    """Looks for the messages of hours that were cancelled or moved: one look serves all files that are loaded soon.

    What is changed behind a look holds its mark in Redis: its file is loaded again.
    """

    def __init__(self, queue: Queue, shelf: Shelf) -> None:
        self._queue = queue
        self._shelf = shelf
        self._seen: dict[str, tuple[float, Look]] = {}

    def look(self, hour: str) -> Look:
        """Return a look at an hour: a new one, unless the last one was over some seconds ago."""
        if hour not in self._seen or time.monotonic() - self._seen[hour][0] > LOOK_SECONDS:
            now = self._queue.connection.do(server_ms(self._queue.core))
            look = Look(now, self._shelf.changes(hour))
            self._seen = {hour: (time.monotonic(), look)}
        return self._seen[hour][1]


def load(queue: Queue, shelf: Shelf, task: LoadTask, looks: Looks | None = None) -> Loaded:
    """Send the messages of a file, but for those that were cancelled or moved.

    A file that is gone, or not what was written, is left: it has a `trouble`.

    Args:
        looks: for changes; of its own when None.
    """
    file = File.read(task.file)
    assert file is not None, f"{task.file} was listed as a file of messages"
    loaded = Loaded(task.file, task.reserved_until_ms, file.rows, file.checksum)
    try:
        table = shelf.read(task.hour, file)
        looks = looks or Looks(queue, shelf)
        counts: Counter[str] = Counter()
        for batch in table.to_batches(BATCH_ROWS):
            look = looks.look(task.hour)
            resting = [Resting(task.hour, file.source, row) for row in rows_of(batch)]
            left = [each for each in resting if each.mark not in look.marks]
            there, others = _arrived(queue, shelf, left)
            counts["cancelled"] += len(resting) - len(left)
            counts.update(others)
            counts.update(queue.connection.do(_send(queue.core, there, task, look)))
    except LakeMismatch as error:
        return replace(loaded, trouble=str(error))
    return replace(loaded, **counts)


def _arrived(queue: Queue, shelf: Shelf, resting: list[Resting]) -> tuple[list[Resting], Counter[str]]:
    """Return those that have come to rest here, and count the others: their moves are under way, or have broken off."""
    absent = [each for each in resting if not shelf.is_there(each)]
    if not absent:
        return resting, Counter()
    values = queue.connection.do(_origins(queue.core, absent))
    # A move writes its change while it holds the mark: read after that was looked at, what is missing stays so.
    others = {
        each: "held" if layout.is_held(value) else "void"
        for each, value in zip(absent, values, strict=True)
        if not shelf.is_there(each)
    }
    return [each for each in resting if each not in others], Counter(others.values())


def _send(core: Core, resting: Sequence[Resting], task: LoadTask, look: Look) -> Steps[Counter[str]]:
    now = yield from server_ms(core)
    if task.known_until_ms - now < LEAST_RESERVE_MS:
        raise LakeMismatch(_too_close(task))
    if now - look.at_ms > STILL_MS:
        raise LakeMismatch(_stood_still(task))
    new = yield from send_new(core, [_sealed(each, now, task.reserved_until_ms - now) for each in resting])
    taken = [each for each, is_new in zip(resting, new, strict=True) if not is_new]
    values = yield from marks(core, taken)
    free = [each.row.id for each, value in zip(taken, values, strict=True) if value is None]
    held = sum(map(layout.is_held, values)) + (yield from _count_nowhere(core, free))
    return Counter(sent=sum(new), existing=len(taken) - held, held=held)


def _count_nowhere(core: Core, ids: list[str]) -> Steps[int]:
    """Count the messages that Redis does not have: what took their ids or marks at the send has ended since."""
    found = yield from find_all(core, ids)
    return sum(not each.scores.keys() - {"garbage"} for each in found)


def _too_close(task: LoadTask) -> str:
    return (
        f"the load of {task.file} of {task.queue}, {task.hour}, goes on so late that Redis may forget before its end "
        f"what it was sent before: in {LEAST_RESERVE_MS // 60_000} minutes, the next load says what can be done"
    )


def _stood_still(task: LoadTask) -> str:
    return (
        f"the load of {task.file} of {task.queue}, {task.hour}, stood still for minutes, in which messages may have "
        "been cancelled or moved: the next load completes it"
    )


def _sealed(resting: Resting, now: int, reserve: int) -> Sealed:
    row = resting.row
    return Sealed(row.id, row.due_ms, layout.envelope_at(row, now), "ignore", True, reserve, resting.mark)


def marks(core: Core, resting: Sequence[Resting]) -> Steps[list[int | None]]:
    """Return what Redis keeps under the marks of messages, in their order."""
    return (yield from _kept([core.shard(each.row.id).keys.unique(each.mark) for each in resting]))


def _origins(core: Core, resting: Sequence[Resting]) -> Steps[list[int | None]]:
    """Return what Redis keeps under the marks that messages had where they were moved from, in their order."""
    yield from core.opened()  # nothing was sent yet
    return (yield from _kept([core.shard(each.row.id).keys.unique(each.row.origin_mark) for each in resting]))


def _kept(keys: Sequence[str]) -> Steps[list[int | None]]:
    values: list[int | None] = []
    for start in range(0, len(keys), MARKS_A_TRIP):
        replies = yield [Call(key, ("GET", key), as_is) for key in keys[start : start + MARKS_A_TRIP]]
        values += [None if reply is None else int(reply) for reply in map(expect, replies)]
    return values
