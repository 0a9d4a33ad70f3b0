"""The consumer of a topic, as decisions without I/O. Both faces run it: see `driver` and `driver_async`.

Each turn settles outcomes and takes records: those that waited, those that others left, then new ones. It sleeps only
if there is nothing to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from delayq.errors import DelayqError, UnknownGroup
from delayq.log import log_failure
from delayq.model import outcome as oc
from delayq.model.interval import FALLBACK_MS
from delayq.model.lease_clock import lease_now
from delayq.model.record import Record
from delayq.operations.topics import group_admin, group_read, publish, settle
from delayq.operations.topics.topic_context import TopicContext
from delayq.operations.watch import Watch
from delayq.protocol.operation import gather, noop, unwrap
from delayq.protocol.topic_commands import MAX_LOOKED_AFTER
from delayq.runtime import shutdown
from delayq.runtime.base_engine import BaseEngine
from delayq.runtime.effects import Effects, WaitForWork
from delayq.runtime.group_member import EXHAUSTED, GroupMember
from delayq.runtime.group_recovery import GroupRecovery
from delayq.runtime.handler_pool import HandlerPool
from delayq.runtime.own_records import OwnRecords
from delayq.runtime.reclaimer import Reclaimer
from delayq.runtime.record_leases import RecordLeases
from delayq.runtime.refused_outcomes import Pairs
from delayq.runtime.unsettled_outcomes import UnsettledOutcomes
from delayq.transport.bell_source import StreamSource

AWAY_SECONDS = 0.5  # between two tries of a shard that is unavailable
MOST_WAITING = 1000  # records that wait to be retried; with more, nothing new is taken, except in a burst


class TopicEngine(BaseEngine[Record]):
    """One run of a consumer of a topic.

    Args:
        leases: of the records that it is handed.
        pool: runs the handlers.
        keeper: the consumer of the group that holds records that are handed back.
        burst: return when no record can be handled at once.
        most: return after this many deliveries; None for no limit.
        on_recreated: called when it has created the group again, because it was lost.
    """

    _context: TopicContext
    _leases: RecordLeases

    def __init__(
        self,
        context: TopicContext,
        member: GroupMember,
        leases: RecordLeases,
        pool: HandlerPool[Record],
        keeper: str,
        burst: bool,
        most: int | None,
        on_recreated: Callable[[], None],
    ) -> None:
        unsettled: UnsettledOutcomes[Record] = UnsettledOutcomes(
            lambda record: record.shard, lambda *_: False, burst, topic=context.name, group=member.group
        )
        labels = {"topic": context.name, "group": member.group, "consumer": member.name}
        super().__init__(context, leases, pool, unsettled, most, **labels)
        self._member = member
        self._me = (context, member.group, member.name)
        self._keeper = keeper
        self._burst = burst
        self._watch = Watch(int(member.ack_timeout * 1000), is_virtual=False)
        self._own = OwnRecords(*self._me)
        self._reclaimer = Reclaimer(context, member, self._watch)
        self._recovery = GroupRecovery(context, member, on_recreated)

    @property
    def is_burst(self) -> bool:
        """Whether it stops when no record can be handled at once."""
        return self._burst

    def connect(self) -> Effects[None]:
        """Check that the group can be served.

        Raises:
            ServerError, UnknownGroup
        """
        missing, _ = yield from group_admin.missing_and_away(self._context, self._member.group)
        for error in missing:
            raise error
        self._own.list_all()  # from an earlier run under this name

    def _turn(self) -> Effects[None]:
        if self._recovery.is_due:
            yield from self._recreate_group()
        yield from self._in_group(self._take_turn)

    def _in_group(self, step: Callable[[], Effects[None]]) -> Effects[None]:
        """Take a step; if the group was lost, create it again, and repeat the step."""
        try:
            yield from step()
        except UnknownGroup:
            yield from self._recreate_group()
            yield from step()

    def _recreate_group(self) -> Effects[None]:
        for each in (yield from self._recovery.recreate()):
            start = {"records": each.records} if each.after == "0" else {"after": each.after}
            self._log.error("lost group created again", **start)
        yield from self._renew_available()

    def _take_turn(self) -> Effects[None]:
        self._collect_outcomes()
        if self._looks_back:
            yield from self._look_back()
        room = self._room()
        taken = (yield from self._take_due(room)) if room else 0
        if room > taken and not self._own.come_first and self._reclaimer.due():
            taken += yield from self._reclaim(room - taken)
        yield from self._reclaimer.drop_gone()
        limit = room - taken if self._takes_more and not self._own.come_first else 0
        handed = yield from self._exchange(limit)
        is_busy = taken or self._unsettled.ready or self._looks_back or (room and self._reclaimer.are_left)
        if self._has_all:
            self.shutdown.is_requested = True
        elif not (is_busy or (handed and (handed.records or handed.more))):
            if self.is_burst and room and not (len(self._unsettled) or self.unfinished) and self._leases.left() != 0:
                self.shutdown.is_requested = True
            else:
                yield from self._sleep(handed.lasts if handed else None, room)

    def _room(self) -> int:
        if self._unsettled.refused.is_full:
            return 0
        return self._within_most(min(self.pool.room(self.unfinished), MAX_LOOKED_AFTER))

    # -- taking ------------------------------------------------------------------------------------------------------

    @property
    def _takes_more(self) -> bool:
        """Whether more records may wait; a burst leaves those that wait for their backoff behind."""
        return self._leases.waiting < MOST_WAITING or (self.is_burst and self._leases.left() != 0)

    @property
    def _looks_back(self) -> bool:
        return self._own.are_due and self._takes_more

    def _look_back(self) -> Effects[None]:
        """Take a page of this consumer's unknown records."""
        since = lease_now()
        own, unlisted = yield from self._own.page()
        for record in self._hold(own, since):
            self._leases.wait(record, 0, begun=self._own.is_new)
        yield from self._renew_available()
        self._own.listed(unlisted)

    def _take_due(self, room: int) -> Effects[int]:
        """Handle a page of records whose wait is over; return their number."""
        due = self._leases.due(room)
        if not due:
            return 0
        most, since = self._member.max_deliveries, lease_now()
        counts = {id(record): record.deliveries for record, _ in due}
        worn = [record for record, begun in due if begun and most and record.deliveries >= most]
        again = [record for record, begun in due if begun and record not in worn]
        fresh = [record for record, begun in due if not begun]
        try:
            results = yield from gather(
                settle.redeliver(*self._me, again, True, self._watch),
                settle.redeliver(*self._me, fresh, False, self._watch),
            )
            ours, left, away = ([*first, *second] for first, second in zip(*map(unwrap, results), strict=True))
        except BaseException:
            for record, begun in due:  # a record that was redelivered anyway has a delivery that was not begun
                self._leases.wait(record, 0, begun and record.deliveries == counts[id(record)])
            raise
        self._unsettled.add((record, oc.Dead(EXHAUSTED, counted=False)) for record in worn)
        for record in [*again, *fresh]:
            if record in left:
                self._leases.wait(record, -math.inf, begun=record in again)  # before all others
            elif record in away:
                self._leases.wait(record, AWAY_SECONDS, begun=record in again)
            elif record not in ours:
                self._lose(record)
        self._leases.renew(ours, since)
        if ours:
            self._submit(ours)
        return len(due) - len(left) - len(away)

    def _reclaim(self, limit: int) -> Effects[int]:
        """Take over a page of records that nobody has renewed; return their number."""
        since = lease_now()
        done = yield from self._reclaimer.page(limit)
        if done.records or done.buried:
            self._log.info("records taken over", count=len(done.records), dead=done.buried)
        fresh = self._hold(done.records, since)
        if fresh:
            self._submit(fresh)
        if done.trouble is not None and not self._context.outlives(done.trouble):
            raise done.trouble
        return len(fresh)

    def _exchange(self, limit: int) -> Effects[group_read.PolledRecords | None]:
        """Settle outcomes and poll (unless `limit` is 0) in the same round trips; return the records."""
        settled, again, since = self._unsettled.ready, self._unsettled.again(), lease_now()
        if not (settled or again or limit):
            return None
        polling = group_read.poll(*self._me, limit, tuple(self._own.unlisted), self._watch) if limit else noop()
        repeating = settle.settle_each(*self._me, again) if again else noop()
        self._leases.settling = frozenset(id(record) for record, _ in (*settled, *again))
        try:
            results, repeated, handed = yield from gather(settle.settle(*self._me, settled), repeating, polling)
        finally:
            self._leases.settling = frozenset()
        self._unsettled.exchanged()
        self._note(settled, [results] * len(settled) if isinstance(results, DelayqError) else results)
        if again:
            self._note(again, unwrap(repeated))
        if isinstance(handed, group_read.PolledRecords):
            self._recovery.note(handed)
            if fresh := self._hold(handed.records, since):
                self._submit(fresh)
            if handed.lost:
                self._own.missed(handed.lost)
        self._unsettled.raise_trouble()
        result: group_read.PolledRecords | None = unwrap(handed)
        return result

    def renew(self) -> Effects[None]:
        """Renew the leases, on a separate thread or task, so that nothing delays it."""
        since = lease_now()
        records, timeout = self._leases.to_renew(), self._member.ack_timeout
        held, lost, trouble = yield from group_read.renew(*self._me, records, timeout, self._watch)
        self._leases.renew(held, since)
        for record in lost:
            if id(record) not in self._leases.settling:  # otherwise it was settled meanwhile
                self._lose(record)
        self._recovery.is_due = isinstance(trouble, UnknownGroup)
        unwrap(trouble)

    def _renew_available(self) -> Effects[None]:
        """Renew the leases, except those of records on shards that are away: these do not stop the others."""
        try:
            yield from self.renew()
        except DelayqError as error:
            if not self._context.outlives(error):
                raise

    def _hold(self, records: list[Record], since: float) -> list[Record]:
        """Hold records that were requested at `since`; return those that were not held already."""
        for record in self._leases.replaced_by(records):  # its handler may still run; its outcome settles nothing
            self._lose(record)
        return self._leases.take(records, since)

    def _lose(self, record: Record) -> None:
        if self._leases.has(record):
            self._leases.drop(record)
            self._log.bind(id=record.id, delivery=record.deliveries).warning("record lost")

    # -- settling ----------------------------------------------------------------------------------------------------

    def _judge(self, ended: Pairs[Record]) -> Pairs[Record]:
        unsettled = []
        for record, outcome in ended:
            if not isinstance(outcome, oc.Released):
                unsettled.append((record, self._member.judged(record, outcome)))
                continue
            if outcome.begun:
                shutdown.log_interrupted(record)
            self._leases.wait(record, 0, begun=False)  # redeliver it if it is still ours
        return unsettled

    def _note(self, settled: settle.Settled, results: Sequence[bool | DelayqError]) -> None:
        refused = self._unsettled.refused
        for (record, outcome), ours in zip(settled, results, strict=True):
            if isinstance(ours, DelayqError):
                self._try_again(record, outcome, ours)
                continue
            if refused.waiting:
                refused.accepted(record)
            if not isinstance(outcome, oc.Dead) or outcome.counted:
                self.handled += 1
                self.failed += not isinstance(outcome, oc.Done)
            if not ours:
                self._lose(record)
            elif isinstance(outcome, oc.Failed) and self._leases.has(record):
                seconds = self._member.backoff_seconds(record, outcome)
                self._leases.wait(record, seconds, begun=True)
                line = self._log.bind(id=record.id, delivery=record.deliveries)
                log_failure(line, "retry", outcome.error, outcome.cause)
            else:
                self._leases.drop(record)
                if isinstance(outcome, oc.Dead):
                    self._log.bind(id=record.id, delivery=record.deliveries).warning(
                        "delivery failed", next="dead", error=outcome.error or outcome.reason
                    )
        for _, outcome in settled:
            oc.clear_frames(outcome)

    def _try_again(self, record: Record, outcome: oc.Outcome, error: DelayqError) -> None:
        """Keep an outcome that could not be settled, or leave its record to others."""
        if not self._unsettled.keep(record, outcome, error, self._context.outlives(error)):
            self._log.bind(id=record.id).error("outcome cannot be settled", error=str(error))
            self._leases.drop(record)
            self.handled += 1

    # -- sleeping, trouble, and the end ------------------------------------------------------------------------------

    def _sleep(self, lasts: Sequence[str] | None, room: int) -> Effects[None]:
        """Wait for an outcome, the next duty or, behind `lasts` of the shards, a record."""
        sources: Sequence[StreamSource] = ()
        seconds = min(FALLBACK_MS / 1000, self._unsettled.left(), self._own.left())
        if room:
            waits = self._leases.left()
            seconds = min(seconds, self._reclaimer.left(), seconds if waits is None else waits)
        if lasts is not None:
            waiting = yield from publish.append_due(self._context)
            if room and self._reclaimer.hear(waiting.seen):
                return
            if len(lasts) != len(waiting.seen):  # the topic was created again meanwhile, with more shards
                return
            if waiting.next_ms is not None:
                seconds = min(seconds, waiting.next_ms / 1000)
            seconds = min(seconds, self._context.purging[self._member.group].left())
            keys = [shard.keys for shard in self._context.shards]
            seen = zip(lasts, waiting.seen, strict=True)
            sources = [StreamSource(k.stream, k.waking, each) for k, each in zip(keys, seen, strict=True)]
        yield WaitForWork(seconds, lasts is not None, sources)

    def on_outage(self) -> None:
        """List and renew this consumer's records once Redis is available again: a reply may have been lost."""
        if self.outage.is_away:
            self._watch.missed(*(shard.keys.stream for shard in self._context.shards))
            self._reclaimer.now()
        self._own.list_all()

    def _hand_back(self, unstarted: list[Record]) -> None:
        for record in unstarted:
            self._leases.wait(record, 0, begun=False)

    def _finish(self) -> Effects[None]:
        """Wait for running handlers, abandon those that do not end in time, and hand back the rest."""
        yield from self._end_handlers()
        if self.shutdown.at_once:
            self._abandon()
        else:
            yield from self._ride_out(self._in_group(self._leave))

    def _abandon(self) -> None:
        self.abandoned = len(self._leases.records())
        if self.abandoned:
            text = "handlers abandoned"
            self._log.warning(text, records=self.abandoned, ack_timeout=self._member.ack_timeout)

    def report(self) -> Effects[None]:
        """Do nothing: a group's list of consumers says when each was last seen."""
        yield from ()

    def settle(self) -> Effects[None]:
        """Settle outcomes without taking records."""
        yield from self._in_group(self._settle)

    def _settle(self) -> Effects[None]:
        yield from self._exchange(0)

    def _leave(self) -> Effects[None]:
        trouble: DelayqError | None = None
        try:
            yield from self.settle()
        except DelayqError as error:  # raised below: the other records are handed back first
            trouble = error
        waiting = self._leases.all_waiting()
        known = {id(record) for record, _ in waiting}
        running = [record for record in self._leases.records() if id(record) not in known]
        if waiting or running:
            counted = [*waiting, *((record, False) for record in running)]
            yield from settle.hand_back(*self._me, self._keeper, counted)
        for record in running:
            shutdown.log_interrupted(record)
        if not self._member.lasts:
            yield from settle.leave(*self._me)
        if trouble is not None:
            raise trouble
