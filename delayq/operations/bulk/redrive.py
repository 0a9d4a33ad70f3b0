"""Redrive dead letters: requeue those that are selected, page by page, at a bounded rate."""

from __future__ import annotations

import datetime as dt
import math
import time

import msgspec

from delayq.model.configuration import per_second
from delayq.model.units import Seconds, from_ms
from delayq.operations.bulk import selection
from delayq.operations.bulk.selection import Choice
from delayq.operations.encode import due_word
from delayq.operations.queue_context import QueueContext
from delayq.operations.walk import Walk
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import MAX_MOVED, QueueCommands

BURSTS = 10  # a second: what comes back within a tenth of one may come back at once


class Redriven(msgspec.Struct, frozen=True, kw_only=True):
    """How far a redrive has come, or what became of it.

    Attributes:
        after: what died then or before is not meant; None where no bound was given.
        up_to: what died later is not meant: a redrive that was interrupted goes on with `older_than=up_to`.
        total: the dead letters that there were at the start.
        looked_at: how many of them were held against the filters; those too old or too young need no look.
        matched: how many of these are meant.
        moved: how many are pending again. Less than `matched` in a dry run, while it goes on, and where a payload is
            gone or somebody else was faster.
    """

    after: dt.datetime | None
    up_to: dt.datetime
    total: int = 0
    looked_at: int = 0
    matched: int = 0
    moved: int = 0


class Redrive:
    """A redrive, a step at a time, so that whoever runs it can wait in between, tell how far it is, and stop.

        while not redrive.done:
            told = queue.execute(redrive.step)
            time.sleep(redrive.pause)

    Nothing of it is kept anywhere: what it has not reached when it stops is as dead as before.

    Args:
        delay: until they are due, from when they come back.
        rate: how many come back, at most: a number a second, or as in "100/s", "5/10s", "30/min"; None is no limit.
        dry_run: change nothing, and count those that are meant.

    Attributes:
        done: whether there is nothing left to do.
        pause: seconds to wait before the next step.
        told: how far it is.

    Raises:
        InvalidInput: from the constructor.
    """

    def __init__(
        self,
        choice: Choice,
        delay: Seconds = 0,
        rate: float | str | None = None,
        dry_run: bool = False,
    ) -> None:
        self._choice = choice
        self._due = due_word(delay, None)
        self._rate = None if rate is None else per_second(rate)
        self._burst = MAX_MOVED if self._rate is None else max(1, min(MAX_MOVED, int(self._rate / BURSTS)))
        self._dry_run = dry_run
        self._left: list[tuple[QueueCommands, Walk, int]] = []  # of each shard: up to which time of death
        self._found: list[str] = []  # in the first of them
        self._next = 0.0  # on the monotonic clock
        self.done = False
        self.pause = 0.0
        self.told = Redriven(after=None, up_to=from_ms(0))
        self._begun = False

    def step(self, context: QueueContext) -> Operation[Redriven]:
        """Go a step further, over a page or less, and return how far it is."""
        self.pause = 0.0
        if not self._begun:
            yield from self._begin(context)
        if self._left and not self._found:
            yield from self._look()
        if self._found:
            yield from self._move()
        while self._left and not self._found and self._left[0][1].ended:
            self._left.pop(0)
        self.done = not self._left
        if self.done:
            self.pause = 0.0
        return self.told

    def _begin(self, context: QueueContext) -> Operation[None]:
        """Ask each shard for its time before the first message comes back, which may die anew."""
        shards = yield from context.opened()
        told = [unwrap(result) for result in (yield [scripts.stats() for scripts in shards])]
        bounds = [self._choice.bounds(now.now_ms) for now in told]
        for scripts, (after, up_to) in zip(shards, bounds, strict=True):
            rank, above = 0, 0.0
            if after is not None:
                above = math.nextafter(after, math.inf)
                rank = yield from execute(Command(scripts.keys.dead, ("ZCOUNT", scripts.keys.dead, "-inf", after), int))
            self._left.append((scripts, Walk(scripts, "dead", MAX_MOVED - 1, max(0, rank - 1), (above, b"")), up_to))
        self._begun = True
        afters = [after for after, _ in bounds if after is not None]
        self.told = Redriven(
            after=from_ms(min(afters)) if afters else None,
            up_to=from_ms(max(up_to for _, up_to in bounds)),
            total=sum(now.counts["dead"] for now in told),
        )

    def _look(self) -> Operation[None]:
        scripts, walk, up_to = self._left[0]
        rows = yield from walk.page()
        ids = [row[0] for row in rows if float(row[1]) <= up_to]
        if len(ids) < len(rows):
            walk.ended = True
        placed = [row[0] for row in rows[: len(ids)] if self._choice.has_place(row)]
        meant = yield from selection.meant(scripts, self._choice, placed)
        self._tell(looked_at=len(ids), matched=len(meant))
        if not self._dry_run:
            self._found = meant

    def _move(self) -> Operation[None]:
        scripts, walk, up_to = self._left[0]
        began = time.monotonic()
        some = self._found[: self._burst]
        moved = sum((yield from execute(scripts.requeue(some, self._due, up_to))))
        del self._found[: len(some)]
        walk.removed(moved)
        self._tell(moved=moved)
        if self._rate is not None and moved:
            earliest = began - 1 / BURSTS if self._next else began  # so much of the time that reading takes is made up
            self._next = max(self._next, earliest) + moved / self._rate
            self.pause = max(0.0, self._next - time.monotonic())

    def _tell(self, **more: int) -> None:
        self.told = msgspec.structs.replace(
            self.told, **{name: getattr(self.told, name) + count for name, count in more.items()}
        )
