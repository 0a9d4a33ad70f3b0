"""A consumer that lives is never shown as gone: its last report is at most 11 s old, whatever it does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from delayq import Consumer, Message, Outgoing, Queue
from delayq.protocol.command import Command
from delayq.runtime import multi_queue
from delayq.transport.executor import Executor
from tests.harness.servers import RedisServer
from tests.harness.simulation.fibers import Process
from tests.harness.simulation.library import exchanged
from tests.harness.simulation.server import connect
from tests.harness.simulation.simulation import SECOND, Simulation
from tests.harness.simulation.standins import Thread

MINUTE = 60 * SECOND
OLDEST = 11 * SECOND
MINUTES = 3


class Watched(Simulation):
    """Consumers on a virtual clock, and the moments of their reports.

    Attributes:
        reports: by consumer and key of the queue, in microseconds.
        samples: the moments of samples that were stored.
    """

    def __init__(self, connection: Executor) -> None:
        super().__init__(5, connection)  # a seed in which nothing goes wrong by itself
        self.cast.shards = 1
        self.reports: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.samples: list[int] = []
        self.consumers: list[Consumer] = []
        self._count = 0
        self._execute = self.server.execute
        self.server.execute = self._watch  # type: ignore[method-assign]

    def _watch(self, process: Process, call: Command[Any]) -> Any:
        reply = self._execute(process, call)
        if call.script is not None and call.script.name == "heartbeat":
            argv = call.args[1 + int(call.args[0]) :]
            self.reports[str(argv[1]), call.key].append(self.schedule.us)
        elif call.script is not None and call.script.name == "sample" and reply:
            self.samples.append(self.schedule.us)
        return reply

    def make(self, name: str = "q") -> Queue:
        return Queue(name, url="redis://simulated", lease=30, shards=self.cast.shards, clock=self.schedule.now)

    def consume(self, names: list[str], handler: Callable[[Message], Any] = bool, **options: Any) -> None:
        """Run a consumer of these queues in a process of its own."""
        self._count += 1
        name = f"c{self._count}"
        process = Process(self.stage, name)

        def run() -> None:
            consumer = Consumer([self.make(each) for each in names], handler, name=name, **options)
            self.consumers.append(consumer)
            consumer.run()

        process.spawn(run)

    def act(self, action: Callable[[Queue], object], after: float = 0.0) -> None:
        """Let another program do something."""
        process = Process(self.stage, "other")
        self.schedule.after(after * SECOND, lambda: process.spawn(lambda: action(self.make())))

    def pass_minutes(self, minutes: float = MINUTES) -> None:
        until = self.schedule.us + minutes * MINUTE
        self.schedule.run(lambda: self.schedule.us >= until)

    def check(self, number: int, away: tuple[float, float] = (0.0, 0.0)) -> None:
        """Check the reports of so many consumers and queues; while the server is `away`, seconds, there are none."""
        assert len(self.reports) == number
        began, ended = (each * SECOND for each in away)
        for who, moments in self.reports.items():
            gaps = zip([0, *moments], [*moments, self.schedule.us], strict=True)
            old = [(a, b) for a, b in gaps if b - a > OLDEST and not (a <= began and b <= ended + OLDEST)]
            assert old == [], who


@pytest.fixture
def watched(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    connection = connect(redis_server.url)
    connection.client.flushall()
    watched = Watched(connection)
    with exchanged(watched.stage, watched.network, watched.server):
        waiting = SimpleNamespace(Thread=Several(watched), current_thread=lambda: None)
        monkeypatch.setattr(multi_queue, "threading", waiting)
        yield watched
        watched.stage.close()
    connection.close()


class Several:
    """Replaces `threading.Thread` for the loops of several queues, which their consumer waits for."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def __call__(self, target: Callable[..., None], args: tuple[Any, ...], **_: Any) -> Any:
        thread = Thread(self._watched.stage, lambda: target(*args))
        return SimpleNamespace(start=thread.start, join=thread.join, is_alive=lambda: thread._runs._is_locked)


@pytest.mark.parametrize("shards", [1, 3])
def test_idle_consumers_report_and_no_sample_is_missing(watched: Watched, shards: int):
    watched.cast.shards = shards
    for _ in range(4):
        watched.consume(["q"])
    watched.pass_minutes(6)
    watched.check(4)
    assert {us // MINUTE for us in watched.samples} == set(range(6))


def test_consumers_of_a_paused_queue_report(watched: Watched):
    watched.act(lambda queue: queue.send("later"))
    watched.act(Queue.pause)
    watched.consume(["q"])
    watched.consume(["q"])
    watched.pass_minutes()
    watched.check(2)


@pytest.mark.parametrize("seconds", [0.01, 3.0, 200.0])
def test_busy_consumers_report(watched: Watched, seconds: float):
    def handle(_: Message) -> None:
        watched.cast.sleep(seconds, seconds)

    watched.act(lambda queue: queue.send_many([Outgoing(n, delay=3 * n) for n in range(60)]))
    watched.consume(["q"], handle, concurrency=1)
    watched.consume(["q"], handle, concurrency=4)
    watched.pass_minutes()
    watched.check(2)


@pytest.mark.parametrize("busy", [False, True])
def test_consumers_report_again_after_an_outage(watched: Watched, busy: bool):
    def handle(_: Message) -> None:
        watched.cast.sleep(30, 30)

    for _ in range(3):
        watched.consume(["q"], handle, concurrency=1)
    if busy:
        watched.act(lambda queue: queue.send_many([Outgoing(n) for n in range(30)]))
    watched.pass_minutes(1)
    watched.network.down_until = watched.schedule.us + 25 * SECOND
    watched.pass_minutes()
    watched.check(3, away=(60, 85))


def test_consumer_of_several_queues_reports_in_each(watched: Watched):
    def handle(_: Message) -> None:
        watched.cast.sleep(20, 20)

    watched.consume(["q", "r", "s"], handle, concurrency=1)
    watched.act(lambda queue: queue.send_many([Outgoing(n) for n in range(60)]), after=5)
    watched.pass_minutes()
    watched.check(3)


def stop(watched: Watched) -> None:
    watched.consumers[0].take_signal()


def test_stopping_consumer_reports_while_its_handlers_run(watched: Watched):
    def handle(_: Message) -> None:
        watched.cast.sleep(500, 500)

    watched.act(lambda queue: queue.send("long"))
    watched.consume(["q"], handle, shutdown_timeout=400)
    watched.schedule.after(30 * SECOND, partial(stop, watched))
    watched.pass_minutes()
    watched.check(1)
