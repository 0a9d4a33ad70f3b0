"""One simulation of a seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from delayq import Queue, doctor
from delayq.transport.executor import Executor
from tests.harness import bookkeeping
from tests.harness.simulation.actors import Actor, Cast, Keeper, Producer, Receiver, Worker
from tests.harness.simulation.fibers import Stage
from tests.harness.simulation.follower import Follower
from tests.harness.simulation.library import exchanged
from tests.harness.simulation.lives import Lives, Violation
from tests.harness.simulation.network import Network, Weather
from tests.harness.simulation.promptness import Promptness
from tests.harness.simulation.schedule import Schedule
from tests.harness.simulation.server import Server

SECOND = 1_000_000  # microseconds
STORM_US = 6 * SECOND
DRAIN_US = 120 * SECOND  # a message needs less for all its retries
LEDGER_EVERY = 7  # seeds
LASTING = {
    "meta",
    "stats",
    "bell",
    "timer",
    "watch",
    "consumers",
    "crew",
    "events",
    "samples:minute",
    "samples:ten",
}  # the keys that a drained queue leaves
END = 60  # lines of the trace that a failure shows


class Failed(AssertionError):
    """A seed has found a fault; `trace` is everything that happened until then."""

    def __init__(self, text: str, trace: list[str]) -> None:
        super().__init__("\n".join([text, *trace[-END:]]))
        self.trace = trace


@dataclass(frozen=True)
class Played:
    """The result of a seed: everything that happened, in order, and how often."""

    trace: str
    counts: Counter[str]


def play(seed: int, connection: Executor) -> Played:
    """Simulate a seed on an otherwise empty server, through `connection`.

    Raises:
        Failed: a check failed; the text says how to repeat it.
    """
    connection.client.config_set("maxmemory", 0)
    connection.client.flushall()
    simulation = Simulation(seed, connection)
    try:
        simulation.run()
    except Exception as error:
        again = f"again: python -m tests.harness.simulation {seed}"
        trace = simulation.server.trace
        raise Failed(f"seed {seed}: {type(error).__name__}: {error}\n{again}", trace) from error
    return Played("\n".join(simulation.server.trace), simulation.lives.counts)


class Simulation:
    """A server, actors, and the faults that hit them."""

    def __init__(self, seed: int, connection: Executor) -> None:
        self.schedule = Schedule(seed)
        self.dice = self.schedule.dice
        self.stage = Stage(self.schedule)
        self.lives = Lives(self.schedule)
        self._executor = connection
        follower = Follower(self.schedule, self.lives, Promptness(self.stage))
        self.server = Server(self.schedule, connection, follower)
        self.network = Network(self.stage, self.server)
        self.keeps_ledger = seed % LEDGER_EVERY == 0
        lease, shards, is_fair = self.dice.choice((0.5, 1.0, 2.0)), self.dice.choice((1, 1, 1, 2)), seed % 5 == 0
        self.cast = Cast(self.stage, self.lives, lease, shards, is_fair)
        self.actors: list[Actor] = []
        self.starts = self.full_until = 0

    def run(self) -> None:
        """Run from the first send until nothing is left."""
        if self.keeps_ledger:
            self.queue(self.cast.shards).configure(events=True)
        with exchanged(self.stage, self.network, self.server):
            try:
                self.storm()
                self.calm()
            finally:
                self.stage.close()
        self.lives.check_end()
        self.look_at_what_is_left()

    def start(self, kind: type[Actor]) -> None:
        """Start an actor."""
        self.starts += 1
        self.actors.append(kind(self.cast, f"{kind.__name__.lower()}{self.starts}"))

    def storm(self) -> None:
        """Allow all faults, or none, in which case everything must be on time."""
        if self.cast.is_fair:
            for kind in (Producer, Producer, *[Worker] * self.dice.randint(1, 3)):
                self.start(kind)
            self.schedule.run(lambda: self.schedule.us >= STORM_US)
            return
        self.network.weather = Weather(cuts=self.dice.choice((0, 0.02, 0.1)), lags=self.dice.choice((0, 0.01)))
        kinds: list[type[Actor]] = [Producer, Producer, *[Worker] * self.dice.randint(1, 3)]
        kinds += [kind for kind in (Receiver, Keeper) if self.dice.random() < 0.5]
        for kind in kinds:
            self.start(kind)
        self.schedule.after(self.dice.uniform(0, 2) * SECOND, self.strike)
        self.schedule.run(lambda: self.schedule.us >= STORM_US)

    def strike(self) -> None:
        """Cause a fault, and schedule the next."""
        self.actors = [actor for actor in self.actors if not actor.process.is_over]
        if self.cast.is_calm or not self.actors:
            return
        faults: list[Callable[[], None]] = [self.crash, self.crash, self.stall, self.outage, self.lose_bell]
        faults += [self.flush_scripts, self.step_clock, self.fill_memory]
        self.dice.choice(faults)()
        self.schedule.after(self.dice.uniform(0.1, 3) * SECOND, self.strike)

    def crash(self) -> None:
        actor = self.dice.choice(self.actors)
        self.server.note(actor.process, "crashes")
        actor.process.crash()
        self.actors.remove(actor)
        if actor.starts_again:
            self.schedule.after(self.dice.uniform(0, 2) * SECOND, lambda: self.replace(actor))

    def replace(self, actor: Actor) -> None:
        """Replace an actor that has crashed."""
        if not self.cast.is_calm:
            self.start(type(actor))

    def stall(self) -> None:
        process = self.dice.choice(self.actors).process
        us = int(self.dice.uniform(0.1, 3) * self.cast.lease * SECOND)
        self.server.note(process, f"stands still for {us} us")
        process.stall(us)

    def outage(self) -> None:
        us = self.dice.randint(SECOND // 10, 3 * SECOND)
        self.server.note(None, f"no connection for {us} us")
        self.network.down_until = self.schedule.us + us

    def lose_bell(self) -> None:
        self.server.note(None, "the bells are deleted")
        for shard in self.server.shards:
            self.server.take_token(shard + "bell")
        for process in self.stage.processes:
            process.troubles.append((self.schedule.us, self.schedule.us))

    def flush_scripts(self) -> None:
        self.server.note(None, "SCRIPT FLUSH")
        self.server.forget_scripts()

    def step_clock(self) -> None:
        us = self.dice.choice((-5 * SECOND, -1000, 1000, 5 * SECOND))
        self.server.note(None, f"the server's clock is set by {us} us")
        self.schedule.step(us)
        for process in self.stage.processes:
            process.troubles.append((0, self.schedule.us))

    def fill_memory(self) -> None:
        """Let the server refuse everything that needs room."""
        us = self.dice.randint(SECOND // 10, 3 * SECOND)
        self.server.note(None, f"maxmemory is reached for {us} us")
        self.server.fill(True)
        began, self.full_until = self.schedule.us, max(self.full_until, self.schedule.us + us)
        for process in self.stage.processes:
            process.troubles.append((began, self.full_until))
        self.schedule.after(us, self.make_room)

    def make_room(self) -> None:
        """Give the server its memory back, unless it was filled again."""
        if self.server.is_full and self.schedule.us >= self.full_until:
            self.server.note(None, "there is room again")
            self.server.fill(False)

    def calm(self) -> None:
        """Let everything finish, and check that it does."""
        self.server.note(None, "calm")
        self.server.fill(False)
        self.network.weather, self.network.down_until = Weather(), 0
        self.cast.is_calm = True
        for actor in list(self.actors):
            actor.stop()
        self.run_until(lambda: all(actor.process.is_over for actor in self.actors), "the actors do not end")
        self.start(Worker)
        worker = self.actors[-1]
        # An abandoned pause may still be on its way; it would undo a resume before it.
        self.run_until(lambda: not self.network.has_stragglers, "calls are under way")
        worker.process.spawn(lambda: self.cast.queue().resume())
        self.run_until(self.is_drained, "messages are left")
        worker.stop()
        self.run_until(lambda: worker.process.is_over, "the last consumer does not end")

    def run_until(self, is_over: Callable[[], bool], what: str) -> None:
        began = self.schedule.us
        self.schedule.run(lambda: is_over() or self.schedule.us > began + DRAIN_US)
        if not is_over():
            states = Counter(life.state for life in self.lives.present.values())
            raise Violation(f"{what} after {DRAIN_US // SECOND} s: {dict(states)}")

    def is_drained(self) -> bool:
        is_under_way = self.server.has_garbage or self.network.has_stragglers
        return not is_under_way and all(life.state == "dead" for life in self.lives.present.values())

    def queue(self, shards: int | None) -> Queue:
        """Return a client of the queue that is not simulated, at the current time."""
        now = str(int(self.schedule.server_us // 1000))
        return Queue("q", redis=self._executor.client, shards=shards, clock=lambda: now)

    def look_at_what_is_left(self) -> None:
        """Check that the doctor finds nothing, the counters add up, and no keys are left."""
        queue = self.queue(None)
        if self.keeps_ledger:
            bookkeeping.check(queue)
        report = doctor.examine(queue)
        if not report.healthy:
            raise Violation(f"the doctor found {[str(finding) for finding in report.findings]}")
        dead = {letter.id for letter in queue.dead.list(1000)}
        if dead != set(self.lives.present):
            raise Violation(f"dead are {sorted(dead)}, and not {sorted(self.lives.present)}")
        queue.dead.purge()
        if queue.stats().missing:
            raise Violation(f"the books do not balance: {queue.stats()}")
        client: Any = self._executor.client
        keys = [key.decode() for key in client.keys("*}:*") if client.pttl(key) == -1]
        if left := [key for key in keys if key.split("}:", 1)[1] not in LASTING]:
            raise Violation(f"keys are left: {sorted(left)}")
