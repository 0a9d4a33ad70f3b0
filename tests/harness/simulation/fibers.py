"""Processes whose threads run one at a time, each until it waits: what they do depends on the schedule alone.

The library's code runs in them as it is. Only what it waits with is exchanged: `time`, `threading`, its bells and
its connections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.harness.simulation.schedule import Event, Schedule


class Crashed(BaseException):
    """The process has been killed: its threads unwind, and reach nothing outside any more."""


class Process:
    """A process of the simulation.

    Attributes:
        stalled_until: it stands still until then, in microseconds.
        serves_since: a consumer runs since then, in microseconds; None when none does.
        held: the deliveries that it was handed and that are not settled.
        idle_since: the last time that one of them was settled, in microseconds.
        troubles: when something was done to it, from and to, in microseconds.
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
        """Kill it, from outside: it forgets all that it holds, and sends nothing more."""
        self.is_dead = True
        self.troubles.append((self.stage.schedule.us, float("inf")))
        for fiber in self._fibers:
            fiber.unwind()

    def stall(self, us: int) -> None:
        """Let it stand still, as SIGSTOP does."""
        now = self.stage.schedule.us
        self.stalled_until = max(self.stalled_until, now + us)
        self.troubles.append((now, self.stalled_until))

    def had_trouble(self, since: float, until: float) -> bool:
        """Whether something was done to it between two times, in microseconds."""
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
        """Return what ends the next pause, later than that in vain; a process that stands still is woken afterwards."""
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
        """Wait, on this thread, until woken; raises Crashed when the process is dead."""
        if not self.process.is_dead:
            self._pauses += 1
            self._is_paused = True
            self._back.release()
            self._go.acquire()
            self._is_paused = False
        if self.process.is_dead:
            raise Crashed

    def sleep(self, us: float) -> None:
        """Wait for so many microseconds."""
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
        except BaseException as error:  # noqa: BLE001  # it is raised where the simulation is run
            self._error = error
        self.has_ended = True
        self._back.release()


class Stage:
    """All processes, and whose turn it is."""

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
        """End all threads that are left."""
        for process in self.processes:
            if not process.is_over:
                process.crash()
