"""Processes whose threads run one at a time, each until it waits, so that the schedule alone decides what happens.

The library's code runs in them unchanged. Only what it waits with is replaced: `time`, `threading`, its bells and
its connections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.harness.simulation.schedule import Event, Schedule


class Crashed(BaseException):
    """The process was killed: its threads unwind, and can reach nothing outside."""


class Process:
    """A process of the simulation.

    Attributes:
        stalled_until: it is stopped until then, in microseconds.
        serves_since: when its consumer started, in microseconds; None if none runs.
        held: the number of deliveries it has received and not settled.
        idle_since: when one of them was last settled, in microseconds.
        troubles: start and end of each fault that hit it, in microseconds.
    """

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.is_dead = False
        self.stalled_until = self.held = self.idle_since = 0
        self.serves_since: int | None = None
        self.troubles: list[tuple[int, float]] = []
        self._fibers: list[Fiber] = []
        stage.processes.append(self)

    def spawn(self, target: Callable[[], Any]) -> None:
        """Start a thread."""
        fiber = Fiber(self, target)
        self._fibers.append(fiber)
        self.stage.schedule.after(0, fiber.start)

    @property
    def is_over(self) -> bool:
        """Whether all of its threads have ended."""
        return all(fiber.has_ended for fiber in self._fibers)

    def crash(self) -> None:
        """Kill it from outside: it forgets everything it holds, and sends nothing more."""
        self.is_dead = True
        self.troubles.append((self.stage.schedule.us, float("inf")))
        for fiber in self._fibers:
            fiber.unwind()

    def stall(self, us: int) -> None:
        """Stop it for a while, as SIGSTOP does."""
        now = self.stage.schedule.us
        self.stalled_until = max(self.stalled_until, now + us)
        self.troubles.append((now, self.stalled_until))

    def had_trouble(self, since: float, until: float) -> bool:
        """Whether a fault hit it between two times, in microseconds."""
        return any(began <= until and since <= ended for began, ended in self.troubles)


class Fiber:
    """A thread of a process. It runs only while `resume` waits for it."""

    def __init__(self, process: Process, target: Callable[[], Any]) -> None:
        self.process = process
        self.has_ended = False
        self._stage = process.stage
        self._target = target
        self._pauses = 0
        self._is_paused = False
        self._error: BaseException | None = None
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Run for the first time."""
        if self.process.is_dead:
            self.has_ended = True
            return
        self._thread.start()
        self._let_run()

    def waker(self) -> Event:
        """Return a function that ends the next pause, and does nothing later; a stopped process wakes up afterwards."""
        pause = self._pauses + 1

        def wake() -> None:
            if not self._is_paused or self._pauses != pause:
                return
            schedule = self._stage.schedule
            if self.process.stalled_until > schedule.us:
                schedule.after(self.process.stalled_until - schedule.us, wake)
            else:
                self._let_run()

        return wake

    def pause(self) -> None:
        """Wait, on this thread, until woken; raises Crashed if the process is dead."""
        if not self.process.is_dead:
            self._pauses += 1
            self._is_paused = True
            self._back.release()
            self._go.acquire()
            self._is_paused = False
        if self.process.is_dead:
            raise Crashed

    def sleep(self, us: float) -> None:
        """Wait for this many microseconds."""
        self._stage.schedule.after(us, self.waker())
        self.pause()

    def unwind(self) -> None:
        """Let the thread of a dead process end."""
        if self._is_paused:
            self._let_run()
        self.has_ended = True

    def _let_run(self) -> None:
        before, self._stage.current = self._stage.current, self
        self._go.release()
        self._back.acquire()
        self._stage.current = before
        if self.has_ended:
            self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._target()
        except Crashed:
            pass
        except BaseException as error:  # noqa: BLE001  # it is raised again in the simulation
            self._error = error
        self.has_ended = True
        self._back.release()


class Stage:
    """All processes, and the one whose turn it is."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.processes: list[Process] = []
        self.current: Fiber | None = None

    @property
    def fiber(self) -> Fiber:
        """The thread that runs now."""
        assert self.current is not None
        return self.current

    def close(self) -> None:
        """End all remaining threads."""
        for process in self.processes:
            if not process.is_over:
                process.crash()
