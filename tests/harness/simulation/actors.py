"""The actors: producers, consumers, receivers and an operator. Each uses the library as a user's program does."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from delayq import Ack, Consumer, Message, Outgoing, Queue, Reject, RetryAfter, backoff
from delayq.errors import DuplicateMessage, ServerError, StaleReceipt
from delayq.model.delivery import OnConflict
from delayq.model.placement import PURGEABLE
from tests.harness.raised import ERRORS
from tests.harness.simulation.fibers import Process, Stage
from tests.harness.simulation.lives import Lives

NAMES = 6  # ids that producers reuse
SIZES = (0, 0, 0, 0, 100, 3000)  # bytes beside a payload's name; a round trip brings few of the largest
HOOKS_RAISE = 0.05  # of the calls
WAITS = backoff.sequence([0.01, 0.3, 1.5])


@dataclass
class Cast:
    """What all actors share.

    Attributes:
        lease: the lease of the queue, in seconds.
        is_fair: whether nothing goes wrong except failing handlers.
        is_calm: whether the time of faults is over: handlers succeed, and producers and keepers end.
    """

    stage: Stage
    lives: Lives
    lease: float
    shards: int
    is_fair: bool
    is_calm: bool = False
    bodies: int = 0

    @property
    def dice(self) -> random.Random:
        return self.stage.schedule.dice

    def sleep(self, least: float, most: float) -> None:
        """Let the thread wait for some seconds."""
        self.stage.fiber.sleep(self.dice.uniform(least, most) * 1_000_000)

    def queue(self) -> Queue:
        """Return a client of the queue, for a new process."""
        now = self.stage.schedule.now
        queue = Queue("q", url="redis://simulated", lease=self.lease, shards=self.shards, backoff=self.wait, clock=now)
        for hook in (queue.middleware.before_delivery, queue.middleware.after_delivery, queue.middleware.on_dead):
            hook(self.hook)
        return queue

    def body(self) -> bytes:
        """Return a payload that no other message has."""
        self.bodies += 1
        return b"m%d" % self.bodies + b" " * self.dice.choice(SIZES)

    def wait(self, attempt: int) -> float:
        """Return the wait after a failed attempt."""
        self.hook()
        return WAITS(attempt)

    def hook(self, *_: object) -> None:
        """Do what a user's function may do: raise anything."""
        if not self.is_calm and self.dice.random() < HOOKS_RAISE:
            self.lives.counts["hook raised"] += 1
            raise self.any_error()

    def any_error(self) -> BaseException:
        """Return what a user's function may raise."""
        return self.dice.choice(list(ERRORS.values()))()


