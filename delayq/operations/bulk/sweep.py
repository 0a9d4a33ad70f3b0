"""Apply one action to every selected message of a state, in steps."""

from __future__ import annotations

from collections import Counter

import msgspec

from delayq.model.choice import Choice
from delayq.model.placement import State, check_state
from delayq.operations.bulk.actions import Act, Due
from delayq.operations.bulk.search import BackwardSearch, Search, count
from delayq.operations.queue_context import QueueContext
from delayq.operations.walk import BEGINNING, place
from delayq.protocol.operation import Operation, unwrap


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """The progress or the result of a sweep.

    Attributes:
        total: how many messages the state held at the start.
        looked_at: how many were compared with the filters.
        matched: how many of these are selected.
        outcomes: how many messages have each result word of the action; empty in a dry run.
    """

    total: int = 0
    looked_at: int = 0
    matched: int = 0
    outcomes: dict[str, int] = {}


class Sweep:
    """A sweep in steps, so that the caller can show progress and stop.

        while not sweep.done:
            progress = queue.execute(sweep.step)

    It stores no state: if it stops, the messages that it has not reached stay unchanged. It does not touch messages
    that come after all those that were there at the start.

    Args:
        act: the action; None for a dry run, which counts the selected messages.
        due: the due time, ms, that the action sets, or a function that returns it; messages that have it are left out.
        backwards: whether to start with the last ones, so that messages moved to a later time are not met again.

    Attributes:
        done: whether there is nothing left to do.
        progress: how far it is.
    """

    def __init__(
        self, state: State, choice: Choice, act: Act | None, due: int | Due | None = None, backwards: bool = False
    ) -> None:
        check_state(state)
        self._state: State = state
        self._choice = choice
        self._act = act
        self._due = due
        self._backwards = backwards
        self._search: Search | BackwardSearch | None = None
        self.progress = Swept()
        self.done = False

    def step(self, context: QueueContext) -> Operation[Swept]:
        """Do one step, over a page or less, and return the progress."""
        if self._search is None:
            self._search = yield from self._begun(context)
        shards, shard = context.shards, self._search.shard
        rows = yield from self._search.step(context)
        ids = [message_id for message_id, score in rows if not self._has_its_time(message_id, float(score))]
        outcomes = Counter(self.progress.outcomes)
        if self._act is not None and ids:
            outcomes.update((yield from self._act(shards[shard], ids)))
        self.progress = msgspec.structs.replace(
            self.progress,
            looked_at=self._search.looked_at,
            matched=self.progress.matched + len(ids),
            outcomes=dict(outcomes),
        )
        self.done = self._search.done
        return self.progress

    def _has_its_time(self, message_id: str, at: float) -> bool:
        return at == (self._due(message_id, at) if callable(self._due) else self._due)

    def _begun(self, context: QueueContext) -> Operation[Search | BackwardSearch]:
        shards = yield from context.opened()
        lasts = yield [scripts.last(self._state) for scripts in shards]
        up_to = [place(rows[0]) if rows else BEGINNING for rows in map(unwrap, lasts)]
        self.progress = Swept(total=(yield from count(context, [self._state])))
        if self._backwards:
            return BackwardSearch(self._state, self._choice)
        return Search(self._state, self._choice, up_to=up_to)
