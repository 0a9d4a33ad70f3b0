"""The consumer of a queue, as decisions without I/O. Both faces run it: see `driver` and `driver_async`.

The life of a message here, in the order of the methods:

    _turn               run the duties that are due, and find room
    _settle_and_claim   settle outcomes, and claim: `claim` decodes the messages
    _take, _submit      hold the leases, and give the messages to the pool, which runs the handler
    collect_outcomes    fetch their outcomes
    _settle_and_claim   settle, in the round trip that claims the next ones
    _note               drop the leases, and log failures
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from delayq.errors import DelayqError, LoginRefused, ServerError
from delayq.log import log, log_failure, log_of
from delayq.model import consumer_info
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.model.interval import FALLBACK_MS, Interval
from delayq.model.message_info import MessageInfo
from delayq.operations import garbage, idle, late_claims, presence, schedules, unfetched, upkeep
from delayq.operations.claim import Batch, ClaimNames, claim, recover
from delayq.operations.queue_context import QueueContext
from delayq.operations.settle import is_large, settle, settle_each
from delayq.protocol.late_reply import Silent
from delayq.protocol.operation import gather_named, once, unwrap
from delayq.protocol.queue_commands import MAX_IDS, MAX_MOVED
from delayq.runtime import hooks, shutdown
from delayq.runtime.effects import BellSource, Effects, Listen, StopListening, WaitForWork
from delayq.runtime.fair_dispatch import Share
from delayq.runtime.handler_pool import HandlerPool
from delayq.runtime.lease_keeper import LeaseKeeper
from delayq.runtime.outage_backoff import OutageBackoff
from delayq.runtime.poison_isolation import PoisonIsolation
from delayq.runtime.refused_outcomes import RefusedOutcomes, is_refusal
from delayq.runtime.shard_backlog import ShardBacklog
from delayq.runtime.time_limit import TimeLimit

BUSY_KEEPER_SECONDS = 0.01  # a consumer without room watches the time only on behalf of others

D = TypeVar("D", bound=Delivery)


class Exchange(NamedTuple):
    """The operations of one exchange with the server; later their results, or errors in their place.

    Attributes:
        settled: whether each outcome was accepted.
        again: the same for outcomes that were refused before.
        recovered: the number of leases that had ended; None if the server refused.
        garbage: payload keys to delete.
        sleep: how long to sleep if the claim is empty.
        batch: the claimed messages.
    """

    settled: Any
    again: Any = None
    recovered: Any = None
    garbage: Any = None
    sleep: Any = None
    batch: Any = None


class Known(NamedTuple):
    """What a consumer knows of its queue since its last exchange.

    Attributes:
        has_all: nothing more is due, except what a limit of the queue holds back.
        limit_holds: a limit holds back messages.
        is_blocked: messages wait for room within a limit, or for the end of a pause.
        sleep: how long to sleep; None if the server was not asked.
        recovers: leases that have ended can be taken back.
    """

    has_all: bool = True
    limit_holds: bool = False
    is_blocked: bool = False
    sleep: idle.SleepPlan | None = None
    recovers: bool = True


class Slept(NamedTuple):
    """What a consumer knows after a sleep, until the next turn.

    Attributes:
        undisturbed: nothing ended it early, and nothing was known to be due.
        expected: per shard, the message that it has ended for.
    """

    undisturbed: bool = False
    expected: Sequence[str] = ()


class ConsumerEngine(Generic[D]):
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

    Attributes:
        handled: messages whose handling has ended.
        failed: of these, deliveries that were nacked or rejected, after an error or by the handler itself.
        abandoned: messages left to their leases because the run had to end at once.
    """

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
    ) -> None:
        self.handled = self.failed = self.abandoned = 0
        self._keyless = 0  # of these, deliveries whose key could not be computed, so that no worker has seen them
        self._context = context
        self._make_message = make_message
        self._name = name
        self._time_limit = time_limit or TimeLimit(None)
        self._share = share
        self._ends_idle = share.is_burst and share.is_alone
        self._most = most
        self._lease = leases.lease_ms
        self._claim_names = ClaimNames()
        self._leases = leases
        self.pool = pool
        self.unsettled: list[tuple[D, oc.Outcome]] = []
        self.unfinished = 0  # with the pool
        self._backlog: ShardBacklog[D] = ShardBacklog(lambda message: context.shard(message.id))
        self._refused: RefusedOutcomes[D] = RefusedOutcomes(queue=context.name)
        self._large: list[tuple[D, oc.Outcome]] = []  # to be settled in a round trip of its own
        self._is_ending = False
        self._isolation: PoisonIsolation[D] = PoisonIsolation(self._lease / 1000)
        self._known = Known()
        self._slept = Slept()
        self._renews_first = False  # the last turn failed, perhaps for longer than a lease
        self.outage = OutageBackoff(queue=context.name)
        self.shutdown = shutdown.Shutdown()
        self._is_cut_off = False  # the server did not answer at the end
        self._trouble: DelayqError | None = None
        self._upkeep = Interval(FALLBACK_MS / 1000)
        self._cleanup = Interval(upkeep.CLEANUP_SECONDS)
        self._began = time.monotonic()
        self._presence = presence.Presence(context, self._describe, self._times)
        self._deaths = hooks.Deaths(deaths)
        self._declared, self._losses = list(declared), context.losses
        self._unstored: Iterable[schedules.Prepared] = self._declared  # later, those for which the server had no memory

    def connect(self) -> Effects[None]:
        """Check that the queue can be served.

        Raises:
            ServerError, QueueMismatch
        """
        self._unstored = yield from schedules.add_all(self._context, self._unstored)

    def run(self, grace: Callable[[], float]) -> Effects[None]:
        """Run turns until stopped.

        Args:
            grace: returns how many seconds running handlers get at the end.
        """
        yield from shutdown.run(self, self._turn, self._finish, grace, log.bind(queue=self._context.name))

    # -- the life of a message -------------------------------------------------------------------------------------

    def _turn(self) -> Effects[None]:
        self.collect_outcomes()
        if self._renews_first:
            yield from self._renew_all()
        if self._slept.undisturbed and (yield from self._sleeps_on()):
            return
        left = None if self._most is None else self._most - self.handled - self._unsettled_count - self.unfinished
        limit = self._room() if left is None else max(0, min(self._room(), left))
        settled = len(self.unsettled)
        yield from self._look_after()
        claimed = yield from self._exchange(None if settled and not limit else limit)
        if self._large:
            yield from self._settle_large()
        yield from self._deaths.tell()
        self._tell_trouble()
        known = self._known
        if self._most is not None and self.handled >= self._most:
            self.shutdown.is_requested = True
        elif (
            self._ends_idle
            and limit
            and not (self._unsettled_count or self.unfinished or known.limit_holds or self._context.late_claims)
        ):
            # Nothing runs. But a settlement of this turn may have sent messages, and a claimed message may have died.
            self.shutdown.is_requested = not (settled or claimed)
        elif not self.has_unsettled and known.sleep is not None and (known.has_all or not limit):
            yield from self._sleep(known.sleep, has_room=limit > 0)

    @property
    def is_burst(self) -> bool:
        """Whether it stops when nothing is due."""
        return self._share.is_burst

    @property
    def has_unsettled(self) -> bool:
        return bool(self.unsettled or self._large)

    @property
    def _unsettled_count(self) -> int:
        return len(self.unsettled) + len(self._backlog) + len(self._refused) + len(self._large)

    def _room(self) -> int:
        if self._refused.is_full:
            return 0
        room = self.pool.room(self.unfinished, ahead=not self._context.limits_keys)  # slots are for running messages
        limit = self._isolation.limit(min(room, MAX_IDS), self._leases.held())
        if room and not limit:
            self.pool.hasten()  # batches must not wait for more messages: none are fetched
        return limit

    def _exchange(self, limit: int | None) -> Effects[int]:
        """Settle what is done and claim (unless `limit` is None) in the same round trips; return the number claimed."""
        handled, keyless, had_outcomes = self.handled, self._keyless, bool(self.unsettled)
        claimed, failed = 0, True
        try:
            claimed = yield from self._settle_and_claim(limit)
            failed = False
        finally:
            self._share.answered(claimed, self.handled - handled, had_outcomes, failed, self._keyless - keyless)
        return claimed

    def _settle_and_claim(self, limit: int | None) -> Effects[int]:
        context, settled, known = self._context, self.unsettled, self._known
        exchange = Exchange(settled=settle(context, settled))
        repeated, large = self._refused.due()
        self._large += large
        if repeated:
            exchange = exchange._replace(again=settle_each(context, repeated))
        if limit is None:
            exchange = exchange._replace(settled=self._presence.beside(exchange.settled, self._name))
        keeps_up = limit is not None and self._upkeep.due()
        if keeps_up:
            exchange = exchange._replace(recovered=recover(context), garbage=garbage.find(context))
        if limit is not None:
            if known.has_all or not limit:  # otherwise the next turn comes at once
                exchange = exchange._replace(sleep=idle.plan_sleep(context, self._name, FALLBACK_MS, known.is_blocked))
            expected, self._slept = self._slept.expected if limit else (), Slept()
            claiming = claim(
                context, self._make_message, limit, self._lease, False, expected, self._name, self._claim_names
            )
            exchange = exchange._replace(batch=self._presence.beside(claiming, self._name))
        self._leases.settling = frozenset(id(message) for message, _ in (*settled, *repeated))
        try:
            replies: Exchange = yield from gather_named(exchange)
        finally:
            self._leases.settling = frozenset()
        self.unsettled = []
        self._trouble = None  # left by an exchange whose own error was raised instead
        outcomes = replies.settled
        self._note(settled, [outcomes] * len(settled) if isinstance(outcomes, DelayqError) else outcomes)
        if repeated:
            self._note(repeated, unwrap(replies.again))
        self._known = known._replace(sleep=None)
        if limit is None:
            return 0
        batch: Batch = unwrap(replies.batch)
        self._keyless += batch.failed
        self.handled += batch.failed
        self.failed += batch.failed
        self._deaths.unreported += batch.dead
        yield from self._take(batch.messages)
        sleep = unwrap(replies.sleep) if known.is_blocked or not batch.waits else None  # asked without the limit
        self._known = Known(batch.has_all, batch.held, batch.waits, sleep, known.recovers)
        if keeps_up:
            if context.watch.is_grace:
                yield from self._renew_all()
            yield from self._keep_up(unwrap(replies.recovered), unwrap(replies.garbage))
        return batch.claimed

    def _take(self, messages: list[D]) -> Effects[None]:
        if not messages:
            return
        admitted, refused = self._isolation.admit(messages, self._leases.held())
        if any(message.is_suspect for message in admitted):
            log_of(admitted[0]).warning("message runs alone")
        self._leases.hold(messages)
        try:
            if refused:  # hand them back before one crashes this process, and behind others, or they come back at once
                self.unsettled += [(message, oc.Released(behind=True)) for message in refused]
                yield from self._exchange(None)
        finally:
            self._submit(admitted)

    def _submit(self, messages: list[D]) -> None:
        self.unfinished += len(messages)
        self.pool.submit(messages)

    def collect_outcomes(self) -> None:
        """Fetch the outcomes of the messages that the pool has handled."""
        if self.pool.is_behind:
            self.pool.adapt()
        for message, outcome in self._backlog.due():
            self._owe(message, outcome)
        for message, outcome in self.pool.outcomes():
            self.unfinished -= 1
            if message.settled:  # by the handler itself
                self._note([(message, oc.DONE)], [True])
                self.failed += message.failed
                if isinstance(outcome, oc.Failed | oc.Dead):
                    log_of(message).warning("handler failed after settling", error=outcome.error)
                oc.clear_frames(outcome)
            else:
                self._owe(message, outcome)

    def _owe(self, message: D, outcome: oc.Outcome) -> None:
        """Let the next turn settle an outcome."""
        is_alone = isinstance(outcome, oc.AckAndSend) and is_large(self._context, message, outcome)
        (self._large if is_alone else self.unsettled).append((message, outcome))

    def report(self) -> Effects[None]:
        """Report that this consumer lives, while it only waits for its handlers to end."""
        try:
            yield from self._presence.report(self._name)
        except ServerError as error:
            log.debug("consumer not recorded", queue=self._context.name, consumer=self._name, error=str(error))

    def _settle_large(self) -> Effects[None]:
        """Settle an outcome that may break its connection, in its own round trip, whose failure is not an outage."""
        message, outcome = self._large.pop(0)
        self._leases.settling = frozenset({id(message)})
        try:
            (ours,) = yield from once(settle(self._context, [(message, outcome)]))
        except DelayqError as error:
            ours = error
        except BaseException:
            self._large.insert(0, (message, outcome))
            raise
        finally:
            self._leases.settling = frozenset()
        self._note([(message, outcome)], [ours], is_alone=True)

    def settle(self) -> Effects[None]:
        """Settle outcomes without claiming."""
        yield from self._exchange(None)
        while self._large:
            yield from self._settle_large()
        yield from self._deaths.tell()
        self._tell_trouble()

    def _note(
        self, settled: list[tuple[D, oc.Outcome]], results: Sequence[bool | DelayqError], is_alone: bool = False
    ) -> None:
        logged: BaseException | None = None  # an error of a whole batch is traced only once
        for (message, outcome), ours in zip(settled, results, strict=True):
            if isinstance(ours, DelayqError):
                self._try_again(message, outcome, ours, is_alone)
                continue
            if self._refused.waiting:
                self._refused.accepted(message)
            self._leases.drop(message)
            if self._deaths.functions:
                self._deaths.note(message)
            if isinstance(outcome, oc.Released):
                if outcome.begun:
                    shutdown.log_interrupted(message)
                continue
            self.handled += 1
            if not ours:
                log_of(message).warning("outcome refused", outcome=type(outcome).__name__)
            elif isinstance(outcome, oc.Failed | oc.Dead):
                self.failed += 1
                dead = isinstance(outcome, oc.Dead) or message.dies_of(outcome.counts)
                cause = outcome.cause if isinstance(outcome, oc.Failed) else None
                traced = None if cause is logged else cause
                logged = cause
                log_failure(log_of(message), "dead" if dead else "retry", outcome.error, traced)
        for _, outcome in settled:
            oc.clear_frames(outcome)

    def _try_again(self, message: D, outcome: oc.Outcome, error: DelayqError, is_alone: bool) -> None:
        """Keep an outcome for the next exchange, or for later if only its shard is away or it alone was refused."""
        again = oc.after(outcome, error)
        if self._is_away(message, error, is_alone) and not self.shutdown.is_requested:
            self._refused.waiting.pop(id(message), None)
            self._backlog.add(message, again)
            return
        if again is outcome and is_alone and self._is_ending:
            self.unsettled.append((message, oc.INTERRUPTED))
            return
        if again is outcome and not self._is_ending and (is_alone or is_refusal(error)):
            self._refuse(message, outcome, error, is_alone)
            return
        self._refused.waiting.pop(id(message), None)
        self.unsettled.append((message, again))
        if again is outcome:
            self._trouble = error

    def _is_away(self, message: D, error: DelayqError, is_alone: bool) -> bool:
        """Whether an error means that only the message's shard is away; a large outcome may also break a connection."""
        known = isinstance(error, Silent) or self._context.outages.has(self._context.shard(message.id).keys.meta)
        return self._context.outlives(error) and (known or not is_alone)

    def _refuse(self, message: D, outcome: oc.Outcome, error: DelayqError, is_alone: bool) -> None:
        """Let a refused outcome wait for its next try, fail, or leave the delivery to the end of its lease."""
        if self.is_burst and isinstance(error, LoginRefused):
            self._trouble = error
        instead = self._refused.add(message, outcome, error, is_alone)
        if isinstance(instead, oc.Failed):
            self.unsettled.append((message, instead))
        elif instead is not None:
            log_of(message).error("outcome cannot be settled", error=str(error))
            self._leases.drop(message)
            self.handled += 1

    def _tell_trouble(self) -> None:
        """Raise the error that kept outcomes from being settled, once the rest of the turn is done."""
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    def on_outage(self) -> None:
        """Let the next turn renew all leases first, then claim, check the queue's record and ask how long to sleep."""
        self._known, self._renews_first = self._known._replace(has_all=True), True
        if self.outage.is_away:
            self._context.watch.missed(*(shard.keys.meta for shard in self._context.shards))
        self._context.look_again()
        self._share.answered(0, 0, settled=False, failed=True)  # whatever step failed: other queues do not wait for it

    # -- duties ----------------------------------------------------------------------------------------------------

    def _look_after(self) -> Effects[None]:
        """Run each duty that is due: purge old dead letters, revive schedules, store schedules."""
        if self._cleanup.due():
            yield from self._context.opened(create=True)
            if (yield from upkeep.clean_up(self._context, self._cleanup)):  # a page per turn: messages need not wait
                self._known = self._known._replace(has_all=False)
            if self._context.losses > self._losses:
                self._losses, self._unstored = self._context.losses, self._declared
            if self._unstored:
                self._unstored = yield from schedules.add_all(self._context, self._unstored)

    def _keep_up(self, recovered: int | None, found: garbage.Found) -> Effects[None]:
        """Delete the payloads that were found to be garbage; continue soon if there is more."""
        more = (yield from garbage.delete(found)) if found else False
        has_more = more or (recovered or 0) >= MAX_MOVED
        if has_more:
            self._upkeep.now()
        known = self._known
        self._known = known._replace(has_all=known.has_all and not has_more, recovers=recovered is not None)

    @property
    def is_spread(self) -> bool:
        """Whether there are other shards to serve while one is unavailable."""
        return len(self._context.shards) > 1

    @property
    def heartbeat_seconds(self) -> float:
        """The seconds between two calls of `renew`."""
        return self._leases.heartbeat_seconds

    def renew(self) -> Effects[None]:
        """Renew the leases, on a separate thread or task, so that nothing delays it."""
        yield from self._leases.renew()

    def _owed(self) -> frozenset[int]:
        """Return the messages, by their `id()`, whose outcomes wait to be settled."""
        known = (*self.unsettled, *self._large, *self._backlog.waiting())
        return frozenset([*(id(message) for message, _ in known), *self._refused.waiting])

    def _renew_all(self) -> Effects[None]:
        """Renew all leases, as they may be about to end: the server was away, or its clock was set."""
        self._leases.settling = self._owed()  # perhaps settled already
        try:
            yield from self._leases.renew(everything=True)
        except DelayqError as error:
            if not self._context.outlives(error):  # otherwise the other shards are served meanwhile
                raise
        finally:
            self._leases.settling = frozenset()
        self._renews_first = False

    def _times(self) -> Sequence[int]:
        return self.pool.times.counts()

    def _describe(self) -> bytes:
        """Return the consumer's description of itself, without the messages that are being settled."""
        owed = self._owed()
        held = (each for each in self._leases.held() if id(each) not in owed and not each.settled)
        over, limit_of = self._time_limit.over(self._context.name), self._time_limit.of
        return consumer_info.describe(self.pool.count, self._began, self.handled, self.failed, held, over, limit_of)

    # -- sleeping --------------------------------------------------------------------------------------------------

    def _sleep(self, sleep: idle.SleepPlan, has_room: bool) -> Effects[None]:
        """Wait for the bell, the timer, an outcome, or the next duty."""
        known = self._known
        if has_room and not (self._leases.held() or known.limit_holds):
            self._share.rests()
        if has_room:
            yield Listen([BellSource(shard.keys.bell) for shard in self._context.shards])
        seconds = sleep.until - time.monotonic()
        if not has_room:
            seconds = max(seconds, BUSY_KEEPER_SECONDS)
        is_idle = has_room and not self._leases.held()
        seconds = min(seconds, self._cleanup.left(), seconds if is_idle else self._upkeep.left() + 0.001)
        seconds = min(seconds, self._refused.left(), self._backlog.left(), self._context.outages.pause())
        for_lease = sleep.for_event and not sleep.for_message
        if for_lease and not known.recovers:  # the lease ended but cannot be taken back: do not try all the time
            seconds = max(seconds, min(self._upkeep.left(), 1.0))
        woken = yield WaitForWork(seconds, listening=True)
        called = sleep.for_event or woken.disturbed or woken.token
        waits_for_limit = known.limit_holds and self._share.is_burst  # only a claim shows if others took the rest
        is_over = time.monotonic() >= sleep.until
        undisturbed = is_idle and not (called or waits_for_limit or self._context.is_owed)
        self._slept = Slept(undisturbed, sleep.expected if is_over else self._slept.expected)
        if is_over and for_lease and known.recovers:
            self._upkeep.now()

    def _sleeps_on(self) -> Effects[bool]:
        """Sleep again if no consumer has anything to do, which costs much less than a turn."""
        self._slept = self._slept._replace(undisturbed=False)
        if self.shutdown.is_requested or self._cleanup.left() == 0 or not self._context.is_open:
            return False  # a claim also checks the queue's record again
        watching = idle.poll_idle(self._context, self._name, FALLBACK_MS)
        sleep = yield from self._presence.beside(watching, self._name)
        if sleep.until <= time.monotonic():
            self._upkeep.now()
            return False
        yield from self._sleep(sleep, has_room=True)
        return True

    # -- the end ---------------------------------------------------------------------------------------------------

    def _finish(self) -> Effects[None]:
        """Hand back unstarted messages, wait for running handlers, and abandon those that do not end in time."""
        yield from self._at_last(self._pass_token_on())
        self._is_ending = True
        small, large = self._refused.clear()
        self.unsettled += small
        self._large = list({id(message): (message, outcome) for message, outcome in (*self._large, *large)}.values())
        unstarted = self.pool.unstarted()
        self.unfinished -= len(unstarted)
        self.unsettled += [*self._backlog.all(), *((message, oc.RELEASED) for message in unstarted)]
        yield from shutdown.finish(self, log.bind(queue=self._context.name))
        late_claims.arrived(self._context)
        yield from self._at_last(unfetched.release(self._context))
        known = {id(message) for message, _ in (*self.unsettled, *self._large)}
        running = [m for m in self._leases.held() if id(m) not in known and not m.settled]
        if (running or self.has_unsettled) and not self.shutdown.at_once:
            self.unsettled = [(m, oc.INTERRUPTED if isinstance(o, oc.AckAndSend) else o) for m, o in self.unsettled]
            self.unsettled += [(message, oc.INTERRUPTED) for message in running]
            yield from self.outage.ride_out(self.settle(), self.on_outage)
        if self._context.is_limited:
            yield from self._at_last(self._pass_token_on())  # so that others use the room that is free now
        if self.shutdown.at_once:
            self._abandon()
        yield from self._deaths.tell()  # including messages that handlers have buried themselves at the end
        if not self._is_cut_off:
            yield from self._at_last(self._presence.leave(self._name))
            yield from self._at_last(self._end_claims())

    def _end_claims(self) -> Effects[None]:
        if self._context.is_recorded:
            yield [shard.end_claims(self._name, self._claim_names.run) for shard in self._context.shards]

    def _abandon(self) -> None:
        left = [message for message in self._leases.held() if not message.settled]
        self.abandoned = len(left)
        if left:
            until = max(message.lease_until for message in left).isoformat(timespec="seconds")
            text = "handlers abandoned"
            log.warning(text, queue=self._context.name, messages=len(left), until=until)

    def _at_last(self, step: Effects[None]) -> Effects[None]:
        """Try once to save other consumers some time, unless the server is away or the run must end at once.

        Without this step, leases end by themselves, the fallback poll of the others makes up for a lost token, and this
        consumer counts as gone after half a minute.
        """
        is_away = self.outage.is_tried and not self.is_spread  # otherwise other shards may be available
        if is_away or self.shutdown.at_once or self._is_cut_off:
            return
        try:
            yield from step
        except ServerError as error:
            self._is_cut_off = True
            log.debug("last call failed", queue=self._context.name, error=str(error))

    def _pass_token_on(self) -> Effects[None]:
        token = yield StopListening()
        if token or self._known.sleep is not None or self._context.is_limited:
            yield from idle.pass_on(self._context, self._name)