class Actor:
    """A program: `main` runs in a thread of its own process.

    Attributes:
        starts_again: whether it is restarted after a crash.
    """

    starts_again: ClassVar[bool] = True

    def __init__(self, cast: Cast, name: str) -> None:
        self.cast = cast
        self.dice = cast.dice
        self.process = Process(cast.stage, name)
        self.process.spawn(self.main)

    def main(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """End cleanly and soon."""


class Producer(Actor):
    """Sends messages, some with existing ids; two threads share a client."""

    starts_again = False

    def main(self) -> None:
        queue = self.cast.queue()
        for _ in range(2):
            self.process.spawn(lambda: self.send(queue))

    def send(self, queue: Queue) -> None:
        for _ in range(self.dice.randint(2, 6)):
            self.cast.sleep(0, 1.5)
            batch = [self.message() for _ in range(self.dice.choice((1, 1, 1, 2, 5)))]
            for _ in range(2):  # a producer that does not know whether a send succeeded sends again
                try:
                    self.send_batch(queue, batch)
                    break
                except ServerError:
                    self.cast.sleep(0.1, 1)
                except DuplicateMessage:
                    break

    def send_batch(self, queue: Queue, batch: list[Outgoing]) -> None:
        if len(batch) == 1:
            m = batch[0]
            options: dict[str, Any] = {"on_conflict": m.on_conflict, "expires_in": m.expires_in}
            sents = [queue.send(m.payload, delay=m.delay, id=m.id, max_retries=m.max_retries, **options)]
        else:
            sents = queue.send_many(batch)
        for message, sent in zip(batch, sents, strict=True):
            if sent.created or message.on_conflict == "replace":
                self.cast.lives.acknowledged(message.payload)

    def message(self) -> Outgoing:
        delay = self.dice.choice((0, 0, 0.001, 0.05, self.dice.uniform(0, 4)))
        return Outgoing(
            self.cast.body(),
            delay=delay,
            id=self.dice.choice((None, f"n{self.dice.randrange(NAMES)}")),
            on_conflict=self.dice.choice(get_args(OnConflict)),
            expires_in=self.dice.choice((None, None, None, delay + 1)),
            max_retries=self.dice.choice((0, 1, 3, 3)),
        )


class Worker(Actor):
    """Runs the library's own consumer; its handlers do everything that handlers may do."""

    consumer: Consumer | None = None
    is_stopping = has_ended = False

    def main(self) -> None:
        queue, concurrency = self.cast.queue(), self.dice.randint(1, 3)
        grace = self.dice.choice((0, 0.5, 30))
        name = self.process.name
        consumer = Consumer(queue, self.handle, concurrency=concurrency, shutdown_timeout=grace, name=name)
        self.consumer = consumer
        while not self.is_stopping:
            self.process.serves_since = self.cast.stage.schedule.us
            try:
                consumer.run()
            except ServerError:  # there was no connection at the start
                self.cast.sleep(0.1, 0.5)
        self.has_ended = True

    def stop(self) -> None:
        self.process.spawn(self.end)

    def end(self) -> None:
        self.is_stopping, self.process.serves_since = True, None
        while not self.has_ended:
            if self.consumer is not None:
                self.consumer.stop()  # has no effect while it starts
            self.cast.sleep(0.1, 0.5)

    def handle(self, message: Message) -> Any:
        self.cast.sleep(0, 0)  # a thread of a dead process ends here
        self.cast.lives.started(message, strict=True)
        lease = self.cast.lease
        long = self.dice.choice((0.01, 0.01, 0.01, 0.1, lease, 2.5 * lease))
        self.cast.sleep(0, 0.02 if self.cast.is_calm else long)
        act = "done" if self.cast.is_calm else self.dice.choice((*["done"] * 6, *["chain"] * 3, *self.ACTS))
        return self.ACTS[act](self, message) if act in self.ACTS else self.done(message)

    def done(self, message: Message) -> None:
        self.cast.lives.finished(message)

    def fail(self, _: Message) -> None:
        raise self.cast.any_error()

    def say_no(self, _: Message) -> bool:
        return False

    def reject(self, _: Message) -> None:
        raise Reject("unwanted")

    def ask_for_time(self, _: Message) -> None:
        raise RetryAfter(self.dice.choice((0, 0.2)))

    def chain(self, message: Message) -> Ack:
        """Do the work, and send what follows from it."""
        self.cast.lives.finished(message)
        return Ack(then=[Outgoing(self.cast.body(), delay=self.dice.choice((0, 0.1)))])

    def die(self, _: Message) -> None:
        if self.cast.is_fair:
            raise Reject("unwanted")
        self.cast.stage.schedule.after(0, self.process.crash)
        self.cast.stage.fiber.pause()

    def settle_itself(self, message: Message) -> None:
        """Do the work, and ack before the handler returns."""
        self.cast.lives.finished(message)
        self.process.held += 1  # the handler keeps running, and its consumer takes nothing else meanwhile
        with contextlib.suppress(StaleReceipt, ServerError):
            message.ack()
        self.cast.sleep(0, 0.1)
        self.process.held -= 1
        self.process.idle_since = self.cast.stage.schedule.us

    ACTS: ClassVar[dict[str, Callable[..., Any]]] = {
        "fail": fail,
        "say_no": say_no,
        "reject": reject,
        "ask_for_time": ask_for_time,
        "chain": chain,
        "die": die,
        "settle_itself": settle_itself,
    }


class Receiver(Actor):
    """Receives messages, and settles them in every way, some of them twice, late, or not at all."""

    def main(self) -> None:
        queue = self.cast.queue()
        while not self.cast.is_calm:
            with contextlib.suppress(ServerError):
                for message in queue.receive(self.dice.randint(1, 4), wait=self.dice.choice((0, 0.5))):
                    self.cast.lives.started(message, strict=False)
                    self.settle(message)
            self.cast.sleep(0, 1.5)

    def settle(self, message: Message) -> None:
        now = self.cast.stage.schedule.us
        self.process.troubles.append((now, float("inf")))  # it may forget a message
        self.cast.sleep(0, self.dice.choice((0.01, 0.5, 1.2 * self.cast.lease)))
        for _ in range(self.dice.choice((0, 1, 1, 1, 2))):
            how = self.dice.choice(("ack", "ack", "nack", "release", "reject", "extend"))
            with contextlib.suppress(StaleReceipt, ServerError):
                if how == "ack":
                    self.cast.lives.finished(message)
                arguments: dict[str, Any] = {"nack": 0.2, "reject": "unwanted", "extend": self.cast.lease}
                getattr(message, how)(*([arguments[how]] if how in arguments else []))


class Keeper(Actor):
    """Cancels, reschedules, requeues, purges, pauses, and inspects."""

    def main(self) -> None:
        queue = self.cast.queue()
        while not self.cast.is_calm:
            self.cast.sleep(0, 0.6)
            with contextlib.suppress(ServerError):
                self.keep(queue, self.dice.choice([*self.cast.lives.present, "none"]))

    def keep(self, queue: Queue, id: str) -> None:
        act = self.dice.randrange(12)
        if act < 3:
            queue.cancel(id)
        elif act < 6:
            queue.reschedule(id, delay=self.dice.choice((0, 0.1, 2)))
        elif act == 6:
            queue.dead.requeue("all" if self.dice.random() < 0.5 else id, delay=self.dice.choice((0, 0.1)))
        elif act == 7:
            queue.purge(self.dice.choice(PURGEABLE))
        elif act == 8:
            queue.dead.purge(older_than=1)
        elif act == 9:
            queue.collect_garbage()
        elif act == 10:
            queue.pause()
            self.cast.sleep(0, 1)
            queue.resume()
        else:
            queue.get(id)
            queue.peek(self.dice.choice(PURGEABLE))
            queue.stats()
