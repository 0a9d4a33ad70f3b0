"""The network: each call of a round trip arrives at its own time, and the round trip can break anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from delayq.errors import DelayqError, ServerUnreachable
from delayq.protocol.command import Command
from delayq.transport.executor import Executor
from tests.harness.simulation.fibers import Process, Stage
from tests.harness.simulation.schedule import Event
from tests.harness.simulation.server import Server

TRIES = 4  # like redis-py with the settings of delayq.transport.clients
PAUSE_US = (100_000, 200_000)  # before each repetition, doubling
TIMEOUT_US = 5_000_000
SLOW_US, LONGEST_US = 100_000, 3_000_000  # of delayed calls


@dataclass
class Weather:
    """The probability of each fault, as a share of all round trips.

    Attributes:
        cuts: the connection breaks before one of the calls or the replies arrive.
        lags: a call or the replies take up to seconds.
    """

    cuts: float = 0.0
    lags: float = 0.0


@dataclass(eq=False)
class Trip:
    """Calls in flight.

    Attributes:
        cut: the number of calls that arrive before the connection breaks, or None.
        late: whether the cut off calls still arrive, once nobody waits for them.
        is_over: whether nobody waits any more.
    """

    process: Process
    calls: Sequence[Command[Any]]
    wake: Event
    cut: int | None
    late: bool
    replies: list[Any] = field(default_factory=list)
    is_whole: bool = False
    is_over: bool = False


class Network:
    """Carries round trips to the server, and the tokens of its bells back.

    Attributes:
        down_until: the server is unreachable until then, in microseconds.
    """

    def __init__(self, stage: Stage, server: Server) -> None:
        self.weather = Weather()
        self.down_until = 0
        self._trips: list[Trip] = []
        self._stage = stage
        self._schedule = stage.schedule
        self._dice = stage.schedule.dice
        self._server = server

    @property
    def is_down(self) -> bool:
        return self._schedule.us < self.down_until

    @property
    def has_stragglers(self) -> bool:
        """Whether abandoned calls are still on their way."""
        return any(trip.is_over for trip in self._trips)

    def run(self, calls: Sequence[Command[Any]], repeat: bool) -> list[Any]:
        """Run calls for the process of this thread, like `Executor.run`."""
        repeat = repeat and all(call.repeats for call in calls)
        for number in range(TRIES if repeat else 1):
            if number:
                self._stage.fiber.sleep(self._dice.uniform(*PAUSE_US) * 2 ** (number - 1))
            replies = self._attempt(calls)
            if replies is not None:
                pairs = zip(calls, replies, strict=True)
                return [reply if isinstance(reply, DelayqError) else call.read(reply) for call, reply in pairs]
        raise ServerUnreachable("the connection broke")

    def latency(self, process: Process) -> int:
        """Return the travel time from or to a process, in microseconds."""
        if self._dice.random() >= self.weather.lags:
            return self._dice.randint(50, 1000)
        us = self._dice.randint(SLOW_US, LONGEST_US)
        process.troubles.append((self._schedule.us, self._schedule.us + us))
        return us

    def _attempt(self, calls: Sequence[Command[Any]]) -> list[Any] | None:
        fiber = self._stage.fiber
        cut = self._dice.randint(0, len(calls)) if self._dice.random() < self.weather.cuts else None
        trip = Trip(fiber.process, calls, fiber.waker(), cut, self._dice.random() < 0.3)
        self._trips.append(trip)
        self._schedule.after(self.latency(fiber.process), lambda: self._arrive(trip))
        self._schedule.after(TIMEOUT_US, trip.wake)
        try:
            fiber.pause()
        finally:
            trip.is_over = True
        return trip.replies if trip.is_whole else None

    def _arrive(self, trip: Trip) -> None:
        """Run the next call of a round trip, and then the following ones."""
        done = len(trip.replies)
        if self.is_down or done == trip.cut:
            self._break(trip)
            if trip.late and not self.is_down:
                trip.cut = None
                self._schedule.after(self._dice.randint(SLOW_US, TIMEOUT_US), lambda: self._straggle(trip))
            else:
                self._trips.remove(trip)
            return
        if trip.process.is_dead and not trip.late:
            self._trips.remove(trip)
            return
        trip.replies.append(self._server.execute(trip.process, trip.calls[done]))
        if done + 1 < len(trip.calls):
            self._schedule.after(self._dice.choice((1, 1, 50, 200)), lambda: self._arrive(trip))
            return
        self._trips.remove(trip)
        if trip.cut is None:
            self._schedule.after(self.latency(trip.process), lambda: self._return(trip))
        else:
            self._break(trip)

    def _break(self, trip: Trip) -> None:
        """Let the client notice that the connection is broken."""
        us = self._dice.randint(50, 5000)
        trip.process.troubles.append((self._schedule.us, self._schedule.us + us))
        self._server.note(trip.process, f"cut after {len(trip.replies)} of {len(trip.calls)}")
        self._schedule.after(us, trip.wake)

    def _straggle(self, trip: Trip) -> None:
        """Run the delayed calls of a client that has given up."""
        self._trips.remove(trip)
        trip.process.troubles.append((self._schedule.us, self._schedule.us))
        for call in trip.calls[len(trip.replies) :]:
            self._server.execute(trip.process, call)

    def _return(self, trip: Trip) -> None:
        trip.is_whole = not trip.is_over
        trip.wake()


class SimulatedConnection(Executor):
    """Replaces `delayq.transport.executor.Executor`."""

    def __init__(self, network: Network, connect: Callable[[], Any], shared: bool, label: str | None) -> None:
        super().__init__(connect, shared, label)
        self._network = network

    @property
    def client(self) -> Any:
        return self._network

    def leave(self, client: Any) -> None:
        """Do nothing, because nothing was opened."""

    def run(self, calls: Sequence[Command[Any]], repeat: bool = True) -> list[Any]:
        return self._network.run(calls, repeat)
