"""Outcomes that the server has refused: each is tried again by itself, and fails in the end, without its neighbours."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from delayq.errors import DelayqError, ServerNotReady, ServerUnreachable, UnknownGroup
from delayq.log import log
from delayq.model import outcome as oc
from delayq.model.interval import Interval

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds
GIVE_UP_SECONDS = 30.0
MOST_LOST = 3  # tries of an outcome that breaks its connection
MOST = 1000  # outcomes that wait; with more, those with messages to send fail at once, or nothing new is taken
AT_ONCE = 20  # outcomes that are tried again beside one exchange
TELL_SECONDS = 60.0

D = TypeVar("D")
Pairs: TypeAlias = list[tuple[D, oc.Outcome]]


def is_refusal(error: DelayqError) -> bool:
    """Whether the server has refused this one outcome, rather than being away, not ready or without the group."""
    return not isinstance(error, ServerUnreachable | ServerNotReady | UnknownGroup)


@dataclass(eq=False, slots=True)
class Refused(Generic[D]):
    """A refused outcome.

    Attributes:
        since: when it was first refused, on the monotonic clock.
        due: when to try again.
        is_alone: it is tried in a round trip of its own, because it may break the connection.
    """

    subject: D
    outcome: oc.Outcome
    since: float
    due: float
    is_alone: bool
    tries: int = 0


class RefusedOutcomes(Generic[D]):
    """Says when to try refused outcomes again, and what becomes of those that are refused too often.

    An outcome with messages to send fails after half a minute, so its handler runs again after the backoff, or the
    message dies with the server's error. Any other fails only if the server accepts those of other messages: otherwise
    the refusal is not about this message, and what was done must not be done again.

    Args:
        labels: fields of the log lines: the queue or topic.

    Attributes:
        waiting: those to try again, by the `id()` of their message or record.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, **labels: str) -> None:
        self._clock = clock
        self._labels = labels
        self.waiting: dict[int, Refused[D]] = {}
        self._tell = Interval(TELL_SECONDS, clock)
        self._is_logged = False
        self._accepted_at = -1.0

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def is_full(self) -> bool:
        return len(self.waiting) >= MOST

    def accepted(self, subject: D) -> None:
        """Note that the server has accepted an outcome; only needed while others wait."""
        self._accepted_at = self._clock()
        if self.waiting.pop(id(subject), None) is not None and self._is_logged and not self.waiting:
            self._is_logged = False
            log.info("redis accepts again", **self._labels)

    def add(self, subject: D, outcome: oc.Outcome, error: DelayqError, is_alone: bool = False) -> oc.Outcome | None:
        """Note that an outcome was refused, perhaps again.

        Returns:
            None while it waits; else the failure to settle in its place, or `RELEASED` if even that was refused, so
            that the delivery is left to the end of its lease.
        """
        now = self._clock()
        each = self.waiting.get(id(subject))
        if each is None or each.outcome is not outcome:
            each = self.waiting[id(subject)] = Refused(subject, outcome, now, now, is_alone)
        each.due = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2**each.tries)
        each.tries += 1
        if self._tell.due():
            self._is_logged = True
            log.error("redis refused, retrying", **self._labels, error=str(error))
        if not self._is_over(each, now):
            return None
        del self.waiting[id(subject)]
        if isinstance(outcome, oc.AckAndSend | oc.Done | oc.Dead):
            return oc.Failed(error=oc.error_text(error))
        return oc.RELEASED

    def due(self) -> tuple[Pairs[D], Pairs[D]]:
        """Return some outcomes to try again now: those to settle beside others, and those to settle alone."""
        if not self.waiting:
            return [], []
        now = self._clock()
        found = sorted((each for each in self.waiting.values() if each.due <= now), key=lambda each: each.due)[:AT_ONCE]
        for each in found:
            each.due = math.inf  # until it is refused again
        return _parted(found)

    def left(self) -> float:
        """Return the seconds until one is due; infinity if none waits."""
        return max(0.0, min((each.due for each in self.waiting.values()), default=float("inf")) - self._clock())

    def clear(self) -> tuple[Pairs[D], Pairs[D]]:
        """Return all, as `due` does, and forget them."""
        waiting, self.waiting = self.waiting, {}
        return _parted(waiting.values())

    def _is_over(self, each: Refused[D], now: float) -> bool:
        if each.is_alone and each.tries >= MOST_LOST:
            return True
        if isinstance(each.outcome, oc.AckAndSend):
            return len(self.waiting) > MOST or now >= each.since + GIVE_UP_SECONDS
        return now >= each.since + GIVE_UP_SECONDS and self._accepted_at > each.since


def _parted(found: Iterable[Refused[D]]) -> tuple[Pairs[D], Pairs[D]]:
    together: Pairs[D] = []
    alone: Pairs[D] = []
    for each in found:
        (alone if each.is_alone else together).append((each.subject, each.outcome))
    return together, alone
