"""One random program: each step is a call on a queue and on the model, whose outcomes must be equal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import redis
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from delayq import Message, Queue, backoff, errors
from delayq.model.placement import STATES
from delayq.types import QueueStats
from tests.harness.model import model as expected
from tests.harness.model.beyond import Beyond, due_and_created
from tests.harness.model.held import PURGEABLE, WAITING, Clock, Handed
from tests.harness.model.ledger import Ledger
from tests.harness.model.model import Model
from tests.harness.model.steps import STEPS
from tests.harness.model.stored import Stored, explained
from tests.harness.model.views import known, known_to_model, seen, seen_by_model

BACKOFF_MS = (1, 700, 30_000)

taken: Counter[str] = Counter()
"""The paths that the programs have taken so far, and how often."""


class Life(Beyond, RuleBasedStateMachine):
    """A queue that is new, and its model."""

    taken = taken

    def __init__(self, client: redis.Redis) -> None:
        super().__init__()
        client.flushall()
        self.client = client
        self.now = Clock()
        waits = backoff.sequence([ms / 1000 for ms in BACKOFF_MS])
        self.queue = Queue("q", redis=client, clock=self.now, backoff=waits)
        vars(self.queue._receiver._upkeep)["_duties"] = (
            tuple  # which come by the wall clock: the model collects when told to
        )
        self.keys = self.queue._context.shards[0].keys
        self.model = Model(self.now, BACKOFF_MS)
        self.stored = Stored(client, self.keys)
        self.handed: list[tuple[Message, Handed]] = []
        self.next_work = math.inf
        self.ledger = None
        if taken["programs"] % 2:
            self.queue.configure(events=True)
            self.model.recorded = self.model.has_ledger = True
            self.ledger = Ledger(client, self.keys.events)
            self.stored.read()  # that rang
        taken["programs"] += 1

    # One rule, not one a kind: of many rules Hypothesis leaves some out of each program, and few would get far.
    @rule(step=STEPS)
    def step(self, step: tuple[str, dict[str, Any]]) -> None:
        kind, given = step
        arguments = dict(given)
        if "state" in arguments:  # a message in that state, if there is one
            held = self.model.within(arguments.pop("state") or "")
            arguments["id"] = held[0].id if held else arguments["id"]
        getattr(self, kind)(**arguments)

    def both(self, verb: str, real: Callable[[], Any], model: Callable[[], Any]) -> Any:
        """Run a step on both, a microsecond after the last one; return the outcome that they agree on."""
        self.now.micros += 1
        before = Counter(self.model.counters)
        got, wanted = outcome(real), outcome(model)
        assert got == wanted, f"{verb}: the queue says {got!r}, the model {wanted!r}"
        counted = self.model.counters - before
        taken.update({"steps": 1} | {f"{verb} counts {name}": 1 for name in counted})
        return got

    def send(self, id: str, delay: int, conflict: Any, expires: int | None, retries: int) -> None:
        old = self.model.messages.get(id)
        was = old.state if old else "nothing"
        due_is_told = conflict == "replace" or was in WAITING
        payload, expires = {"n": self.now.micros}, expires and delay + expires
        options = {"on_conflict": conflict, "max_retries": retries, "expires_in": expires and expires / 1000}
        said = self.both(
            "send",
            lambda: due_and_created(self.queue.send(payload, delay / 1000, id=id, **options), due_is_told),
            lambda: self.model.send(id, payload, delay, retries, expires, conflict),
        )
        taken[f"send {conflict} over {was}"] += 1
        taken["send DuplicateMessage"] += said == "DuplicateMessage"

    def receive(self, ahead: bool, limit: int, lease: int) -> None:
        if ahead and not self.model.is_work_left():
            self.go_to_a_time_that_matters(0, 0)
        messages: list[Message] = []
        handed: list[Handed] = []

        def real() -> list[Any]:
            messages.extend(self.queue.receive(limit, lease=lease / 1000))
            return [seen(message) for message in messages]

        def model() -> list[Any]:
            handed.extend(self.model.receive(limit, lease))
            return [seen_by_model(each, self.now) for each in handed]

        self.both("receive", real, model)
        self.handed += zip(messages, handed, strict=True)
        taken["receive " + ("some" if handed else "nothing")] += 1
        taken["receive payload-missing"] += any(m.reason == "payload-missing" for m in self.model.within("dead"))
        taken["receive a retry"] += any(each.attempt > 1 for each in handed)
        if self.model.is_work_left():
            taken["receive leaves some"] += 1
            self.next_work = math.inf  # so that the bell must have been passed on

    def settle(
        self, verb: str, number: int, stale: bool, *arguments: Any, kind: str | None = None, **options: Any
    ) -> None:
        """Call a method of a message that runs, or of any that was ever handed out."""
        if not self.handed:
            return
        running = [pair for pair in self.handed if self.model.is_running(pair[1])]
        chosen = self.handed if stale or not running else running
        message, handed = chosen[-1 - number % len(chosen)]
        held = self.model.messages.get(handed.id)
        real, model = getattr(message, verb), getattr(self.model, verb)
        said = self.both(verb, lambda: real(**options), lambda: model(handed, *arguments))
        taken[f"{kind or verb} {said or 'done'}"] += 1
        if held is not None and said is None:
            taken[f"{verb} to {held.state}"] += 1

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

    def reschedule(self, id: str, delay: int) -> None:
        said = self.both(
            "reschedule", lambda: self.queue.reschedule(id, delay / 1000), lambda: self.model.reschedule(id, delay)
        )
        taken[f"reschedule {said}"] += 1

    def requeue(self, id: str, whole: bool, delay: int) -> None:
        count = self.both(
            "requeue",
            lambda: self.queue.dead.requeue("all" if whole else id, delay / 1000),
            lambda: self.model.requeue("abcdef" if whole else id, delay),
        )
        taken["requeue " + ("all" if whole else "one")] += count > 0

    def purge(self, of: Any) -> None:
        taken.update(f"purge {m.state}" for m in self.model.within(*PURGEABLE) if of in (None, m.state))
        self.both("purge", lambda: self.queue.purge(of), lambda: self.model.purge([of] if of else PURGEABLE))

    def purge_old_dead_letters(self, age: int) -> None:
        self.both("purge", lambda: self.queue.dead.purge(age / 1000), lambda: self.model.purge(["dead"], age))

    def collect(self) -> None:
        self.both("collect", self.queue.collect_garbage, self.model.collect)

    def lose_payload(self, id: str) -> None:
        """What an eviction does, or a stray DEL."""
        self.client.delete(self.keys.message(id))
        self.model.lose_payload(id)

    def pause(self) -> None:
        self.both("pause", self.queue.pause, self.model.pause)

    def resume(self) -> None:
        self.both("resume", self.queue.resume, self.model.resume)

    def let_time_pass(self, ms: int) -> None:
        self.now.ms += ms

    def go_to_a_time_that_matters(self, number: int, off: int) -> None:
        """To a millisecond before, at or after a due time or the end of a lease."""
        ends = set(self.model.reserved.values())
        times = sorted(ends.union(at for m in self.model.messages.values() for at in (m.score, m.lease_end)))
        ahead = [at + off for at in times if at + off > self.now.ms]
        if ahead:
            self.now.ms = ahead[number % len(ahead)]

    def get(self, id: str) -> None:
        self.both("get", lambda: known(self.queue.get(id)), lambda: known_to_model(self.model.messages.get(id)))

    def peek(self, of: Any) -> None:
        self.both(
            "peek",
            lambda: {info.id: known(info) for info in self.queue.peek(of)},
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
        self.check_books()
        self.check_bell()
        if self.ledger is not None:
            self.ledger.check(self.model)

    def check_books(self) -> None:
        gone = sum(self.model.counters[name] for name in ("acked", "cancelled", "expired", "purged"))
        inside = sum(m.state != "garbage" for m in self.model.messages.values())
        assert self.model.counters["sent"] == gone + inside

    def check_bell(self) -> None:
        before, self.next_work = self.next_work, self.model.next_work()
        if self.next_work < before:
            taken["rang"] += 1
            assert self.stored.rang, "there is work earlier than before, and an idle consumer would sleep on"


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or the name of the error that it raises."""
    try:
        return call()
    except (errors.StaleReceipt, errors.DuplicateMessage, expected.StaleReceipt, expected.DuplicateMessage) as error:
        return type(error).__name__
