"""Search a state for selected messages in steps, from where an earlier search stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from delayq.errors import InvalidInput
from delayq.model.choice import Choice, Found
from delayq.model.placement import Row, State, check_state
from delayq.model.text import decode_text, encode_id
from delayq.model.units import from_ms
from delayq.operations import scan
from delayq.operations.paging import LAST, cursor, described, rank_of, read_cursor, rows_in_front
from delayq.operations.queue_context import QueueContext
from delayq.operations.walk import BEGINNING, Place, Walk, place
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import MAX_MOVED, QueueCommands

LARGE_PAGE = 20  # messages whose envelopes one backward step reads
STEP_BYTES = 1024 * 1024  # of envelopes that one step reads: opening them takes some milliseconds


class Search:
    """A search in steps: the caller decides how long, and another search may continue after `cursor`.

        while not search.done:
            rows = queue.execute(search.step)

    It may miss messages that come or go during the search; it looks once at each message that stays.

    Args:
        after: `cursor` of an earlier search; None for the beginning.
        up_to: the last place to look at in each shard; None for the end.

    Attributes:
        done: whether there is nothing left to look at.
        looked_at: how many messages this search has looked at.
        cursor: the place after the last message it looked at; None at the beginning.
        shard: the number of the shard that the next step looks at.
    """

    def __init__(
        self,
        state: State,
        choice: Choice,
        after: str | None = None,
        up_to: Sequence[Place] | None = None,
    ) -> None:
        check_state(state)
        self._state: State = state
        self._choice = choice
        self._up_to = up_to
        self.shard, self._behind = (0, BEGINNING) if after is None else _read(after)
        self._walk: Walk | None = None
        self._rows: list[Row] = []  # not looked at yet
        self._sizes: dict[str, int] = {}
        self._span: tuple[float, float] | None = None  # of the selected times of death
        self.cursor = after
        self.looked_at = 0
        self.done = False

    def step(self, context: QueueContext) -> Operation[list[Row]]:
        """Look at a page or less, and return the selected rows: ids and scores, lowest score first."""
        shards = yield from context.opened()
        if self.shard >= len(shards):
            self.done = True
            return []
        scripts = shards[self.shard]
        if not self._rows:
            yield from self._read_on(scripts)
        rows = self._next()
        placed = [row[0] for row in rows if self._choice.has_place(row)]
        meant = set((yield from chosen(scripts, self._choice, placed)))
        self.looked_at += len(rows)
        if rows:
            self.cursor = f"{self.shard} {cursor(place(rows[-1]))}"
        if not self._rows and (self._walk is None or self._walk.ended):
            self.shard, self._behind, self._walk = self.shard + 1, BEGINNING, None
            self.cursor = f"{self.shard} {cursor(BEGINNING)}"
            self.done = self.shard >= len(shards)
        after, up_to = yield from self._died(scripts)
        return [row for row in rows if row[0] in meant and after < float(row[1]) <= up_to]

    def removed(self, count: int) -> None:
        """Note that `count` of the returned rows have been removed."""
        if self._walk is not None:
            self._walk.removed(count)

    def _died(self, scripts: QueueCommands) -> Operation[tuple[float, float]]:
        """Return the bounds of the selected times of death, ms: after the first, up to the second."""
        choice = self._choice
        if self._span is None:
            self._span = -math.inf, math.inf
            if self._state == "dead" and (choice.older_than is not None or choice.newer_than is not None):
                after, up_to = choice.bounds((yield from execute(scripts.stats())).now_ms)
                self._span = -math.inf if after is None else after, up_to
        return self._span

    def _read_on(self, scripts: QueueCommands) -> Operation[None]:
        since, until = self._choice.span
        if self._walk is None:
            rank = 0
            self._behind = max(self._behind, (since, b""))
            if self._behind != BEGINNING:
                rank = yield from rank_of(scripts, self._state, self._behind)
            self._walk = Walk(scripts, self._state, MAX_MOVED - 1, max(0, rank - 1), self._behind)
        rows = yield from self._walk.page()
        last = (math.inf, b"") if self._up_to is None else self._up_to[self.shard]
        self._rows = [row for row in rows if place(row) <= last and float(row[1]) <= until]
        if len(self._rows) < len(rows):
            self._walk.ended = True
        if self._choice.is_of_envelopes:
            self._sizes = yield from scan.sizes(scripts, [row[0] for row in self._rows])

    def _next(self) -> list[Row]:
        """Take the next rows: a few if their envelopes must be read."""
        if not self._choice.is_of_envelopes:
            rows, self._rows = self._rows, []
            return rows
        count = size = 0
        for message_id, _ in self._rows:
            size += self._sizes[message_id]
            if count and size > STEP_BYTES:
                break
            count += 1
        rows, self._rows = self._rows[:count], self._rows[count:]
        return rows


class BackwardSearch:
    """A search from the highest score to the lowest, which does not meet a message again that is moved to a later time.

    Its attributes are those of `Search`.
    """

    def __init__(self, state: State, choice: Choice) -> None:
        check_state(state)
        self._state: State = state
        self._choice = choice
        self._at: Place | None = None  # of the last message looked at
        self._size = LARGE_PAGE if choice.is_of_envelopes else MAX_MOVED
        self.shard = 0
        self.looked_at = 0
        self.done = False

    def step(self, context: QueueContext) -> Operation[list[Row]]:
        """Look at a page, and return the selected rows."""
        shards = yield from context.opened()
        scripts = shards[self.shard]
        since, until = self._choice.span
        end = self._at if self._at is not None or until == math.inf else (until, LAST)
        _, _, rows = yield from rows_in_front(scripts, self._state, end, self._size)
        rows = [row for row in rows if float(row[1]) >= since]
        self.looked_at += len(rows)
        if rows:
            self._at = place(rows[0])
        else:
            self.shard, self._at = self.shard + 1, None
            self.done = self.shard >= len(shards)
        placed = [row[0] for row in rows if self._choice.has_place(row)]
        meant = set((yield from chosen(scripts, self._choice, placed)))
        return [row for row in rows if row[0] in meant]


def find(
    context: QueueContext,
    state: State,
    choice: Choice,
    after: str | None = None,
    *,
    seconds: float,
    most: float = math.inf,
    shown: int | None = None,
    largest: int | None = None,
) -> Operation[Found]:
    """Search for some time, at least one step, or until about `most` messages are found; 0 searches for none.

    Args:
        shown: how many of them to describe, the first ones; None for all.
        largest: bytes; larger envelopes are not read, and their messages seem to have none.
    """
    search, until, rows = Search(state, choice, after), time.monotonic() + seconds, list[Row]()
    while not search.done and len(rows) < most:
        rows += yield from search.step(context)
        if time.monotonic() >= until:
            break
    found = yield from _found(context, state, rows, search.looked_at, shown, largest)
    return msgspec.structs.replace(found, cursor=None if search.done else search.cursor or "")


def find_ids(
    context: QueueContext, state: State, ids: Sequence[str], shown: int | None = None, largest: int | None = None
) -> Operation[Found]:
    """Find those of these messages that are in a state; `shown` and `largest` are those of `find`."""
    yield from context.opened()
    keys = [context.shard(each).keys.state(state) for each in ids]
    calls = [Command(key, ("ZSCORE", key, encode_id(each)), identity) for key, each in zip(keys, ids, strict=True)]
    scores = map(unwrap, (yield calls))
    rows = [(each, score) for each, score in zip(ids, scores, strict=True) if score is not None]
    rows.sort(key=lambda row: float(row[1]))
    return (yield from _found(context, state, rows, len(ids), shown, largest))


def _found(
    context: QueueContext, state: State, rows: list[Row], looked_at: int, shown: int | None, largest: int | None
) -> Operation[Found]:
    messages, sizes = yield from described(context, state, rows[:shown], largest)
    times = [float(score) for _, score in rows]
    return Found(
        messages=messages,
        sizes=sizes,
        matched=len(rows),
        looked_at=looked_at,
        total=(yield from count(context, [state])),
        first_at=from_ms(min(times)) if times else None,
        last_at=from_ms(max(times)) if times else None,
    )


def count(context: QueueContext, states: Sequence[State]) -> Operation[int]:
    """Return how many messages these states hold."""
    shards = yield from context.opened()
    keys = [scripts.keys.state(state) for scripts in shards for state in states]
    return sum(map(unwrap, (yield [Command(key, ("ZCARD", key), int) for key in keys])))


def _read(after: str) -> tuple[int, Place]:
    number, _, rest = after.partition(" ")
    if not number.isdecimal():
        raise InvalidInput(f"{after!r} is not the cursor of a search: give `cursor` unchanged")
    return int(number), read_cursor(rest)


def chosen(scripts: QueueCommands, choice: Choice, ids: Sequence[str]) -> Operation[list[str]]:
    """Return those of `ids`, all in one shard, that are selected."""
    if not ids or choice.is_of_all:
        return list(ids)
    errors: list[Any] = [None] * len(ids)
    reasons: list[Any] = [None] * len(ids)
    stored: dict[str, bytes] = {}
    words, keys = list(map(encode_id, ids)), scripts.keys
    if choice.error is not None or choice.bare:
        errors = yield from execute(Command(keys.errors, ("HMGET", keys.errors, *words), list))
    if choice.reason is not None:
        reasons = yield from execute(Command(keys.reasons, ("HMGET", keys.reasons, *words), list))
    if choice.is_of_envelopes:
        left = dict.fromkeys(ids)
        while left:
            stored |= yield from scan.envelopes(scripts, left)
    return [
        message_id
        for message_id, error, reason in zip(ids, errors, reasons, strict=True)
        if choice.means(decode_text(error), decode_text(reason), stored.get(message_id))
    ]
