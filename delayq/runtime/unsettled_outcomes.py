"""The outcomes of a run that are not settled: which of them the next exchange settles, and which have to wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

from delayq.errors import DelayqError, LoginRefused
from delayq.model import outcome as oc
from delayq.runtime.refused_outcomes import Pairs, RefusedOutcomes, is_refusal
from delayq.runtime.shard_backlog import ShardBacklog

D = TypeVar("D")


class UnsettledOutcomes(Generic[D]):
    """The outcomes that the server has not accepted yet.

    An outcome is ready for the next exchange, or large and so settled in a round trip of its own. One that could not be
    settled is ready again at once; but it waits if only its shard is unavailable, or if it alone was refused.

    Args:
        shard_of: returns the shard of a message or record.
        is_large: whether an outcome may break the connection.
        is_burst: a missing right ends the run: nobody may be there to grant it.
        labels: fields of the log lines: the queue or topic.

    Attributes:
        ready: for the next exchange.
        large: each for a round trip of its own.
        refused: those that were refused, and wait for their next try.
    """

    def __init__(
        self,
        shard_of: Callable[[D], Hashable],
        is_large: Callable[[D, oc.AckAndSend], bool],
        is_burst: bool,
        **labels: Any,
    ) -> None:
        self.ready: Pairs[D] = []
        self.large: Pairs[D] = []
        self.refused: RefusedOutcomes[D] = RefusedOutcomes(**labels)
        self._backlog: ShardBacklog[D] = ShardBacklog(shard_of)
        self._is_large = is_large
        self._is_burst = is_burst
        self._is_ending = False
        self._trouble: DelayqError | None = None

    def __len__(self) -> int:
        known = len(self.ready) + len(self.large) + len(self.refused.waiting)
        return known + len(self._backlog) if self._backlog.shards else known

    @property
    def are_due(self) -> bool:
        """Whether some can be settled now, apart from those that wait."""
        return bool(self.ready or self.large)

    def add(self, outcomes: Iterable[tuple[D, oc.Outcome]]) -> None:
        """Let the next exchange settle outcomes."""
        for pair in outcomes:
            is_large = isinstance(pair[1], oc.AckAndSend) and self._is_large(pair[0], pair[1])
            (self.large if is_large else self.ready).append(pair)

    def wake(self) -> None:
        """Let the next exchange settle the outcomes whose shard may be available again."""
        if self._backlog.shards:
            self.add(self._backlog.due())

    def again(self) -> Pairs[D]:
        """Return the refused outcomes to try again in this exchange, none in a call with another."""
        if not self.refused.waiting:
            return []
        together, alone = self.refused.due()
        self.large += alone
        return together

    def exchanged(self) -> None:
        """Note that the exchange of all that were ready has ended; those that it has not settled are kept next."""
        self.ready = []
        self._trouble = None  # left by an exchange whose own error was raised instead

    def keep(self, subject: D, outcome: oc.Outcome, error: DelayqError, is_away: bool, is_alone: bool = False) -> bool:
        """Keep an outcome that could not be settled.

        Args:
            is_away: only its shard is unavailable.
            is_alone: it was settled in a round trip of its own.

        Returns:
            False if it is given up: the delivery is left to the end of its lease.
        """
        again = oc.after(outcome, error)
        is_same = again is outcome
        if is_same and not is_away and not self._is_ending and (is_alone or is_refusal(error)):
            return self._refuse(subject, outcome, error, is_alone)
        self.refused.waiting.pop(id(subject), None)
        if is_away and not self._is_ending:
            self._backlog.add(subject, again)
        elif is_same and is_alone and self._is_ending:
            self.ready.append((subject, oc.INTERRUPTED))
        else:
            self.ready.append((subject, again))
            if is_same:
                self._trouble = error
        return True

    def _refuse(self, subject: D, outcome: oc.Outcome, error: DelayqError, is_alone: bool) -> bool:
        """Let a refused outcome wait for its next try, or fail; return False if it is given up."""
        if self._is_burst and isinstance(error, LoginRefused):
            self._trouble = error
        instead = self.refused.add(subject, outcome, error, is_alone)
        if isinstance(instead, oc.Failed):
            self.ready.append((subject, instead))
        return instead is None or isinstance(instead, oc.Failed)

    def raise_trouble(self) -> None:
        """Raise the error that kept outcomes from being settled, once the rest of the turn is done."""
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    def left(self) -> float:
        """Return the seconds until a waiting one is due; infinite if none waits."""
        return (
            min(self.refused.left(), self._backlog.left()) if self.refused.waiting or self._backlog.shards else math.inf
        )

    def ids(self) -> frozenset[int]:
        """Return all messages or records, by their `id()`."""
        known = (*self.ready, *self.large, *self._backlog.waiting())
        return frozenset([*(id(subject) for subject, _ in known), *self.refused.waiting])

    def end(self) -> None:
        """End all waits: the run ends."""
        self._is_ending = True
        small, large = self.refused.clear()
        self.ready += [*small, *self._backlog.all()]
        self.large = list({id(subject): (subject, outcome) for subject, outcome in (*self.large, *large)}.values())

    def interrupt(self, running: Iterable[D]) -> None:
        """Hand back what still runs, and what is done but would send messages, which nobody may be there to retry."""
        self.ready = [(m, oc.INTERRUPTED if isinstance(o, oc.AckAndSend) else o) for m, o in self.ready]
        self.ready += [(subject, oc.INTERRUPTED) for subject in running]
