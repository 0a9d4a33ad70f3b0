"""Steps that combine features: limits, schedules, batches, crashes, and the duties of consumers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal
from unittest import mock

from delayq import Message, Outgoing, Queue, Reject
from delayq.model import outcome as oc
from delayq.model.batch_handler import BatchHandler, Batching
from delayq.model.interval import Interval
from delayq.model.units import timestamp_ms
from delayq.operations import key_slots, schedules, settle
from delayq.operations.upkeep import clean_up
from delayq.runtime.batch_pool import handled
from delayq.runtime.fair_dispatch import FairDispatcher, QueueLane
from tests.harness.model.beyond import comparable, due_and_created
from tests.harness.model.groups import QueueFull
from tests.harness.model.held import Clock, Handed, Plan, retrying
from tests.harness.model.model import Model, StaleReceipt
from tests.harness.model.records import UNKNOWN
from tests.harness.model.replies import LostReplies

KEYS = {"a": "red", "b": "red", "c": "red", "d": "red", "e": "blue", "s": "blue"}
SCHEDULE = "s"


def key_of(message_id: str) -> str | None:
    """The key of a message: occurrences of schedules share the key of e, and f has none."""
    return KEYS.get(message_id.partition("@")[0])


class Together:
    """A part of `Life`, which has these attributes."""

    taken: ClassVar[Counter[str]]
    features: set[str]
    queue: Queue
    model: Model
    now: Clock
    limits: set[str]
    shards: int
    handed: list[tuple[Message, Handed]]
    crashed: list[tuple[Message, Handed]]
    both: Callable[..., Any]
    send: Callable[..., None]
    receive: Callable[..., list[tuple[Message, Handed]]]
    go_to_a_time_that_matters: Callable[[int, int], None]
    client_of_queue: Callable[..., Queue]
    urgent: tuple[Queue, Model] | None
    replies: LostReplies
    ids: list[str]
    placed: set[str]

    # -- limits --------------------------------------------------------------------------------------------------------

    def configure(self, numbers: dict[str, Any]) -> None:
        """Set limits of the kinds that this program has."""
        if not self.limits:
            return
        limits = {name: numbers[name] if name in self.limits else None for name in numbers}
        given: dict[str, Any] = {}
        if limits["rate"]:
            given["rate"] = "{}/{}ms".format(*limits["rate"])
        if limits["concurrency"]:
            given["concurrency"] = limits["concurrency"]
        if limits["per_key"]:
            given["concurrency_per_key"] = limits["per_key"]
        self.placed |= set(self.model.kept)
        self.both("configure", lambda: self.queue.configure(**given), lambda: self.model.configure(**limits))

    def keep_dead(self, most: int) -> None:
        self.replies.next = "heard"  # it makes several calls
        self.both("keep dead", lambda: self.queue.configure(max_dead=most), lambda: self.model.keep_dead(most))

    def check_limits(self, handed: list[Handed]) -> None:
        """No more messages start than the limits allow, as consumers see it, neither at a time nor in any period."""
        model = self.model
        for each in handed:
            assert each.due <= self.now.ms, "too early"
        if model.rate and handed:
            most, span = model.rate
            begun = Counter(each.at_us for _, each in (*self.crashed, *self.handed))
            kept = begun & Counter(model.hand_outs)  # except those that were returned unstarted
            assert sum(count for at, count in kept.items() if at > self.now.us - span * 1000) <= most
        running = [each for _, each in (*self.crashed, *self.handed) if model.is_running(each)]
        if model.concurrency is not None and handed:
            assert len(running) <= model.concurrency
        if model.per_key is not None:
            # A message that started before the limit was lowered keeps its slot.
            keys = {each.key for each in handed if each.id not in self.placed}
            self.placed -= {each.id for each in handed}
            for key, count in Counter(each.key for each in running if each.key).items():
                assert count <= model.per_key or key not in keys

    def look_through(self) -> None:
        self.both("look through", lambda: self.queue.execute(key_slots.look_through), self.model_looks_through)

    def model_looks_through(self) -> None:
        if "per_key" in self.limits:
            self.model.look_through()

    # -- schedules -----------------------------------------------------------------------------------------------------

    def add_schedule(self, every: int, missed: Any, grace: int, retries: int, wait: bool) -> None:
        plan = Plan(every, missed, grace if missed == "skip" else 0)
        options = {"missed": missed} | retrying(retries) | ({"grace": grace / 1000} if missed == "skip" else {})
        when, payload = f"every {every // 1000}s", {"scheduled": True}

        def real() -> int:
            found = self.queue.schedules.add(SCHEDULE, when, payload, **options)
            return timestamp_ms(found.next_at) if found.next_at else 0

        self.both("add schedule", real, lambda: self.model.add_schedule(SCHEDULE, plan, payload, retries))
        if wait and not self.model.is_paused:
            self.now.ms = max(self.now.ms, self.model.schedules[SCHEDULE].armed)
            self.receive(False, 4, 30_000)

    def change_schedule(self, how: Literal["pause", "resume", "remove", "run_now"]) -> None:
        if how == "run_now":
            before = f"{SCHEDULE}@run-"
            with mock.patch.object(schedules, "new_id", return_value=self.new_id(before).removeprefix(before)):
                self.both(
                    "run schedule",
                    lambda: self.queue.schedules.run_now(SCHEDULE).id,
                    lambda: self.model.run_schedule(SCHEDULE, self.ids[-1]),
                )
            return
        said: list[bool] = []

        def model() -> bool:  # a call that is repeated is still told that it has removed the schedule
            said.append(getattr(self.model, f"{how}_schedule")(SCHEDULE))
            return any(said[-2:] if self.replies.last == "repeated" else said[-1:])

        self.both(f"{how} schedule", lambda: getattr(self.queue.schedules, how)(SCHEDULE), model)

    def occurrences(self) -> list[str]:
        """The id of the armed slot, or that of the next one, in turn."""
        there = self.model.schedules.get(SCHEDULE)
        if there is None or not there.armed:
            return []
        slots = [there.armed, there.plan.after(there.armed)]
        return [self.model.occurrence(SCHEDULE, slots[self.now.micros % 2])]

    def new_id(self, before: str = "") -> str:
        """An id for a message that has none."""
        self.ids.append(f"{before}r{len(self.ids)}")
        return self.ids[-1]

    def fill(self, ids: list[str], delay: int, retries: int, expires: int | None) -> None:
        """A send of several messages."""
        payload, expires = {"n": self.now.micros}, expires and delay + expires
        options: dict[str, Any] = {"delay": delay / 1000} | retrying(retries, payload)
        options["expires_in"] = expires and expires / 1000
        outgoing = [Outgoing(payload, id=id, **options) for id in ids]
        self.both(
            "fill",
            lambda: [due_and_created(sent) for sent in self.queue.send_many(outgoing)],
            lambda: self.model_sends(ids, payload, delay, retries, expires),
        )

    def model_sends(self, ids: list[str], *options: Any) -> list[tuple[Any, bool]]:
        """All that the queue has room for are stored, even if there is none for the others."""
        sent, unsent = [], 0
        for id in ids:
            try:
                sent.append(comparable(self.model.send(id, *options)))
            except QueueFull:
                unsent += 1
        if unsent:
            raise QueueFull
        return sent

    # -- consumers -----------------------------------------------------------------------------------------------------

    def batch(self, ahead: bool, limit: int, lease: int, verdicts: list[str]) -> None:
        """A batch handler gets the messages of a claim, and decides the outcome of each."""
        pairs = self.receive(ahead, limit, lease)
        if not pairs:
            return
        said = dict(zip((message.id for message, _ in pairs), verdicts, strict=False))
        given: dict[str, Any] = {"done": True, "failed": False, "unwanted": Reject("unwanted")}
        handler = BatchHandler.of(lambda _: {id: given[verdict] for id, verdict in said.items()}, 4, 0)
        outcomes = handled(Batching(handler, self.queue.middleware, lambda _: False), [each for each, _ in pairs])

        def model() -> list[bool]:
            order = sorted(pairs, key=self.settled_as(said))
            ours = {handed.id: self.model_settles(handed, said[handed.id]) for _, handed in order}
            return [ours[handed.id] for _, handed in pairs]

        self.both("batch", lambda: self.queue.execute(settle.settle, outcomes), model)
        if len(pairs) > 1:
            self.features.add("batch")

    def lack_task(self, ahead: bool, limit: int, lease: int, times: int) -> None:
        """A consumer lacks the task of what it receives, again and again."""
        for _ in range(times):
            pairs = self.receive(ahead, limit, lease)
            if not pairs:
                return
            outcomes = [(message, oc.Unknown("t", UNKNOWN)) for message, _ in pairs]
            said = self.both(
                "lack task",
                lambda outcomes=outcomes: self.queue.execute(settle.settle, outcomes),
                lambda pairs=pairs: [self.model_lacks_task(handed) for _, handed in pairs],
            )
            if said == "ServerUnreachable":
                return
            self.features.add("unknown task")
            m = self.model.messages.get(pairs[0][1].id)
            if m is None or m.state != "retry":
                self.taken["lack task dies"] += m is not None and m.reason == "unknown-task"
                return
            self.taken["lack task waits"] += 1
            if times > 2:
                self.now.ms = max(self.now.ms, m.score)

    def model_lacks_task(self, handed: Handed) -> bool:
        try:
            self.model.lack_task(handed)
        except StaleReceipt:
            return False
        return True

    def settled_as(self, said: dict[str, str]) -> Callable[[tuple[Message, Handed]], int]:
        """The order of calls: acks with results first, and the other acks share one call after all others."""
        return lambda pair: 1 if said[pair[1].id] != "done" else 0 if pair[0].retention else 2

    def model_settles(self, handed: Handed, verdict: str) -> bool:
        try:
            if verdict == "done":
                self.model.ack(handed)
            elif verdict == "failed":
                self.model.nack(handed, None, "the handler returned False")
            else:
                self.model.reject(handed, "unwanted", "Reject: unwanted")
        except StaleReceipt:
            return False
        return True

    def serve(self, urgent: int, ahead: bool, lease: int, verdicts: list[str]) -> None:
        """A consumer of two queues by priority, with one handler: this queue is the second.

        delayq's dispatcher decides which queue claims and starts messages; the clock does not move.
        """
        served = Counter[str]()
        if ahead and not self.model.is_work_left():
            self.go_to_a_time_that_matters(0, 0)
        dispatcher = FairDispatcher(1, [1, 1], True, False, None, lambda: None)
        first, second = dispatcher.lanes
        begun: list[tuple[QueueLane[Any], Message]] = []
        pairs: dict[str, Handed] = {}
        for lane in dispatcher.lanes:
            lane.start = lambda message, lane=lane: begun.append((lane, message))  # type: ignore[misc]
        with self.at_urgent():
            for number in range(urgent):
                self.send(f"u{number}", 0, "ignore", None, 1)
        for _ in range(3):
            for lane in (second, first):
                room = min(4, lane.room(0.01))
                with self.at_urgent(lane is first):
                    found = self.receive(False, room, lease) if room else []
                pairs |= {message.receipt + message.id: handed for message, handed in found}
                lane.bring([message for message, _ in found])
                lane.answered(len(found), 0, False)
                while begun:
                    of, message = begun.pop()
                    assert of is first or not first.waiting, "a message begins before one of a queue of higher priority"
                    served[message.queue] += 1
                    self.end(of is first, message, pairs[message.receipt + message.id], verdicts[len(served) % 4])
                    of.ended()
                for message in second.returned(0):  # waiting behind messages of higher priority uses up no retry
                    handed = pairs[message.receipt + message.id]
                    self.both("hand back", message.release, lambda handed=handed: self.model.release(handed))
        if len(served) == 2:
            self.features.add("priorities")

    def end(self, is_urgent: bool, message: Message, handed: Handed, verdict: str) -> None:
        """A handler ends."""
        outcome = {"done": oc.DONE, "failed": oc.of_return(False), "unwanted": oc.of_error(Reject("unwanted"), None)}[
            verdict
        ]
        with self.at_urgent(is_urgent):
            self.both(
                "settle",
                lambda: self.queue.execute(settle.settle, [(message, outcome)]),
                lambda: [self.model_settles(handed, verdict)],
            )

    @contextmanager
    def at_urgent(self, really: bool = True) -> Iterator[None]:
        """Use the queue of higher priority for the following calls."""
        if not really:
            yield
            return
        if self.urgent is None:
            queue = self.client_of_queue("urgent")
            self.urgent = queue, Model(self.now, self.model.backoff_ms, recorded=True, has_ledger=False)
        mine, (self.queue, self.model) = (self.queue, self.model), self.urgent
        try:
            yield
        finally:
            self.queue, self.model = mine

    def crash(self, is_found: bool) -> None:
        """The consumer dies with everything it holds, and another one replaces it: its leases just end.

        Its messages may still be settled, by a process that was only stopped and thought dead.
        """
        ends = [self.model.messages[each.id].lease_end for _, each in self.handed if self.model.is_running(each)]
        self.crashed, self.handed = self.crashed + self.handed, []
        self.queue, self.model.first_shard, self.model.unfetched = self.client_of_queue(), 0, []
        self.model.unknown_since = None
        if is_found and ends:
            self.now.ms = max(self.now.ms, max(ends) + 1)
            self.receive(False, 4, 30_000)

    def clean_up(self, later: int) -> None:
        """What a consumer does each minute: delete old dead letters, revive stopped schedules."""
        self.replies.next = "heard"  # it makes several calls
        self.now.ms += later

        def real() -> None:
            while self.queue.execute(clean_up, Interval(60)):
                pass

        self.both("clean up", real, lambda: self.model.clean_up(1000))

    # -- combined features ---------------------------------------------------------------------------------------------

    def note_replace(self, conflict: str, was: str) -> None:
        if conflict == "replace" and was not in ("nothing", "garbage"):
            self.features.add("replace while it runs" if was == "unack" else "replace")

    def note_features(self, verb: str, counted: Counter[str]) -> None:
        """Note which features took effect, according to the counters."""
        model, now = self.model, self.now.ms
        if counted["expired"] and any(m.expires and m.score == now for m in model.within("garbage")):
            self.features.add("expiry")
        if counted["held_back"]:
            self.features.add("key limit")
        if counted["lease_lost"] and self.crashed:
            self.features.add("crash")
        if counted["purged"] and verb == "clean up":
            self.features.add("dead retention")

    def note_receive(self, handed: list[Handed]) -> None:
        """Note what has held messages back, and what was handed out."""
        model = self.model
        if any("@" in each.id for each in handed):
            self.features.add("schedule")
        is_due = any(m.score <= self.now.ms for m in model.within("pending", "ready", "retry"))
        if is_due and model.is_paused:
            self.features.add("pause")
        elif is_due:
            self.features.update(limit for limit, room in model.rooms().items() if room <= 0)
