"""One run of a consumer of a topic, as decisions without I/O: both faces make the moves that it asks for.

Settle what is done, and take: what has waited, what others have left, what is new; sleep only when there is nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from delayq import outcome as oc
from delayq import pace
from delayq.calls import expect, nothing, together
from delayq.errors import DelayqError, ServerError, StoreError
from delayq.holding import Holding
from delayq.log import log
from delayq.member import EXHAUSTED, Member
from delayq.moves import CLOSE, Crew, Moves, Pause, Rest, Ring
from delayq.patience import Patience
from delayq.topics import grouping, publishing, rescuing, settling
from delayq.topics.core import TopicCore
from delayq.topics.record import Record
from delayq.topics.scripts import MAX_LOOKED_AFTER
from delayq.turns import INTERRUPTED_SECONDS, SHUTDOWN

FORGETTING_SECONDS = 600.0  # between two looks for consumers of the group that are gone
MOST_WAITING = 1000  # records that wait to be tried again; with more, nothing new is taken


class TopicTurns:
    """The state of a run.

    Args:
        keeper: the consumer of the group that keeps what is handed back.
        burst: return when there is nothing to be handled at once.
        most: return after so many deliveries, or None.
    """

    _workers: Crew[Record]

    def __init__(self, core: TopicCore, member: Member, keeper: str, burst: bool, most: int | None) -> None:
        self.handled = self.failed = 0
        self._core = core
        self._member = member
        self._me = (core, member.group, member.name)
        self._keeper = keeper
        self._burst = burst
        self._most = most
        self._holding = Holding(member.ack_timeout)
        self._places: dict[int, str] = {}  # where a long list of what others hold is to be looked through, a shard
        self._rescuing = pace.Every(member.ack_timeout / 2)
        self._forgetting = pace.Every(FORGETTING_SECONDS)
        self._unsettled: list[tuple[Record, oc.Outcome]] = []
        self._unfinished = 0  # with the workers
        self._looks_back = self._is_new = True
        self._patience = Patience(topic=core.name, group=member.group, consumer=member.name)
        self._stopping = self._at_once = False
        self._deadline = 0.0  # of running handlers, in the end
        self._trouble: DelayqError | None = None
        self._log = log.bind(topic=core.name, group=member.group, consumer=member.name)

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def _consume(self, grace: Callable[[], float]) -> Moves[None]:
        """Turn until stopped.

        Args:
            grace: how many seconds running handlers are given in the end.
        """
        while not self._stopping:
            yield from self._patiently(self._turn())
        self._deadline = time.monotonic() + grace()
        yield from self._finish()

    def _turn(self) -> Moves[None]:
        self._gather()
        if self._holding.renewal.due():
            yield from self._renew()
        if self._looks_back:
            yield from self._look_back()
        room = self._room()
        taken = (yield from self._take_ripe(room)) if room else 0
        if room > taken and self._rescuing.due():
            taken += yield from self._rescue(room - taken)
        if self._forgetting.due():
            yield settling.forget(self._core, self._member.group)
        limit = room - taken if self._holding.waiting < MOST_WAITING else 0
        handed = yield from self._exchange(limit)
        if self._most is not None and self.handled >= self._most:
            self._stopping = True
        elif not (taken or self._unsettled or (room and self._places) or (handed and handed.records)):
            if self._burst and room and not self._unfinished and self._holding.left() != 0:
                self._stopping = True
            else:
                yield from self._sleep(handed.lasts if handed else None, room)

    def _room(self) -> int:
        room = min(self._workers.room(self._unfinished), MAX_LOOKED_AFTER)
        if self._most is None:
            return room
        return max(0, min(room, self._most - self.handled - len(self._unsettled) - self._unfinished))

    # -- taking ------------------------------------------------------------------------------------------------------

    def _look_back(self) -> Moves[None]:
        """Take what is this consumer's and not known: of an earlier run, or handed out in a reply that never came."""
        since = time.monotonic()
        rows = yield grouping.held(*self._me, 0, grouping.MAX_POLLED)
        own = [Record(self._core.name, row.id, (), row.deliveries, row.shard) for row in rows]
        for record in self._holding.take(own, since):
            self._holding.wait(record, 0, begun=self._is_new)  # its fields come with it when it is its turn
        yield from self._renew()
        self._looks_back = self._is_new = False

    def _take_ripe(self, room: int) -> Moves[int]:
        """Handle those whose wait is over; return their number."""
        ripe = self._holding.ripe(room)
        if not ripe:
            return 0
        most, since = self._member.max_deliveries, time.monotonic()
        counts = {id(record): record.deliveries for record, _ in ripe}
        worn = [record for record, begun in ripe if begun and most and record.deliveries >= most]
        again = [record for record, begun in ripe if begun and record not in worn]
        fresh = [record for record, begun in ripe if not begun]
        try:
            results = yield together(
                settling.retake(*self._me, again, counts=True), settling.retake(*self._me, fresh, counts=False)
            )
            ours = [record for each in results for record in expect(each)]
        except BaseException:
            for record, begun in ripe:  # one that was retaken all the same has a delivery that was not begun
                self._holding.wait(record, 0, begun and record.deliveries == counts[id(record)])
            raise
        self._unsettled += [(record, oc.Dead(EXHAUSTED, counted=False)) for record in worn]
        for record in [*again, *fresh]:
            if record not in ours:
                self._lose(record)
        self._holding.renew(ours, since)
        self._submit(ours)
        return len(ripe)

    def _rescue(self, limit: int) -> Moves[int]:
        """Take over what nobody has renewed; return the number of records."""
        since = time.monotonic()
        most = self._member.max_deliveries
        done = yield rescuing.rescue(*self._me, self._member.ack_timeout, limit, most, self._places)
        if done.records or done.buried:
            self._log.info("records taken over", count=len(done.records), dead=done.buried)
        if len(done.records) == limit or self._places:
            self._rescuing.now()
        fresh = self._holding.take(done.records, since)
        self._submit(fresh)
        if done.trouble is not None:
            self._rescuing.now()
            raise done.trouble
        return len(fresh)

    def _exchange(self, limit: int) -> Moves[grouping.Handed | None]:
        """Settle what is done and poll (unless `limit` is 0) in the same round trips; return what was handed out."""
        settled, since = self._unsettled, time.monotonic()
        if not (settled or limit):
            return None
        polling = grouping.poll(*self._me, limit) if limit else nothing()
        results, handed = yield together(settling.settle(*self._me, settled), polling)
        self._unsettled = []
        self._note(settled, [results] * len(settled) if isinstance(results, DelayqError) else results)
        if isinstance(handed, grouping.Handed):
            self._submit(self._holding.take(handed.records, since))
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        result: grouping.Handed | None = expect(handed)
        return result

    def _submit(self, records: list[Record]) -> None:
        if records:
            self._unfinished += len(records)
            self._workers.submit(records)

    def _renew(self) -> Moves[None]:
        since, records = time.monotonic(), self._holding.records()
        lost = (yield grouping.hold(*self._me, records)) if records else []
        self._holding.renew(records, since)
        for record in lost:
            self._lose(record)

    def _lose(self, record: Record) -> None:
        if self._holding.has(record):
            self._holding.drop(record)
            self._log.bind(id=record.id, delivery=record.deliveries).warning(
                "record lost: it was taken over, or is gone"
            )

    # -- settling ----------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        if self._workers.is_behind:
            self._workers.adapt()
        for record, outcome in self._workers.outcomes():
            self._unfinished -= 1
            if isinstance(outcome, oc.HandedBack):  # not begun: it is looked whether the record is still ours
                self._holding.wait(record, 0, begun=False)
            else:
                self._unsettled.append((record, self._member.judged(record, outcome)))

    def _note(self, settled: settling.Settled, results: Sequence[bool | DelayqError]) -> None:
        for (record, outcome), ours in zip(settled, results, strict=True):
            if isinstance(ours, DelayqError):
                self._unsettled.append((record, outcome))  # once more, with the next ones
                self._trouble = ours
                continue
            if not isinstance(outcome, oc.Dead) or outcome.counted:
                self.handled += 1
                self.failed += not isinstance(outcome, oc.Done)
            if not ours:
                self._lose(record)
            elif isinstance(outcome, oc.Failed) and self._holding.has(record):
                seconds = self._member.backoff_seconds(record, outcome)
                self._holding.wait(record, seconds, begun=True)
                trace = {"exc_info": outcome.cause} if outcome.cause else {}
                self._log.bind(id=record.id, delivery=record.deliveries).warning(
                    "delivery failed", next="retry", error=outcome.error, **trace
                )
            else:
                self._holding.drop(record)
                if isinstance(outcome, oc.Dead):
                    self._log.bind(id=record.id, delivery=record.deliveries).warning(
                        "delivery failed", next="dead", error=outcome.error or outcome.reason
                    )

    # -- sleeping, trouble, and the end ------------------------------------------------------------------------------

    def _sleep(self, lasts: Sequence[str] | None, room: int) -> Moves[None]:
        """Wait for an outcome, the next duty or, behind `lasts` of the shards, a record."""
        seconds = min(pace.FALLBACK_MS / 1000, self._holding.renewal.left())
        if room:
            waits = self._holding.left()
            seconds = min(seconds, self._rescuing.left(), seconds if waits is None else waits)
        if lasts is not None:
            waiting = yield publishing.append_due(self._core)
            if len(lasts) != len(waiting.seen):  # the topic was made anew meanwhile, with more shards
                return
            if waiting.next_ms is not None:
                seconds = min(seconds, waiting.next_ms / 1000)
            yield Ring("listen", list(zip(lasts, waiting.seen, strict=True)))
        yield Rest(seconds, bells=lasts is not None)

    def _patiently(self, step: Moves[None]) -> Moves[None]:
        try:
            yield from step
        except (ServerError, StoreError) as error:
            yield Pause(self._patience.lost(error))
            self._looks_back = True
            yield CLOSE
        else:
            self._patience.served()

    def _finish(self) -> Moves[None]:
        """Wait for what runs, give up what does not end in time, hand back the rest."""
        unstarted = self._workers.unstarted()
        self._unfinished -= len(unstarted)
        for record in unstarted:
            self._holding.wait(record, 0, begun=False)
        while True:
            self._gather()
            if self._unsettled:
                yield from self._patiently(self._settle())
            late = self._at_once or time.monotonic() >= self._deadline
            if late or not (self._unfinished or self._unsettled):
                break
            if self._holding.renewal.due():
                yield from self._patiently(self._renew())
            yield Rest(min(self._deadline - time.monotonic(), self._holding.renewal.left()))
        if self._workers.interrupt() and not self._at_once:
            end = time.monotonic() + INTERRUPTED_SECONDS
            while self._unfinished and (left := end - time.monotonic()) > 0:
                yield Rest(left)
                self._gather()
        if not self._at_once:
            yield from self._patiently(self._leave())

    def _settle(self) -> Moves[None]:
        yield from self._exchange(0)

    def _leave(self) -> Moves[None]:
        back = self._holding.all_waiting()
        done = {id(record) for record, _ in [*back, *self._unsettled]}
        running = [record for record in self._holding.records() if id(record) not in done]
        late: oc.Outcome = oc.Failed(error=SHUTDOWN)
        self._unsettled += [(record, self._member.judged(record, late)) for record in running]
        yield from self._settle()
        back += self._holding.all_waiting()
        if back:
            yield settling.hand_back(*self._me, self._keeper, back)
        if not self._member.lasts:
            yield settling.leave(*self._me)
