"""Redrive dead letters: requeue selected ones, page by page, at a limited rate."""

from __future__ import annotations

import datetime as dt
import math
import time

import msgspec

from delayq.model.choice import Choice
from delayq.model.rate_text import per_second
from delayq.model.units import Seconds, due_word, from_ms
from delayq.operations.bulk import search
from delayq.operations.queue_context import QueueContext
from delayq.operations.walk import Walk
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import MAX_MOVED, QueueCommands

BURSTS = 10  # a second: messages for one tenth of a second may come back at once


class Redriven(msgspec.Struct, frozen=True, kw_only=True):
    """The progress or the result of a redrive.

    Attributes:
        after: only dead letters that died after this are selected; None if no bound was given.
        up_to: only dead letters that died by then are selected. To continue an interrupted redrive, start one with
            `older_than=up_to`.
        total: how many dead letters there were at the start.
        looked_at: how many of them were compared with the filters; those too old or too young are left out.
        matched: how many of these are selected.
        moved: how many are pending again. This is less than `matched` in a dry run, during a redrive, and if a payload
            is gone or another program was faster.
    """

    after: dt.datetime | None
    up_to: dt.datetime
    total: int = 0
    looked_at: int = 0
    matched: int = 0
    moved: int = 0


class Redrive:
    """A redrive in steps, so that the caller can wait in between, show progress, and stop.

        while not redrive.done:
            progress = queue.execute(redrive.step)
            time.sleep(redrive.pause)

    It stores no state: if it stops, the messages that it has not reached stay dead.

    Args:
        delay: how long after their return the messages are due.
        rate: the most messages that come back: a number a second, or "100/s", "5/10s", "30/min"; None for no limit.
        dry_run: count the selected messages and change nothing.

    Attributes:
        done: whether there is nothing left to do.
        pause: seconds to wait before the next step.
        progress: how far it is.

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
        self._left: list[tuple[QueueCommands, Walk, int]] = []  # for each shard, with the latest time of death
        self._found: list[str] = []  # in the first of them
        self._next = 0.0  # on the monotonic clock
        self.done = False
        self.pause = 0.0
        self.progress = Redriven(after=None, up_to=from_ms(0))
        self._begun = False

    def step(self, context: QueueContext) -> Operation[Redriven]:
        """Do one step, over a page or less, and return the progress; the first step only finds the bounds."""
        self.pause = 0.0
        if not self._begun:
            yield from self._begin(context)
            return self.progress
        if self._left and not self._found:
            yield from self._look()
        if self._found:
            yield from self._move()
        while self._left and not self._found and self._left[0][1].ended:
            self._left.pop(0)
        self.done = not self._left
        if self.done:
            self.pause = 0.0
        return self.progress

    def _begin(self, context: QueueContext) -> Operation[None]:
        """Ask each shard for its time before the first message comes back, as that may die again."""
        shards = yield from context.opened()
        stats = [unwrap(result) for result in (yield [scripts.stats() for scripts in shards])]
        bounds = [self._choice.bounds(now.now_ms) for now in stats]
        for scripts, (after, up_to) in zip(shards, bounds, strict=True):
            rank, above = 0, 0.0
            if after is not None:
                above = math.nextafter(after, math.inf)
                rank = yield from execute(Command(scripts.keys.dead, ("ZCOUNT", scripts.keys.dead, "-inf", after), int))
            self._left.append((scripts, Walk(scripts, "dead", MAX_MOVED - 1, max(0, rank - 1), (above, b"")), up_to))
        self._begun = True
        afters = [after for after, _ in bounds if after is not None]
        self.progress = Redriven(
            after=from_ms(min(afters)) if afters else None,
            up_to=from_ms(max(up_to for _, up_to in bounds)),
            total=sum(now.counts["dead"] for now in stats),
        )

    def _look(self) -> Operation[None]:
        scripts, walk, up_to = self._left[0]
        rows = yield from walk.page()
        ids = [row[0] for row in rows if float(row[1]) <= up_to]
        if len(ids) < len(rows):
            walk.ended = True
        placed = [row[0] for row in rows[: len(ids)] if self._choice.has_place(row)]
        meant = yield from search.chosen(scripts, self._choice, placed)
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
            earliest = began - 1 / BURSTS if self._next else began  # makes up for that much of the time spent reading
            self._next = max(self._next, earliest) + moved / self._rate
            self.pause = max(0.0, self._next - time.monotonic())

    def _tell(self, **more: int) -> None:
        self.progress = msgspec.structs.replace(
            self.progress, **{name: getattr(self.progress, name) + count for name, count in more.items()}
        )
