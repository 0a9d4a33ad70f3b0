"""Shares the handlers of one consumer fairly among its queues."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from delayq.model.delivery import Delivery
from delayq.protocol.queue_commands import MAX_IDS
from delayq.runtime import prefetch
from delayq.runtime.fair_share import WeightedFairScheduler

UNLIMITED = 10**12

D = TypeVar("D", bound=Delivery)


class Share(Protocol):
    """One queue's share of a consumer's handlers.

    Attributes:
        is_burst: the consumer stops when nothing is due.
        is_alone: the queue's engine decides when that is; with several queues, their dispatcher does.
    """

    @property
    def is_burst(self) -> bool: ...
    @property
    def is_alone(self) -> bool: ...
    def answered(self, claimed: int, handled: int, settled: bool, failed: bool = False, keyless: int = 0) -> None: ...
    def rests(self) -> None: ...


class WholeShare:
    """All handlers: the share of a single queue."""

    is_alone = True

    def __init__(self, is_burst: bool) -> None:
        self.is_burst = is_burst

    def answered(self, claimed: int, handled: int, settled: bool, failed: bool = False, keyless: int = 0) -> None:
        """Do nothing: no other queue shares the handlers."""

    def rests(self) -> None:
        """Do nothing, for the same reason."""


class FairDispatcher:
    """Limits how many handlers run at a time, and decides which queue's message is next.

    Claimed messages wait here for a permit. A returned permit goes to the lane that the scheduler chooses among those
    with waiting messages.

    Args:
        concurrency: the number of permits.
        weights: of the lanes, in the order of the queues.
        strict: that order is their priority.
        burst: the run ends when no lane has anything to do.
        most: the run ends after this many messages; None for no limit.
        end: called when the run ends, perhaps more than once, on any thread; it must not wait.
    """

    def __init__(
        self,
        concurrency: int,
        weights: Sequence[int],
        strict: bool,
        burst: bool,
        most: int | None,
        end: Callable[[], object],
    ) -> None:
        self.lanes: list[QueueLane[Any]] = [QueueLane(self, number, weight) for number, weight in enumerate(weights)]
        self.lock = threading.RLock()  # handlers end on their threads
        self.is_closed = False  # nothing starts any more; may be set by a signal handler
        self._concurrency = concurrency
        self._scheduler = WeightedFairScheduler(weights, strict)
        self._strict = strict
        self.burst = burst
        self._most = most
        self._end = end
        self._started = self._handled = 0
        self.changes = 0  # messages that came, ended or were settled: each may have sent others

    def room(self, lane: QueueLane[Any]) -> tuple[int, int]:
        """Return how many messages a lane should claim, and how many of them get permits at once.

        A lane has all permits while it is alone. If several are backlogged, each has its share, and at least one
        message ahead, since the next permit may be its own. With strict priority, a lane behind a backlogged one has
        none.
        """
        rivals = [each for each in self.lanes if each is not lane and (each.is_backlogged or self._counts_on(each))]
        if self._strict and any(each.number < lane.number for each in rivals):
            return 0, 0
        free = self._concurrency - sum(each.running for each in self.lanes) - sum(map(self._counts_on, rivals))
        own = everybody = 1
        if rivals and not self._strict:
            own, everybody = lane.weight, lane.weight + sum(each.weight for each in rivals)
            free = min(free, -(-self._concurrency * own // everybody) - lane.running)
        ahead = prefetch.ahead(self._concurrency, lane.seconds) * own // everybody
        ahead = max(ahead, 1 if rivals else 0)
        free, waiting = max(0, free), len(lane.waiting)
        if not free and waiting > ahead // 2:  # as with one queue: claims stay large
            return 0, 0
        most = max(1, MAX_IDS * own // everybody)  # if claims are the bottleneck, they are shared too
        room = max(0, min(free + ahead - waiting, most, self._left() - waiting))
        return room, min(free, room)

    def _counts_on(self, lane: QueueLane[Any]) -> int:
        """Return how many permits are kept for a claim under way; none with strict priority, as it may take long."""
        return 0 if self._strict else lane.asked

    def grant(self) -> None:
        """Start the messages that may start, and wake lanes that have room now; the caller holds the lock."""
        running = sum(lane.running for lane in self.lanes)
        while running < self._concurrency and self._left() and not self.is_closed:
            ready = [lane.number for lane in self.lanes if lane.waiting]
            if not ready:
                break
            absent = [lane.number for lane in self.lanes if lane.is_full and not lane.waiting]
            lane = self.lanes[self._scheduler.next(ready, absent)]
            self._started += 1
            running += 1
            lane.begin()
        if self._strict:
            self._give_way()
        for lane in self.lanes:
            if lane.is_refused and self.room(lane)[0]:
                lane.is_refused = False
                lane.wake()

    def changed(self, handled: int = 0, unstarted: int = 0) -> None:
        """Count messages that came, were settled or handed back; the caller holds the lock.

        Args:
            handled: how many were settled.
            unstarted: how many had a permit that they did not use.
        """
        self.changes += 1
        self._handled += handled
        self._started -= unstarted
        if self._most is not None and self._handled >= self._most:
            self._end()

    def rests(self, lane: QueueLane[Any]) -> None:
        """Note that a lane found nothing; a burst ends when no lane has, and nothing has changed meanwhile."""
        lane.found_nothing = lane.looked
        again = [each for each in self.lanes if self.burst and each.found_nothing != self.changes]
        if self.burst and not again:
            self._end()
        for each in again:
            if not each.held:  # it sleeps, and messages that others sent may not have woken it yet
                each.wake()

    def _left(self) -> int:
        return UNLIMITED if self._most is None else max(0, self._most - self._started)

    def _give_way(self) -> None:
        """Hand back messages that wait behind a backlog: another consumer may be free for them."""
        for number, lane in enumerate(self.lanes):
            if lane.waiting and lane.is_full:
                for behind in self.lanes[number + 1 :]:
                    behind.hand_back()
                return


class QueueLane(Generic[D]):
    """One queue's way through the dispatcher.

    Attributes:
        waiting: messages that were claimed and have no permit yet.
        running: messages that have one.
        asked: permits that a claim under way counts on.
        is_full: the last claim filled all its room, so there may be more messages.
        is_refused: it had no room when it asked.
        handed_back: messages to hand back unstarted.
        start: starts a message; called on any thread, and must not wait.
        wake: lets the lane's loop look for messages and outcomes; also called on any thread.
    """

    def __init__(self, dispatcher: FairDispatcher, number: int, weight: int) -> None:
        self.number = number
        self.weight = weight
        self.waiting: deque[D] = deque()
        self.running = self.asked = 0
        self.is_full = True  # until the first claim
        self.is_refused = False
        self.seconds: float | None = None
        self.looked, self.found_nothing = 0, -1
        self._dispatcher = dispatcher
        self._room = 0
        self.handed_back: list[D] = []
        self.start: Callable[[D], object] = lambda _: None
        self.wake: Callable[[], object] = lambda: None

    is_alone = False

    @property
    def is_burst(self) -> bool:
        return self._dispatcher.burst

    @property
    def is_backlogged(self) -> bool:
        return self.is_full or bool(self.waiting)

    @property
    def held(self) -> int:
        return self.running + len(self.waiting) + len(self.handed_back)

    def room(self, seconds: float | None) -> int:
        """Return how many messages to claim; see `FairDispatcher.room`.

        Args:
            seconds: how long a handler takes; None if unknown.
        """
        with self._dispatcher.lock:
            self.seconds = seconds
            self.looked = self._dispatcher.changes
            self._room, self.asked = self._dispatcher.room(self)
            self.is_refused = not self._room
            return self._room

    def answered(self, claimed: int, handled: int, settled: bool, failed: bool = False, keyless: int = 0) -> None:
        """Note the results of an exchange.

        Args:
            claimed: messages; 0 also if there was no claim.
            handled: messages that have ended, well or not.
            settled: there were outcomes.
            keyless: messages among `handled` that never had a permit, though `most` counts them.
        """
        with self._dispatcher.lock:
            self.asked = 0
            if self._room or failed:  # a lane without room has learned nothing
                self.is_full = self._room <= claimed and not failed
            if settled or keyless:
                self._dispatcher.changed(handled, unstarted=-keyless)
            self._dispatcher.grant()

    def bring(self, messages: list[D]) -> None:
        """Let messages wait for their permits, in order."""
        with self._dispatcher.lock:
            self.asked = 0
            self.waiting.extend(messages)
            self._dispatcher.changed()
            self._dispatcher.grant()

    def begin(self) -> None:
        """Start the next message; the caller holds the lock."""
        self.running += 1
        self.start(self.waiting.popleft())

    def ending(self, on_outcome: Callable[[], None]) -> Callable[[], None]:
        """Return the function to call after each outcome: it first gives the permit back."""

        def end() -> None:
            self.ended()
            on_outcome()

        return end

    def ended(self) -> None:
        """Give a permit back."""
        with self._dispatcher.lock:
            self.running -= 1
            self._dispatcher.changed()
            self._dispatcher.grant()

    def hand_back(self) -> None:
        """Hand back the waiting messages; the caller holds the lock."""
        if self.waiting:
            self.handed_back += self.waiting
            self.waiting.clear()
            self.wake()

    def returned(self, unstarted: int) -> list[D]:
        """Fetch the messages to hand back, and report how many others had a permit but were not started."""
        with self._dispatcher.lock:
            if unstarted:
                self._dispatcher.changed(unstarted=unstarted)
                self._dispatcher.grant()
            returned, self.handed_back = self.handed_back, []
            return returned

    def withdraw(self) -> list[D]:
        """Take back all waiting messages; those brought from now on never start."""
        with self._dispatcher.lock:
            taken = [*self.waiting, *self.handed_back]
            self.waiting.clear()
            self.handed_back.clear()
            return taken

    def rests(self) -> None:
        """Note that there is nothing to do; see `FairDispatcher.rests`."""
        with self._dispatcher.lock:
            self._dispatcher.rests(self)
