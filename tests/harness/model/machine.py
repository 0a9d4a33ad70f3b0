"""One random program: each step is a call on a queue and on the model, and both results must be equal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any
from unittest import mock

import redis
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from delayq import Message, Queue, backoff, errors
from delayq.model import lease_clock
from delayq.model.placement import STATES
from delayq.operations import schedule_chain
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, unwrap
from delayq.types import QueueStats
from tests.harness.model import groups
from tests.harness.model import model as expected
from tests.harness.model.beyond import Beyond, comparable, due_and_created
from tests.harness.model.features import Met
from tests.harness.model.grouping import Grouping
from tests.harness.model.held import PURGEABLE, Clock, Handed, retrying
from tests.harness.model.ledger import Ledger
from tests.harness.model.model import Model
from tests.harness.model.replies import LostReplies, Reply
from tests.harness.model.steps import MIX, STEPS
from tests.harness.model.stored import Stored, explained
from tests.harness.model.together import Together, key_of
from tests.harness.model.views import known, known_to_model, seen, seen_by_model

BACKOFF_MS = (1, 700, 30_000)
RETENTION_MS = 1000

taken: Counter[str] = Counter()
"""The paths that the programs have taken so far, and how often."""

met = Met()
"""The features that have met in a program."""


def look(context: QueueContext) -> Operation[int]:
    """Take back what a consumer takes back, on all shards."""
    shards = yield from context.opened()
    results = yield [context.watch.look(scripts, is_consumer=True) for scripts in shards]
    return sum(map(unwrap, results))


class Life(Beyond, Grouping, Together, RuleBasedStateMachine):
    """A new queue and its model."""

    taken = taken

    def __init__(self, client: redis.Redis) -> None:
        super().__init__()
        client.flushall()
        self.client = client
        self.now = Clock()
        self.replies = LostReplies()
        self.asks_again = False
        self.handed: list[tuple[Message, Handed]] = []
        self.crashed: list[tuple[Message, Handed]] = []
        self.features: set[str] = set()
        self.ledger: Ledger | None = None
        self.ids = ["r"]
        self.placed: set[str] = set()  # those that started under an earlier limit
        self.urgent: tuple[Queue, Model] | None = None

    @initialize(mix=MIX)
    def begin(self, mix: dict[str, Any]) -> None:
        self.shards, self.limits = mix["shards"], mix["limits"] if mix["shards"] == 1 else set()
        self._leases = mock.patch.object(lease_clock, "time", self)
        self._leases.start()
        self._dice = mock.patch.object(schedule_chain, "random", SimpleNamespace(randint=lambda least, _: least))
        self._dice.start()
        self.queue = self.client_of_queue()
        self.queue.execute(lambda context: context.opened(create=True))
        context = self.queue._context
        self.keys = [shard.keys for shard in context.shards]
        homes = {id(shard): number for number, shard in enumerate(context.shards)}
        self.model = Model(self.now, BACKOFF_MS, self.shards, lambda id_: homes[id(context.shard(id_))], key_of)
        self.model.recorded = True
        self.stored = Stored(self.client, self.keys)
        if self.limits:
            self.configure(mix["numbers"])
        if mix["ledger"]:
            self.queue.configure(events=True)
            self.model.has_ledger, self.model.needs = True, 3
            self.ledger = Ledger(self.client, self.keys)
        self.stored.read()  # that rang
        self.next_work = [math.inf] * self.shards
        if self.shards > 1:
            self.features.add("shards")
        taken["programs"] += 1

    def client_of_queue(self, name: str = "q") -> Queue:
        """A client of the queue, as in a new process; or of the queue that has priority over it."""
        is_main = name == "q"
        waits = backoff.sequence([ms / 1000 for ms in BACKOFF_MS])
        key = (lambda message: key_of(message.id)) if is_main and "per_key" in self.limits else None
        queue = Queue(
            name,
            redis=self.client,
            clock=self.now,
            backoff=waits,
            shards=self.shards if is_main else 1,
            concurrency_key=key,
            dead_retention=RETENTION_MS / 1000,
        )
        # Duties depend on the wall clock: the model does them as separate steps.
        vars(queue._receiver._upkeep)["_duties"] = tuple
        return self.replies.within(queue)

    def clock_gettime(self, _: int) -> float:
        """The time that clients use for their leases."""
        return self.now.us / 1_000_000

    def teardown(self) -> None:
        self._leases.stop()
        self._dice.stop()
        met.note(self.features)

    # One rule, not one per kind: Hypothesis leaves some of many rules out of each program, and few would get far.
    @rule(step=STEPS)
    def step(self, step: tuple[str, dict[str, Any], Reply, bool]) -> None:
        kind, given, self.replies.next, self.asks_again = step
        arguments = dict(given)
        if "state" in arguments:  # choose a message in that state, if there is one
            state = arguments.pop("state") or ""
            held = self.occurrences() if state == "schedule" else [m.id for m in self.model.within(state)]
            arguments["id"] = held[0] if held else arguments["id"]
            if "@" in arguments["id"]:
                taken[f"{kind} an occurrence"] += 1
        getattr(self, kind)(**arguments)

    def both(self, verb: str, real: Callable[[], Any], model: Callable[[], Any]) -> Any:
        """Run a step on both, a microsecond after the last one; return the result they agree on.

        When the reply to a call is lost and the client gives up, it may ask again.
        """
        self.now.micros += 1
        before = Counter(self.model.counters)
        self.replies.begin()
        got = outcome(real)
        self.replies.end()
        reply = self.replies.last
        if reply == "unheard" or (reply == "repeated" and verb != "receive"):  # receive never claims twice
            self.model.heard, self.model.lost = False, stage(self.replies.trip)
            outcome(model)
            self.model.heard, self.model.lost = True, ""
        if reply != "heard":
            taken[f"reply {reply}"] += 1
            self.features.add("lost reply")
        wanted = "ServerUnreachable" if reply == "unheard" else outcome(model)
        assert got == wanted, f"{verb}, reply {reply}: the queue says {got!r}, the model {wanted!r}"
        counted = self.model.counters - before
        taken.update({"steps": 1} | {f"{verb} counts {name}": 1 for name in counted})
        self.note_features(verb, counted)
        if reply == "unheard" and self.asks_again:
            return self.both(verb, real, model)
        return got

    def send(self, id: str, delay: int, conflict: Any, expires: int | None, retries: int) -> None:
        old = self.model.messages.get(id)
        was = old.state if old else "nothing"
        payload, expires = {"n": self.now.micros}, expires and delay + expires
        options = {"on_conflict": conflict, "expires_in": expires and expires / 1000} | retrying(retries, payload)
        said = self.both(
            "send",
            lambda: due_and_created(self.queue.send(payload, delay=delay / 1000, id=id, **options)),
            lambda: comparable(self.model.send(id, payload, delay, retries, expires, conflict)),
        )
        taken[f"send {conflict} over {was}"] += 1
        taken["send DuplicateMessage"] += said == "DuplicateMessage"
        self.note_replace(conflict, was)

    def receive(self, ahead: bool, limit: int, lease: int, lost: int = 0) -> list[tuple[Message, Handed]]:
        claims = not self.model.unfetched  # otherwise the claims it could not fetch may be all that it takes
        if not claims:  # one loss at a time
            self.replies.next = "heard"
        elif self.shards == 1:
            self.replies.skip = lost
        if ahead and not self.model.is_work_left():
            self.go_to_a_time_that_matters(0, 0)
        messages: list[Message] = []
        handed: list[Handed] = []

        def real() -> list[Any]:
            messages.extend(self.queue.receive(limit, lease=lease / 1000))
            return [seen(message) for message in messages]

        def model() -> list[Any]:
            handed[:] = self.model.receive(limit, lease)
            return [seen_by_model(each) for each in handed]

        self.both("receive", real, model)
        pairs = list(zip(messages, handed, strict=True))
        if self.urgent and self.model is self.urgent[1]:
            return pairs
        self.handed += pairs
        self.check_limits(handed)
        self.note_receive(handed)
        taken["receive " + ("some" if handed else "nothing")] += 1
        taken["receive payload-missing"] += any(m.reason == "payload-missing" for m in self.model.within("dead"))
        taken["receive a retry"] += any(each.attempt > 1 for each in handed)
        if self.model.is_work_left():
            taken["receive leaves some"] += 1
            if claims and not self.model.rooms() and self.shards == 1:
                self.next_work = [math.inf]  # so that the bell has to be passed on
        return pairs

    def settle(
        self, verb: str, number: int, stale: bool, *arguments: Any, kind: str | None = None, **options: Any
    ) -> Any:
        """Call a method of a running message, or of any message that was ever handed out."""
        every = [*self.crashed, *self.handed]
        if not every:
            return None
        running = [pair for pair in self.handed if self.model.is_running(pair[1])]
        chosen = every if stale or not running else running
        message, handed = chosen[-1 - number % len(chosen)]
        held = self.model.messages.get(handed.id)
        real, model = getattr(message, verb), getattr(self.model, (kind or verb).replace(" ", "_"))
        said = self.both(verb, lambda: real(**options), lambda: model(handed, *arguments))
        taken[f"{kind or verb} {said or 'done'}"] += 1
        if held is not None and said is None:
            taken[f"{verb} to {held.state}"] += 1
        return said

    def nack(self, number: int, stale: bool, delay: int | None, error: str) -> None:
        seconds = None if delay is None else delay / 1000
        self.settle("nack", number, stale, delay, error, delay=seconds, error=error)

    def ack(self, number: int, stale: bool) -> None:
        self.settle("ack", number, stale)

    def release(self, number: int, stale: bool) -> None:
        self.settle("release", number, stale)

    def extend(self, number: int, stale: bool, lease: int) -> None:
        self.settle("extend", number, stale, lease, seconds=lease / 1000)

    def reject(self, number: int, stale: bool, error: str) -> None:
        self.settle("reject", number, stale, "unwanted", error, reason="unwanted", error=error)

    def ack_many(self, count: int) -> None:
        chosen = self.handed[-count:]
        self.both(
            "ack",
            lambda: self.queue.ack([message for message, _ in chosen]),
            lambda: [outcome(partial(self.model.ack, handed)) is None for _, handed in chosen],
        )

    def cancel(self, id: str) -> None:
        said = self.both("cancel", lambda: self.queue.cancel(id), lambda: self.model.cancel(id))
        taken[f"cancel {said}"] += 1

    def bury(self, id: str) -> None:
        said = self.both(
            "bury", lambda: self.queue.dead.bury(id, "unwanted"), lambda: self.model.bury_waiting(id, "unwanted")
        )
        taken[f"bury {said}"] += 1

    def reschedule(self, id: str, delay: int) -> None:
        said = self.both(
            "reschedule",
            lambda: self.queue.reschedule(id, delay=delay / 1000),
            lambda: self.model.reschedule(id, delay),
        )
        taken[f"reschedule {said}"] += 1

    def requeue(self, id: str, whole: bool, delay: int) -> None:
        self.one_call_only(whole)
        count = self.both(
            "requeue",
            lambda: self.queue.dead.requeue("all" if whole else id, delay=delay / 1000),
            lambda: self.model.requeue(list(self.model.messages) if whole else [id], delay),
        )
        if count != "ServerUnreachable" and count:
            taken["requeue " + ("all" if whole else "one")] += 1
            self.features.add("redrive")

    def one_call_only(self, several: bool = True) -> None:
        """Lose no reply of operations that make a call for each shard."""
        if several and self.shards > 1:
            self.replies.next = "heard"

    def purge(self, of: Any) -> None:
        self.one_call_only()
        taken.update(f"purge {m.state}" for m in self.model.within(*PURGEABLE) if of in (None, m.state))
        self.both("purge", lambda: self.queue.purge(of), lambda: self.model.purge([of] if of else PURGEABLE))

    def purge_old_dead_letters(self, age: int) -> None:
        self.one_call_only()
        self.both("purge", lambda: self.queue.dead.purge(age / 1000), lambda: self.model.purge(["dead"], age))

    def collect(self) -> None:
        self.one_call_only()
        self.both("collect", self.queue.collect_garbage, self.model.collect)

    def lose_payload(self, id: str) -> None:
        """Delete a key, as an eviction or a stray DEL does."""
        self.client.delete(self.keys[self.model.home_of(id)].message(id))
        self.model.lose_payload(id)

    def look(self, every_second: bool) -> None:
        """A consumer looks for ended leases; before, perhaps, every second until now."""
        if every_second:
            for shard, keys in enumerate(self.keys):
                watched = self.model.watched[shard]  # the shards are not in order there
                if watched.seen:
                    watched.seen = self.now.ms
                    self.client.hset(keys.watch, "looked", f"{watched.seen} {watched.start} {watched.end}")
        every = [self.model.watched[shard] for shard in range(self.shards)]
        graces = sum(each.end > self.now.ms for each in every)
        self.both("look", lambda: self.queue.execute(look), self.model.look)
        if sum(each.end > self.now.ms for each in every) > graces:
            taken["look begins a grace"] += 1

    def pause(self, for_ms: int | None) -> None:
        seconds = None if for_ms is None else for_ms / 1000
        self.both("pause", lambda: self.queue.pause(seconds), lambda: self.model.pause(for_ms))

    def resume(self) -> None:
        self.both("resume", self.queue.resume, self.model.resume)

    def let_time_pass(self, ms: int) -> None:
        self.now.ms += ms

    def go_to_a_time_that_matters(self, number: int, off: int) -> None:
        """Move the clock to a millisecond before, at or after a due time or the end of a lease."""
        ends = set(self.model.reserved.values())
        ends |= {self.model.paused_until} if self.model.paused_until is not None else set()
        times = sorted(ends.union(at for m in self.model.messages.values() for at in (m.score, m.lease_end)))
        ahead = [at + off for at in times if at + off > self.now.ms]
        if ahead:
            self.now.ms = ahead[number % len(ahead)]

    def get(self, id: str) -> None:
        self.both("get", lambda: known(self.queue.get(id)), lambda: known_to_model(self.model.messages.get(id)))

    def peek(self, of: Any) -> None:
        self.both(
            "peek",
            lambda: {info.id: known(info) for info in self.queue.peek(of, 10_000)},
            lambda: {m.id: known_to_model(m, garbage=True) for m in self.model.within(of)},
        )

    def stats(self) -> None:
        counts = Counter(m.state for m in self.model.messages.values()) + self.model.counters
        names = (*STATES, *QueueStats.COUNTERS, "missing")
        self.both(
            "stats",
            lambda: dict(zip(names, attrgetter(*names)(self.queue.stats()), strict=True)),
            lambda: {name: counts[name] for name in names},
        )

    @invariant()
    def redis_holds_what_the_model_explains(self) -> None:
        found, wanted = self.stored.read(), explained(self.model, self.keys)
        assert found == wanted, {name: (found[name], wanted[name]) for name in found if found[name] != wanted[name]}
        self.features.update(["result"] if self.model.records else [])
        self.check_books()
        self.check_bell()
        if self.ledger is not None:
            self.ledger.check(self.model)

    def check_books(self) -> None:
        gone = sum(self.model.counters[name] for name in ("acked", "cancelled", "expired", "purged"))
        inside = sum(m.state != "garbage" for m in self.model.messages.values())
        assert self.model.counters["sent"] == gone + inside

    def check_bell(self) -> None:
        before, self.next_work = self.next_work, [self.model.next_work(shard) for shard in range(self.shards)]
        for now, then, rang in zip(self.next_work, before, self.stored.rang, strict=True):
            if now < then:
                taken["rang"] += 1
                assert rang, "there is work earlier than before, and an idle consumer would sleep on"


def stage(trip: set[str]) -> str:
    """Return which round trip of a claim it was."""
    trips = {"ready_to_unack": "claim"} | dict.fromkeys(("MGET", "fitting", "HGET"), "fetch")
    trips["acquire_slot"] = "slots"
    for command, name in trips.items():
        if command in trip:
            return name
    return "open"


EXPECTED = (
    *(errors.StaleReceipt, errors.DuplicateMessage, errors.ServerUnreachable, errors.OtherShard, errors.InvalidInput),
    *(errors.QueueFull, groups.QueueFull),
    *(expected.StaleReceipt, groups.DuplicateMessage, expected.OtherShard, expected.InvalidInput),
)


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the name of the error it raises."""
    try:
        return call()
    except EXPECTED as error:
        return type(error).__name__
