"""One run of a consumer, as decisions without I/O: both faces make the moves that it asks for.

Claim, hand to the workers, settle; sleep only when there is nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from delayq import crew, pace
from delayq import outcome as oc
from delayq.calls import expect, nothing, together
from delayq.errors import DelayqError, ServerError, StoreError
from delayq.leases import Leases
from delayq.log import log, log_of
from delayq.message import Delivery
from delayq.moves import CLOSE, HUSH, LISTEN, Crew, Moves, Pause, Rest
from delayq.operations import appearing, arming, claiming, managing, resting, scheduling, settling
from delayq.operations.core import Core
from delayq.patience import Patience
from delayq.quarantine import Quarantine
from delayq.scripts import MAX_IDS, MAX_MOVED
from delayq.times import lease_ms

BUSY_KEEPER_SECONDS = 0.01  # a consumer without room watches the time only for the others
SHUTDOWN = "ShutdownTimeout: the consumer stopped before the handler was done"
INTERRUPTED_SECONDS = 1.0  # that handlers which were interrupted are given to end

D = TypeVar("D", bound=Delivery)


class Turns(Generic[D]):
    """The state of a run.

    Args:
        make: makes a message of a delivery.
        most: return after so many messages, or None.
        burst: return when nothing is due.
    """

    _workers: Crew[D]

    def __init__(
        self,
        core: Core,
        make: Callable[..., D],
        name: str,
        burst: bool = False,
        most: int | None = None,
    ) -> None:
        self.handled = self.failed = 0
        self._keyless = 0  # of these, deliveries whose key could not be told: no worker has seen them
        self._core = core
        self._make_message = make
        self._name = name
        self._burst = burst
        self._most = most
        self._lease = lease_ms(core.settings.lease)
        self._leases: Leases[D] = Leases(core, self._lease)
        self._unsettled: list[tuple[D, oc.Outcome]] = []
        self._unfinished = 0  # with the workers
        self._quarantine: Quarantine[D] = Quarantine(self._lease / 1000)
        self._exhausted = True  # the last claim left nothing that is due
        self._held = False  # but for what a limit of the queue holds back
        self._next_sleep: resting.Sleep | None = None  # when the server was asked
        self._expected: Sequence[str] = ()  # which message the last sleep has ended for, a shard
        self._cannot_recover = False  # the last upkeep was refused
        self._slept_in_peace = False  # nothing has ended the last sleep, and nothing is due as far as was known
        self._patience = Patience(queue=core.name)
        self._stopping = self._at_once = False
        self._is_cut_off = False  # the server did not answer at the end
        self._deadline = 0.0  # of running handlers, in the end
        self._trouble: DelayqError | None = None
        self._upkeep = pace.Every(pace.FALLBACK_MS / 1000)
        self._cleaning = pace.Every(60)
        self._began = time.monotonic()
        self._presence = appearing.Presence(core, self._describe, self._times)
        self._unstored: list[scheduling.Prepared] = []  # schedules for which the server had no memory

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    @property
    def _is_burst(self) -> bool:
        return self._burst

    def _consume(self, grace: Callable[[], float]) -> Moves[None]:
        """Turn until stopped.

        Args:
            grace: how many seconds running handlers are given in the end.
        """
        while not self._stopping:
            yield from self._patiently(self._turn())
        self._deadline = time.monotonic() + grace()
        yield from self._finish()
        yield from self._leave()

    def _turn(self) -> Moves[None]:
        self._gather()
        if self._slept_in_peace and (yield from self._sleeps_on()):
            return
        left = None if self._most is None else self._most - self.handled - len(self._unsettled) - self._unfinished
        limit = self._room() if left is None else max(0, min(self._room(), left))
        settled = len(self._unsettled)
        yield from self._look_after()
        claimed = yield from self._exchange(None if settled and not limit else limit)
        self._tell_trouble()
        if self._most is not None and self.handled >= self._most:
            self._stopping = True
        elif self._burst and limit and not (claimed or self._unsettled or self._unfinished or self._held):
            self._stopping = not settled  # nothing is due; but what was settled just now may have sent something
        elif not self._unsettled and self._next_sleep is not None and (self._exhausted or not limit):
            yield from self._sleep(self._next_sleep, has_room=limit > 0)

    def _room(self) -> int:
        room = self._workers.room(self._unfinished, ahead=not self._core.limits_keys)  # a slot is for what runs
        limit = self._quarantine.limit(min(room, MAX_IDS), self._leases.held())
        if room and not limit:
            self._workers.hasten()  # what waits for others, to be handled with them: none are fetched
        return limit

    def _exchange(self, limit: int | None) -> Moves[int]:
        """Settle what is done and claim (unless `limit` is None) in the same round trips; return the number claimed."""
        settled = self._unsettled
        steps: list[Any] = [settling.settle(self._core, settled)]
        upkeep = limit is not None and self._upkeep.due()
        if upkeep:
            steps += [claiming.recover(self._core), managing.find_garbage(self._core)]
        if limit is not None:
            rests = self._exhausted or not limit  # else the next turn comes at once
            steps.append(resting.rest(self._core, self._name, pace.FALLBACK_MS, self._held) if rests else nothing())
            expected, self._expected = self._expected if limit else (), ()
            make, name = self._make_message, self._name
            claim = claiming.claim(self._core, make, limit, self._lease, expected=expected, consumer=name)
            steps.append(self._presence.beside(claim, name))
        outcomes, *replies = yield together(*steps)
        self._unsettled = []
        self._trouble = None  # of an exchange that has raised an error of its own, and was told with it
        self._note(settled, [outcomes] * len(settled) if isinstance(outcomes, DelayqError) else outcomes)
        self._next_sleep = None
        if limit is None:
            return 0
        *kept_up, sleep, batch = replies
        batch = expect(batch)
        self._keyless += batch.failed
        self.handled += batch.failed
        self.failed += batch.failed
        self._exhausted = batch.claimed < max(limit, 1) and not (batch.held and batch.claimed > len(batch.messages))
        yield from self._take(batch.messages)
        self._next_sleep = expect(sleep) if self._held or not batch.held else None  # it was asked without the limit
        self._held = batch.held
        if upkeep:
            recovered, garbage = map(expect, kept_up)
            self._cannot_recover = recovered is None
            more = (yield managing.collect_found(garbage)) if garbage else False
            if more or (recovered or 0) >= MAX_MOVED:
                self._upkeep.now()
                self._exhausted = False
        return int(batch.claimed)

    def _settle(self) -> Moves[None]:
        yield from self._exchange(None)
        self._tell_trouble()

    def _tell_trouble(self) -> None:
        """Raise what kept outcomes from being settled, once everything else of the turn is done."""
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    def _gather(self) -> None:
        if self._workers.is_behind:
            self._workers.adapt()
        for message, outcome in self._workers.outcomes():
            self._unfinished -= 1
            if message.settled:  # the handler has done so itself
                self._note([(message, oc.DONE)], [True])
                if isinstance(outcome, oc.Failed | oc.Dead):
                    log_of(message).warning("handler failed after it had settled its message", error=outcome.error)
            else:
                self._unsettled.append((message, outcome))

    def _take(self, messages: list[D]) -> Moves[None]:
        if not messages:
            return
        admitted, refused = self._quarantine.admit(messages, self._leases.held())
        if any(message.is_suspect for message in admitted):
            log_of(admitted[0]).warning("runs alone: earlier deliveries ended with their consumers")
        self._leases.hold(messages)
        try:
            if refused:  # before one of the others takes this process down; behind what waits, else it is back at once
                self._unsettled += [(message, oc.HandedBack(behind=True)) for message in refused]
                yield from self._exchange(None)
        finally:
            self._submit(admitted)

    def _submit(self, messages: list[D]) -> None:
        self._unfinished += len(messages)
        self._workers.submit(messages)

    def _note(self, settled: list[tuple[D, oc.Outcome]], results: Sequence[bool | DelayqError]) -> None:
        told: BaseException | None = None  # one that all messages of a batch have met is traced once
        for (message, outcome), ours in zip(settled, results, strict=True):
            if isinstance(ours, DelayqError):
                again = oc.after(outcome, ours)
                self._unsettled.append((message, again))  # once more, with the next ones
                if again is outcome:
                    self._trouble = ours
                continue
            self._leases.drop(message)
            if isinstance(outcome, oc.HandedBack):
                continue
            self.handled += 1
            if not ours:
                log_of(message).warning(
                    "outcome refused: the delivery is no longer ours", outcome=type(outcome).__name__
                )
            elif isinstance(outcome, oc.Failed | oc.Dead):
                self.failed += 1
                dead = isinstance(outcome, oc.Dead) or message.is_last
                cause = outcome.cause if isinstance(outcome, oc.Failed) else None
                trace = {"exc_info": cause} if cause is not told and cause is not None else {}
                told = cause
                line = log_of(message)
                line.warning("delivery failed", next="dead" if dead else "retry", error=outcome.error, **trace)

    def _look_after(self) -> Moves[None]:
        """Each duty when it is due: renew leases, purge old dead letters, revive schedules or store them."""
        if self._leases.heartbeat.due():
            yield self._leases.renew()
        if self._cleaning.due():
            yield self._core.opened(create=True)
            for result in (yield together(managing.bury_old(self._core), arming.revive(self._core))):
                expect(result)
            if self._unstored:
                self._unstored = yield scheduling.add_all(self._core, self._unstored)

    def _renew(self) -> Moves[None]:
        yield self._leases.renew()

    # -- sleeping --------------------------------------------------------------------------------------------------

    def _sleep(self, sleep: resting.Sleep, has_room: bool) -> Moves[None]:
        """Wait for the bell, the timer, an outcome, or the next duty."""
        if has_room:
            yield LISTEN
        seconds = sleep.until - time.monotonic()
        if not has_room:
            seconds = max(seconds, BUSY_KEEPER_SECONDS)
        idle = has_room and not self._leases.held()
        if idle:
            seconds = min(seconds, self._cleaning.left())
        else:
            seconds = min(seconds, self._leases.heartbeat.left(), self._upkeep.left() + 0.001)
        for_lease = sleep.for_event and not sleep.for_message
        if for_lease and self._cannot_recover:  # it has ended, and cannot be taken back: not to be tried all the time
            seconds = max(seconds, min(self._upkeep.left(), self._leases.heartbeat.left() if not idle else 1.0))
        woken = yield Rest(seconds, bells=True)
        called = sleep.for_event or woken.disturbed or woken.rang
        waits_for_limit = self._held and self._is_burst  # whether others have taken the rest, a claim alone tells
        self._slept_in_peace = idle and not (called or waits_for_limit)
        if time.monotonic() >= sleep.until:
            self._expected = sleep.expected
            if for_lease and not self._cannot_recover:
                self._upkeep.now()

    def _sleeps_on(self) -> Moves[bool]:
        """Sleep on if there is nothing to do for anybody, which costs much less than to try."""
        self._slept_in_peace = False
        if self._stopping or self._cleaning.left() == 0:
            return False
        watching = resting.watch(self._core, self._name, pace.FALLBACK_MS)
        sleep = yield self._presence.beside(watching, self._name)
        if sleep.until <= time.monotonic():
            self._upkeep.now()
            return False
        yield from self._sleep(sleep, has_room=True)
        return True

    # -- trouble, and the end --------------------------------------------------------------------------------------

    def _patiently(self, step: Moves[None]) -> Moves[None]:
        try:
            yield from step
        except (ServerError, StoreError) as error:
            yield Pause(self._patience.lost(error))
            self._exhausted = True
            yield CLOSE
        else:
            self._patience.served()

    def _finish(self) -> Moves[None]:
        """Hand back what has not started, wait for what runs, give up what does not end in time."""
        if not (self._patience.is_tried or self._at_once):
            yield from self._pass_bell_on()
        unstarted = self._workers.unstarted()
        self._unfinished -= len(unstarted)
        self._unsettled += [(message, oc.HANDED_BACK) for message in unstarted]
        while True:
            self._gather()
            if self._unsettled:
                yield from self._patiently(self._settle())
            late = self._at_once or time.monotonic() >= self._deadline
            if late or not (self._unfinished or self._unsettled):
                break
            if self._leases.heartbeat.due():
                yield from self._patiently(self._renew())
            yield from self._await_outcome()
        if self._workers.interrupt() and not self._at_once:
            end = time.monotonic() + INTERRUPTED_SECONDS
            while self._unfinished and (left := end - time.monotonic()) > 0:
                yield Rest(left)
                self._gather()
        known = {id(message) for message, _ in self._unsettled}
        running = [m for m in self._leases.held() if id(m) not in known and not m.settled]
        if (running or self._unsettled) and not self._at_once:
            self._unsettled += [(message, oc.Failed(error=SHUTDOWN)) for message in running]
            yield from self._patiently(self._settle())
        if self._core.is_limited and not (self._patience.is_tried or self._at_once):
            yield from self._pass_bell_on()  # to whoever may take the places that are free now

    def _await_outcome(self) -> Moves[None]:
        if not self._unsettled:  # else a try was in vain, and was followed by a pause: the next one is due
            yield Rest(min(self._deadline - time.monotonic(), self._leases.heartbeat.left()))

    def _leave(self) -> Moves[None]:
        """Be a consumer no longer, for all to see; a server that is away is not waited for once more."""
        if self._patience.is_tried or self._at_once or self._is_cut_off:
            return
        try:
            yield self._presence.leave(self._name)
        except ServerError:  # it is told gone when it was not seen for half a minute
            log.debug("consumer not struck off", queue=self._core.name)

    def _times(self) -> Sequence[int]:
        return self._workers.times.counts()

    def _describe(self) -> bytes:
        """Return what the consumer tells of itself; what is being settled, it holds no longer."""
        settling = {id(message) for message, _ in self._unsettled}
        held = (each for each in self._leases.held() if id(each) not in settling and not each.settled)
        return crew.describe(self._workers.count, self._began, self.handled, self.failed, held)

    def _pass_bell_on(self) -> Moves[None]:
        try:
            rang = yield HUSH
            if rang or self._next_sleep is not None or self._core.is_limited:
                yield resting.pass_on(self._core, self._name)
        except ServerError:  # the fallback poll of the others makes up for a lost token
            self._is_cut_off = True
            log.debug("bell not passed on", queue=self._core.name)
