"""Shares the handlers of one consumer fairly among its queues."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from delayq.model.delivery import Delivery
from delayq.protocol.queue_commands import MAX_IDS
from delayq.runtime import prefetch
from delayq.runtime.fair_share import WeightedFairScheduler, lowest

UNLIMITED = 10**12
MANY_LANES = 8  # with waiting messages; of fewer, each claims ahead of its turn, so that shares are exact

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

    Nothing that happens for each message looks at all lanes: sums are kept up to date, and lanes that had no room wait
    in a queue; each change looks at the first.

    While enough other lanes have waiting messages, a lane that has begun one has no room for the first half of the
    time until its next turn. If the message ends within this time, one round trip settles it and claims the next one.

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
        self.is_closed = False  # nothing starts from then on; may be set by a signal handler
        self._concurrency = concurrency
        self._scheduler = WeightedFairScheduler(weights, strict)
        self._strict = strict
        self.burst = burst
        self._most = most
        self._end = end
        self._started = self._handled = 0
        self._running = self._asked = self._contending = 0  # permits in use, permits promised, and weights of rivals
        self._refused = 0  # lanes that wait for room, as a set of bits
        self._after_woken = 0  # where the next look at them begins
        self._turns = 0  # permits given so far
        self._patient: list[tuple[int, int]] = []  # a heap: until which turn lanes have no room, and their numbers
        self._resting = 0  # lanes that have found nothing since the last change
        self._called = -1  # the change after which all others were called to look again
        self.changes = 0  # messages that came, ended or were settled: each may have sent others
        for lane in self.lanes:
            self.count(lane)

    def room(self, lane: QueueLane[Any]) -> tuple[int, int]:
        """Return how many messages a lane should claim, and how many of them get permits at once.

        A lane has all permits while it is alone. If several are backlogged, each has its share, and at least one
        message ahead, since the next permit may be its own. With strict priority, a lane behind a backlogged one has
        none.
        """
        counted = lane.counted
        rivals = self._contending - counted.contending  # their weight
        if self._strict and self._backlogged & ((1 << lane.number) - 1):
            return 0, 0
        if self._turns < lane.patient_until and lane.running and not lane.waiting:
            return 0, 0
        free = self._concurrency - self._running - (self._asked - counted.asked)
        own = everybody = 1
        if rivals and not self._strict:
            own, everybody = lane.weight, lane.weight + rivals
            free = min(free, -(-self._concurrency * own // everybody) - lane.running)
        ahead = prefetch.ahead(self._concurrency, lane.seconds) * own // everybody
        ahead = max(ahead, 1 if rivals else 0)
        free, waiting = max(0, free), len(lane.waiting)
        if not free and waiting > ahead // 2:  # as with one queue: claims stay large
            return 0, 0
        most = max(1, MAX_IDS * own // everybody)  # if claims are the bottleneck, they are shared too
        room = max(0, min(free + ahead - waiting, most, self._left() - waiting))
        return room, min(free, room)

    def count(self, lane: QueueLane[Any]) -> None:
        """Bring the sums up to date with a lane that has changed; the caller holds the lock."""
        before = lane.counted
        asked = 0 if self._strict else lane.asked  # with strict priority, a claim may take long
        lane.counted = now = Counted(lane.running, asked, lane.weight if lane.is_backlogged or asked else 0)
        self._running += now.running - before.running
        self._asked += now.asked - before.asked
        self._contending += now.contending - before.contending
        self._scheduler.note(lane.number, bool(lane.waiting), lane.is_full)

    def refuse(self, lane: QueueLane[Any], is_refused: bool) -> None:
        """Note whether a lane must be woken when it has room; the caller holds the lock.

        One with waiting messages too: its share grows when another queue has nothing left.
        """
        lane.is_refused = is_refused
        bit = 1 << lane.number
        self._refused = self._refused | bit if is_refused else self._refused & ~bit

    def grant(self) -> None:
        """Start the messages that may start, and wake lanes that have room now; the caller holds the lock."""
        begun = set()
        while self._running < self._concurrency and self._scheduler.ready and self._left() and not self.is_closed:
            lane = self.lanes[self._scheduler.next()]
            self._started += 1
            self._turns += 1
            lane.begin()
            begun.add(lane)
        if self._strict:
            self._give_way()
        elif begun:
            self._be_patient(begun)
        for lane in begun:
            if lane.is_refused and not self._woken(lane):
                self.refuse(lane, True)
        self._wake_refused()

    def _be_patient(self, begun: set[QueueLane[Any]]) -> None:
        """Let lanes that have begun a message wait with the next claim, and end the waits that took long enough."""
        patient = self._patient
        if self._scheduler.ready.bit_count() < max(MANY_LANES, self._concurrency):  # permits would soon be left over
            ending, self._patient = patient, []
        else:
            ending = []
            for lane in begun:
                turns = self._contending // (2 * lane.weight)
                if turns > self._concurrency:  # otherwise its message would hardly end in time
                    lane.patient_until = self._turns + turns
                    heapq.heappush(patient, (lane.patient_until, lane.number))
            while patient and patient[0][0] <= self._turns:
                ending.append(heapq.heappop(patient))
        for until, number in ending:
            lane = self.lanes[number]
            if lane.patient_until == until:  # otherwise it has begun another message since
                lane.patient_until = 0
                if lane.is_refused and lane not in begun:
                    self._woken(lane)

    def _wake_refused(self) -> None:
        """Wake the next lanes that have room: by priority, or in turn.

        Two at a time, as each lets others be woken when it has its answer; and since a lane that is the only one with a
        backlog may have less room than all others.
        """
        if self._strict:
            self._after_woken = 0
        for _ in range(min(2, self._refused.bit_count())):
            after = self._after_woken
            number = lowest(self._refused >> after << after or self._refused)
            self._after_woken = number + 1
            self._woken(self.lanes[number])

    def _woken(self, lane: QueueLane[Any]) -> bool:
        """Wake a lane that was refused if it has room now; return whether it has."""
        has_room = self.room(lane)[0] > 0
        if has_room:
            self.refuse(lane, False)
            lane.wake()
        return has_room

    def changed(self, handled: int = 0, unstarted: int = 0) -> None:
        """Count messages that came, were settled or handed back; the caller holds the lock.

        Args:
            handled: how many were settled.
            unstarted: how many had a permit that they did not use.
        """
        self.changes += 1
        self._resting = 0
        self._handled += handled
        self._started -= unstarted
        if self._most is not None and self._handled >= self._most:
            self._end()

    def rests(self, lane: QueueLane[Any]) -> None:
        """Note that a lane found nothing; a burst ends when no lane has, and nothing has changed meanwhile.

        While other lanes hold messages, there will be changes, so it is too early to let all look again.
        """
        if not self.burst:
            return
        if lane.looked == self.changes != lane.found_nothing:
            self._resting += 1
        lane.found_nothing = lane.looked
        if self._resting == len(self.lanes):
            self._end()
        elif self._called != self.changes and not any(each.held for each in self.lanes):
            self._called = self.changes
            for each in self.lanes:
                if each.found_nothing != self.changes:  # messages that others sent may not have woken it yet
                    each.wake()

    def _left(self) -> int:
        return UNLIMITED if self._most is None else max(0, self._most - self._started)

    @property
    def _backlogged(self) -> int:
        return self._scheduler.ready | self._scheduler.expected

    def _give_way(self) -> None:
        """Hand back messages that wait behind a backlog: another consumer may be free for them."""
        backlogs = self._scheduler.ready & self._scheduler.expected
        if backlogs:
            behind = lowest(backlogs) + 1
            while waiting := self._scheduler.ready >> behind:
                self.lanes[behind + lowest(waiting)].hand_back()


class Counted(NamedTuple):
    """A lane's part of the dispatcher's sums.

    Attributes:
        running: permits in use.
        asked: permits that are kept for a claim under way.
        contending: the lane's weight, if it competes for permits; otherwise 0.
    """

    running: int = 0
    asked: int = 0
    contending: int = 0


class QueueLane(Generic[D]):
    """One queue's way through the dispatcher.

    Attributes:
        waiting: messages that were claimed and have no permit yet.
        running: messages that have one.
        asked: permits that a claim under way counts on.
        is_full: the last claim filled all its room, so there may be more messages.
        is_refused: it had no room when it asked.
        counted: what of it is in the dispatcher's sums.
        patient_until: while its message runs, it claims no other before this turn.
        handed_back: messages to hand back unstarted.
        start: starts a message; called on any thread, and must not wait.
        wake: lets the lane's loop look for messages and outcomes; also called on any thread.
        threads: those of all lanes, for handlers that are not async.
    """

    def __init__(self, dispatcher: FairDispatcher, number: int, weight: int) -> None:
        self.number = number
        self.weight = weight
        self.waiting: deque[D] = deque()
        self.running = self.asked = 0
        self.is_full = True  # until the first claim
        self.is_refused = False
        self.counted = Counted()
        self.seconds: float | None = None
        self.patient_until = 0
        self.looked, self.found_nothing = 0, -1
        self._dispatcher = dispatcher
        self._room = 0
        self.handed_back: list[D] = []
        self.start: Callable[[D], object] = lambda _: None
        self.wake: Callable[[], object] = lambda: None
        self.threads: Any = None

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
            self._dispatcher.count(self)
            self._dispatcher.refuse(self, not self._room)
            return self._room

    def answered(self, claimed: int, handled: int, settled: bool, failed: bool = False, keyless: int = 0) -> None:
        """Note the results of an exchange.

        Args:
            claimed: messages; 0 also if there was no claim.
            handled: messages that have ended, well or not.
            settled: there were outcomes.
            keyless: messages among `handled` that never had a permit, though `most` counts them.
        """
        if not (self._room or claimed or settled or failed or keyless):
            return  # it had nothing to report
        with self._dispatcher.lock:
            self.asked = 0
            if self._room or failed:  # a lane without room has learned nothing
                self.is_full = self._room <= claimed and not failed
            self._dispatcher.count(self)
            if failed:
                self._dispatcher.refuse(self, False)  # it will ask again after a pause, and others must not wait for it
            if settled or keyless:
                self._dispatcher.changed(handled, unstarted=-keyless)
            self._dispatcher.grant()

    def bring(self, messages: list[D]) -> None:
        """Let messages wait for their permits, in order."""
        with self._dispatcher.lock:
            self.asked = 0
            self.waiting.extend(messages)
            self._dispatcher.count(self)
            self._dispatcher.changed()
            self._dispatcher.grant()

    def begin(self) -> None:
        """Start the next message; the caller holds the lock."""
        self.running += 1
        message = self.waiting.popleft()
        self._dispatcher.count(self)
        self.start(message)

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
            self._dispatcher.count(self)
            self._dispatcher.changed()
            self._dispatcher.grant()

    def hand_back(self) -> None:
        """Hand back the waiting messages; the caller holds the lock."""
        if self.waiting:
            self.handed_back += self.waiting
            self.waiting.clear()
            self._dispatcher.count(self)
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
            self._dispatcher.count(self)
            return taken

    def rests(self) -> None:
        """Note that there is nothing to do; see `FairDispatcher.rests`."""
        with self._dispatcher.lock:
            self._dispatcher.rests(self)
