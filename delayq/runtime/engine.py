"""The consumer of a queue, as decisions without I/O. Both faces run it: see `driver` and `driver_async`.

The life of a message here, in the order of the methods:

    _turn               run the duties that are due, and find room
    _settle_and_claim   settle outcomes, and claim: `claim` decodes the messages
    _take               hold the leases, and give the messages to the pool, which runs the handler
    _collect_outcomes   fetch their outcomes
    _settle_and_claim   settle, in the round trip that claims the next ones
    _note               drop the leases, and log failures
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from delayq.errors import DelayqError, ServerError
from delayq.log import log, log_failure, log_of
from delayq.model import consumer_info
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.model.interval import FALLBACK_MS
from delayq.model.message_info import MessageInfo
from delayq.operations import garbage, idle, late_claims, presence, schedules, unfetched
from delayq.operations.claim import Batch
from delayq.operations.queue_context import QueueContext
from delayq.operations.settle import is_large, settle, settle_each
from delayq.operations.upkeep import ConsumerUpkeep
from delayq.protocol.late_reply import Silent
from delayq.protocol.operation import gather, once, unwrap
from delayq.runtime import hooks, shutdown
from delayq.runtime.base_engine import BaseEngine
from delayq.runtime.cancellation_watch import CancellationWatch
from delayq.runtime.claimer import Claimer
from delayq.runtime.effects import Effects, StopListening, WaitForWork
from delayq.runtime.fair_dispatch import Share
from delayq.runtime.handler_pool import HandlerPool
from delayq.runtime.lease_keeper import LeaseKeeper
from delayq.runtime.refused_outcomes import Pairs
from delayq.runtime.time_limit import TimeLimit
from delayq.runtime.unsettled_outcomes import UnsettledOutcomes
from delayq.transport.bell_source import BellSource

BUSY_KEEPER_SECONDS = 0.01  # a consumer without room watches the time only on behalf of others
EARLY_SECONDS = 0.5  # how early one queue of several does what is due every second, in an exchange that it makes anyway

D = TypeVar("D", bound=Delivery)


NO_WATCH = idle.SleepPlan(0, False, ())


class Known(NamedTuple):
    """What a consumer knows of its queue since its last exchange.

    Attributes:
        has_all: nothing more is due, except what a limit of the queue holds back.
        limit_holds: a limit holds back messages.
        is_blocked: messages wait for room within a limit, or for the end of a pause.
        sleep: how long to sleep; None if the server was not asked.
        recovers: leases that have ended can be taken back.
        is_doubtful: the last step failed, perhaps for longer than a lease: renew all leases first.
        rests: until the end of `sleep`, nothing is due that the bell does not announce: acks need no claim beside them.
        watch: until when the server need not be asked while there is no room.
    """

    has_all: bool = True
    limit_holds: bool = False
    is_blocked: bool = False
    sleep: idle.SleepPlan | None = None
    recovers: bool = True
    is_doubtful: bool = False
    rests: bool = False
    watch: idle.SleepPlan = NO_WATCH


class Slept(NamedTuple):
    """What a consumer knows after a sleep, until the next turn.

    Attributes:
        undisturbed: nothing ended it early, and nothing was known to be due.
        expected: per shard, the message that it has ended for.
    """

    undisturbed: bool = False
    expected: Sequence[str] = ()


class ConsumerEngine(BaseEngine[D]):
    """One run of a consumer on one queue.

    Args:
        make_message: turns a delivery into a message.
        leases: of the messages that it is handed.
        pool: runs the handlers.
        name: of the consumer.
        share: of the handlers, if it serves other queues too; it says whether this is a burst.
        most: return after this many messages; None for no limit.
        declared: schedules that have functions here.
        deaths: functions that are called with each message that becomes a dead letter here.
        time_limit: of the handlers, which its reports say; None for none.
        tasks: the names of the queue's tasks; None for any that are found.
    """

    _context: QueueContext
    _leases: LeaseKeeper[D]

    def __init__(
        self,
        context: QueueContext,
        make_message: Callable[..., D],
        leases: LeaseKeeper[D],
        pool: HandlerPool[D],
        name: str,
        share: Share,
        most: int | None,
        declared: Iterable[schedules.Prepared],
        deaths: Sequence[Callable[[MessageInfo], object]] = (),
        time_limit: TimeLimit | None = None,
        tasks: Collection[str] | None = (),
    ) -> None:
        unsettled: UnsettledOutcomes[D] = UnsettledOutcomes(
            lambda message: context.shard(message.id), partial(is_large, context), share.is_burst, queue=context.name
        )
        super().__init__(context, leases, pool, unsettled, most, queue=context.name)
        self._share = share
        self._claimer = Claimer(context, name, make_message, leases, share.is_alone)
        self._known = Known()
        self._slept = Slept()
        self._upkeep = ConsumerUpkeep(context, declared)
        self._deaths = hooks.Deaths(deaths)
        self._cancellations = CancellationWatch(context, leases, pool.cancel)
        describe = partial(self._describe, time.monotonic(), time_limit or TimeLimit(None))
        self._presence = presence.Presence(context, name, describe, pool.times.counts, tasks)

    @property
    def is_burst(self) -> bool:
        """Whether it stops when nothing is due."""
        return self._share.is_burst

    def connect(self) -> Effects[None]:
        """Check that the queue can be served.

        Raises:
            ServerError, QueueMismatch
        """
        yield from self._upkeep.begin()

    # -- the life of a message -------------------------------------------------------------------------------------

    def _turn(self) -> Effects[None]:
        self._collect_outcomes()
        if self._known.is_doubtful:
            yield from self._renew_all()
        if self._slept.undisturbed and (yield from self._sleeps_on()):
            return
        limit, unsettled = self._room(), self._unsettled
        if not limit and self._may_wait():
            self._share.answered(0, 0, settled=False)
            yield from self._sleep(self._known.watch, has_room=False)
            return
        if self._upkeep.is_due and (yield from self._upkeep.clean_up()):
            self._known = self._known._replace(has_all=False, rests=False)
        settled = unsettled.ready
        only_acks = not unsettled.large and {type(outcome) for _, outcome in settled} <= {oc.Done}
        claims = not settled or (limit and not (only_acks and self._rests))
        claimed = yield from self._exchange(limit if claims else None)
        if unsettled.large:
            yield from self._settle_large()
        if self._deaths.unreported:
            yield from self._deaths.tell()
        unsettled.raise_trouble()
        known = self._known
        if self._has_all:
            self.shutdown.is_requested = True
        elif (
            self._share.is_burst
            and self._share.is_alone
            and limit
            and not (len(unsettled) or self.unfinished or known.limit_holds or self._context.claims.late)
        ):
            # Nothing runs. But a settlement of this turn may have sent messages, and a claimed message may have died.
            self.shutdown.is_requested = only_acks and not claimed
        elif not unsettled.are_due and known.sleep is not None and (known.has_all or not limit):
            yield from self._sleep(known.sleep, has_room=limit > 0)

    def _may_wait(self) -> bool:
        """Whether one queue of several, without room, has nothing to tell the server before its watch ends.

        Its turn for a permit may be far off: an exchange at each wake-up would cost more than its messages.
        """
        if self._share.is_alone or self._unsettled.are_due or self._upkeep.is_due or self._known.watch.until == 0:
            return False
        left = min(self._unsettled.left(), self._upkeep.collection_left, self._context.outages.pause())
        return min(left, self._cancellations.left(), self._known.watch.until - time.monotonic()) > 0

    @property
    def _rests(self) -> bool:
        """Whether acks need no claim beside them: nothing is due that has not rung. A burst ends only by a claim."""
        known = self._known
        return known.rests and not self.is_burst and known.sleep is not None and time.monotonic() < known.sleep.until

    def _room(self) -> int:
        """Return how many messages to claim."""
        if self._unsettled.refused.is_full:
            return 0
        room = self.pool.room(self.unfinished, ahead=not self._context.limits_keys)  # slots are for running messages
        limit = self._claimer.limit(room)
        if room and not limit:
            self.pool.hasten()  # batches must not wait for more messages: none are fetched
        return self._within_most(limit)

    def _exchange(self, limit: int | None) -> Effects[int]:
        """Settle what is done and claim (unless `limit` is None) in the same round trips; return the number claimed."""
        handled, keyless, had_outcomes = self.handled, self._claimer.keyless, bool(self._unsettled.ready)
        claimed, failed = 0, True
        try:
            claimed = yield from self._settle_and_claim(limit)
            failed = False
        finally:
            handled, keyless = self.handled - handled, self._claimer.keyless - keyless
            self._share.answered(claimed, handled, had_outcomes, failed, keyless)
        return claimed

    def _settle_and_claim(self, limit: int | None) -> Effects[int]:
        context, known, settled, repeated = self._context, self._known, self._unsettled.ready, self._unsettled.again()
        settling = settle(context, settled, self._presence.name) if settled else None
        again = settle_each(context, repeated, self._presence.name) if repeated else None
        recovering = finding = planning = claiming = None
        early = 0.0 if self._share.is_alone else EARLY_SECONDS
        if limit is not None:
            recovering, finding = self._upkeep.collection(early)
            if known.has_all or not limit:  # otherwise the next turn comes at once
                planning = idle.plan_sleep(context, self._presence.name, FALLBACK_MS, known.is_blocked)
            expected, self._slept = self._slept.expected if limit else (), Slept()
            claiming = self._presence.beside(self._claimer.claim(limit, expected))
        elif settling is not None:
            settling = self._presence.beside(settling)
        stopping = self._cancellations.look() if self._cancellations.left() <= early else None
        self._leases.settling = frozenset([id(message) for message, _ in (*settled, *repeated)])
        try:
            results = yield from gather(settling, again, recovering, finding, planning, claiming, stopping)
        finally:
            self._leases.settling = frozenset()
        outcomes, repetitions, recovered, found, sleep, claimed, _ = results
        self._unsettled.exchanged()
        self._note(settled, [outcomes] * len(settled) if isinstance(outcomes, DelayqError) else outcomes or ())
        if repeated:
            self._note(repeated, unwrap(repetitions))
        if limit is None:
            self._known = known if known.rests else known._replace(sleep=None)
            return 0
        self._known = known._replace(sleep=None, rests=False)
        batch: Batch = unwrap(claimed)
        self._claimer.keyless += batch.failed
        self.handled += batch.failed
        self.failed += batch.failed
        self._deaths.unreported += batch.dead
        yield from self._take(batch.messages)
        self._learn(batch, unwrap(sleep))
        if recovering is not None:
            yield from self._keep_up(unwrap(recovered), unwrap(found))
        return batch.claimed

    def _learn(self, batch: Batch, sleep: idle.SleepPlan | None) -> None:
        """Note what a claim and the plan beside it say about the queue."""
        context, has_all, waits = self._context, batch.has_all, batch.waits
        if waits and not self._known.is_blocked:
            sleep = None  # it was asked for without the limit
        may_free = context.claims.is_limited or context.settings.concurrency_key is not None  # acks, for other messages
        rests = batch.limit > 0 and has_all and not (may_free or waits or context.is_owed)
        watch, until = sleep or self._known.watch, time.monotonic() + FALLBACK_MS / 1000
        if sleep is None and not (watch.for_event and time.monotonic() < watch.until < until):  # else its promise holds
            watch = NO_WATCH._replace(until=until)
        self._known = Known(has_all, batch.held, waits, sleep, self._known.recovers, False, rests, watch)

    def _take(self, messages: list[D]) -> Effects[None]:
        if not messages:
            return
        admitted, refused = self._claimer.admit(messages)
        self._cancellations.took(messages[-1])
        try:
            if refused:  # hand them back before one crashes this process, and behind others, or they come back at once
                self._unsettled.add((message, oc.Released(behind=True)) for message in refused)
                yield from self._exchange(None)
        finally:
            self._submit(admitted)

    def _judge(self, ended: Pairs[D]) -> Pairs[D]:
        unsettled = []
        for message, outcome in ended:
            if not message.settled:
                if message.cancelled and not isinstance(outcome, oc.Done | oc.AckAndSend):
                    oc.clear_frames(outcome)
                    outcome = oc.STOPPED  # noqa: PLW2901
                unsettled.append((message, outcome))
                continue
            self._note([(message, oc.DONE)], [True])  # by the handler itself
            self.failed += message.failed
            if isinstance(outcome, oc.Failed | oc.Dead):
                log_of(message).warning("handler failed after settling", error=outcome.error)
            oc.clear_frames(outcome)
        return unsettled

    def report(self) -> Effects[None]:
        """Report that this consumer lives, while it only waits for its handlers to end."""
        stopping = None if self._cancellations.left() else self._cancellations.look()
        yield from gather(stopping, self._presence.report())  # neither is worth an outage

    def _settle_large(self) -> Effects[None]:
        """Settle an outcome that may break its connection, in its own round trip, whose failure is not an outage."""
        large = self._unsettled.large
        message, outcome = large.pop(0)
        self._leases.settling = frozenset({id(message)})
        try:
            (ours,) = yield from once(settle(self._context, [(message, outcome)], self._presence.name))
        except DelayqError as error:
            ours = error
        except BaseException:
            large.insert(0, (message, outcome))
            raise
        finally:
            self._leases.settling = frozenset()
        self._note([(message, outcome)], [ours], is_alone=True)

    def settle(self) -> Effects[None]:
        """Settle outcomes without claiming."""
        yield from self._exchange(None)
        while self._unsettled.large:
            yield from self._settle_large()
        yield from self._deaths.tell()
        self._unsettled.raise_trouble()

    def _note(self, settled: Pairs[D], results: Sequence[bool | DelayqError], is_alone: bool = False) -> None:
        logged: BaseException | None = None  # an error of a whole batch is traced only once
        refused, tasks = self._unsettled.refused, self._presence.tasks
        for (message, outcome), ours in zip(settled, results, strict=True):
            if ours is not True and isinstance(ours, DelayqError):
                self._try_again(message, outcome, ours, is_alone)
                continue
            if refused.waiting:
                refused.accepted(message)
            self._leases.drop(message)
            if self._deaths.functions:
                self._deaths.note(message)
            if tasks is not None and ours:
                tasks.note(message, outcome)
            if outcome is oc.DONE and ours:
                self.handled += 1
            else:
                logged = self._tell(message, outcome, ours, logged)
        for _, outcome in settled:
            if outcome is not oc.DONE:
                oc.clear_frames(outcome)

    def _tell(self, message: D, outcome: oc.Outcome, ours: bool, logged: BaseException | None) -> BaseException | None:
        """Count and log an outcome that is not an ack, without the trace of the error `logged`; return its error."""
        if isinstance(outcome, oc.Released):
            if outcome.begun:
                shutdown.log_interrupted(message)
            return logged
        self.handled += 1
        if isinstance(outcome, oc.Stopped) and ours:
            log_of(message).info("handler stopped")
        elif not ours:
            log_of(message).warning("outcome refused", outcome=type(outcome).__name__)
        elif isinstance(outcome, oc.Failed | oc.Dead):
            self.failed += 1
            dead = isinstance(outcome, oc.Dead) or message.dies_of(outcome.counts)
            cause = outcome.cause
            log_failure(log_of(message), "dead" if dead else "retry", outcome.error, None if cause is logged else cause)
            return cause
        elif isinstance(outcome, oc.Unknown):
            self.failed += 1
            if message.death is not None:  # else one line for the task is enough
                log_failure(log_of(message), "dead", message.death.error, None)
        return logged

    def _try_again(self, message: D, outcome: oc.Outcome, error: DelayqError, is_alone: bool) -> None:
        """Keep an outcome that could not be settled, or leave its delivery to the end of its lease."""
        outages, shard = self._context.outages, self._context.shard(message.id).keys.meta
        # A large outcome may also have broken its connection.
        is_known = not is_alone or isinstance(error, Silent) or outages.has(shard)
        is_away = is_known and self._context.outlives(error)
        if not self._unsettled.keep(message, outcome, error, is_away, is_alone):
            log_of(message).error("outcome cannot be settled", error=str(error))
            self._leases.drop(message)
            self.handled += 1

    def on_outage(self) -> None:
        """Let the next turn renew all leases first, then claim, check the queue's record and ask how long to sleep."""
        self._known = self._known._replace(has_all=True, is_doubtful=True, rests=False, watch=NO_WATCH)
        if self.outage.is_away:
            self._context.watch.missed(*(shard.keys.meta for shard in self._context.shards))
        self._context.look_again()
        self._share.answered(0, 0, settled=False, failed=True)  # whatever step failed: other queues do not wait for it

    # -- duties ----------------------------------------------------------------------------------------------------

    def _keep_up(self, recovered: int | None, found: garbage.Found) -> Effects[None]:
        """Take the results of a collection; delete what it has found."""
        if self._context.watch.is_grace:
            yield from self._renew_all()
        has_more = yield from self._upkeep.collected(recovered, found)
        known = self._known
        self._known = known._replace(
            has_all=known.has_all and not has_more, recovers=recovered is not None, rests=known.rests and not has_more
        )

    def renew(self) -> Effects[None]:
        """Renew the leases, on a separate thread or task, so that nothing delays it."""
        yield from self._leases.renew()

    def _renew_all(self) -> Effects[None]:
        """Renew all leases, as they may be about to end: the server was away, or its clock was set."""
        self._leases.settling = self._unsettled.ids()  # perhaps settled already
        try:
            yield from self._leases.renew(everything=True)
        except DelayqError as error:
            if not self._context.outlives(error):  # otherwise the other shards are served meanwhile
                raise
        finally:
            self._leases.settling = frozenset()
        self._known = self._known._replace(is_doubtful=False)

    def _describe(self, began: float, time_limit: TimeLimit) -> bytes:
        """Return the consumer's description of itself, without the messages that are being settled."""
        owed = self._unsettled.ids()
        held = (each for each in self._leases.held if id(each) not in owed and not each.settled)
        over = time_limit.over(self._context.name)
        return consumer_info.describe(self.pool.count, began, self.handled, self.failed, held, over, time_limit.of)

    # -- sleeping --------------------------------------------------------------------------------------------------

    def _sleep(self, sleep: idle.SleepPlan, has_room: bool) -> Effects[None]:
        """Wait for the bell, the timer, an outcome, or the next duty."""
        known = self._known
        if has_room and not (self._leases.held or known.limit_holds):
            self._share.rests()
        seconds = sleep.until - time.monotonic()
        if not has_room:
            seconds = max(seconds, BUSY_KEEPER_SECONDS)
        is_idle = has_room and not self._leases.held
        seconds = min(seconds, self._upkeep.left(is_idle), self._unsettled.left(), self._context.outages.pause())
        seconds = min(seconds, self._cancellations.left())
        for_lease = sleep.for_event and not sleep.for_message
        if for_lease and not known.recovers:  # the lease ended but cannot be taken back: do not try all the time
            seconds = max(seconds, min(self._upkeep.collection_left, 1.0))
        sources = [BellSource(shard.keys.bell) for shard in self._context.shards] if has_room else ()
        woken = yield WaitForWork(seconds, True, sources, is_exact=has_room)
        called = sleep.for_event or woken.disturbed or woken.token
        if woken.token:
            known = self._known = known._replace(rests=False, watch=NO_WATCH)
        waits_for_limit = known.limit_holds and self._share.is_burst  # only a claim shows if others took the rest
        is_over = time.monotonic() >= sleep.until
        undisturbed = is_idle and not (called or waits_for_limit or self._context.is_owed)
        self._slept = Slept(undisturbed, sleep.expected if is_over else self._slept.expected)
        if is_over and for_lease and known.recovers:
            self._upkeep.hasten()

    def _sleeps_on(self) -> Effects[bool]:
        """Sleep again if no consumer has anything to do, which costs much less than a turn."""
        self._slept = self._slept._replace(undisturbed=False)
        if self.shutdown.is_requested or self._upkeep.is_due or not self._context.is_open:
            return False  # a claim also checks the queue's record again
        watching = idle.poll_idle(self._context, self._presence.name, FALLBACK_MS)
        sleep = yield from self._presence.beside(watching)
        if sleep.until <= time.monotonic():
            self._upkeep.hasten()
            return False
        yield from self._sleep(sleep, has_room=True)
        return True

    # -- the end ---------------------------------------------------------------------------------------------------

    def _hand_back(self, unstarted: list[D]) -> None:
        self._unsettled.add((message, oc.RELEASED) for message in unstarted)

    def _finish(self) -> Effects[None]:
        """Hand back unstarted messages, wait for running handlers, and abandon those that do not end in time."""
        yield from self._at_last(self._pass_token_on())
        yield from self._end_handlers()
        late_claims.arrived(self._context)
        yield from self._at_last(unfetched.release(self._context))
        unsettled = self._unsettled
        known = unsettled.ids()
        running = [m for m in self._leases.held if id(m) not in known and not m.settled]
        if (running or unsettled.are_due) and not self.shutdown.at_once:
            unsettled.interrupt(running)
            yield from self._ride_out(self.settle())
        if self._context.claims.is_limited:
            yield from self._at_last(self._pass_token_on())  # so that others use the room that is free now
        if self.shutdown.at_once:
            self._abandon()
        yield from self._deaths.tell()  # including messages that handlers have buried themselves at the end
        if not self.outage.is_cut_off:
            yield from self._at_last(self._presence.leave())
            yield from self._at_last(self._claimer.end())

    def _abandon(self) -> None:
        left = [message for message in self._leases.held if not message.settled]
        self.abandoned = len(left)
        if left:
            until = max(message.lease_until for message in left).isoformat(timespec="seconds")
            self._log.warning("handlers abandoned", messages=len(left), until=until)

    def _at_last(self, step: Effects[None]) -> Effects[None]:
        """Try once to save other consumers some time, unless the server is away or the run must end at once.

        Without this step, leases end by themselves, the fallback poll of the others makes up for a lost token, and this
        consumer counts as gone after half a minute.
        """
        is_away = self.outage.is_tried and not self.is_spread  # otherwise other shards may be available
        if is_away or self.shutdown.at_once or self.outage.is_cut_off:
            return
        try:
            yield from step
        except ServerError as error:
            self.outage.is_cut_off = True
            log.debug("last call failed", queue=self._context.name, error=str(error))

    def _pass_token_on(self) -> Effects[None]:
        token = yield StopListening()
        if token or self._known.sleep is not None or self._context.claims.is_limited:
            yield from idle.pass_on(self._context, self._presence.name)
