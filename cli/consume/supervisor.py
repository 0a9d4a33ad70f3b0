"""Several consumer processes under one supervisor, which restarts those that die and replaces those that are worn."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from delayq import signals
from delayq.errors import InvalidInput
from delayq.log import log

from . import liveness_pipe
from .liveness_pipe import STARTING, WORN, HeartbeatSender, LivenessPipe
from .renewal import Renewal

USAGE_ERROR = 2  # the exit code for a wrong command line: a restart would not help
FIRST_WAIT, LONGEST_WAIT = 0.2, 10.0  # seconds before a restart; longer each time for a child that dies early
TRIES = 3  # early deaths in a row
START_SECONDS = 60.0  # for a successor: one that hangs would hold up all other renewals
LONG_LIFE = 30.0  # seconds after which a child counts as having started well
KILL_MARGIN = 15.0  # seconds after the shutdown timeout until a child that does not end is killed
LOOK_SECONDS = 1.0  # between checks of a process that the supervisor is alive and the consumers' loops run
SUPERVISOR_ENV = "DELAYQ_SUPERVISOR"
"""In a child's environment: the supervisor's process id. A child with another parent is an orphan."""


class Supervisor:
    """Runs a command in several processes until SIGTERM, SIGINT or SIGHUP; each ends them by SIGTERM.

    SIGINT would print a traceback in a Python that is just starting.

    Args:
        command: the program and its arguments.
        processes: 1 to 1,000.
        shutdown_timeout: maximum seconds that the processes need to finish their handlers.
        ends: the command ends by itself: a process that fails early three times in a row is given up.
    """

    def __init__(
        self, command: Sequence[str], processes: int, shutdown_timeout: float = 30.0, ends: bool = False
    ) -> None:
        if not 1 <= processes <= 1000:
            raise InvalidInput(f"processes {processes!r} is not a number from 1 to 1,000")
        self._command = list(command)
        self._count = processes
        self._tries = TRIES if ends else None
        self._stop_timeout = shutdown_timeout + KILL_MARGIN
        self._children: list[Child] = []
        self._stopping = False

    def run(self) -> int:
        """Supervise until a signal, or until all children have ended by themselves with 0.

        Returns:
            An exit code: 0; 2 if a child reported a wrong command line; 1 if one was given up, failed at the end or had
            to be killed.
        """
        with signals.handled(self._on_signal):
            self._children = self._new_children()
            while not self._stopping:
                code = self._look()
                if code is not None:
                    return max(code, self._end())
                time.sleep(0.1)
            return self._end()

    @property
    def is_running(self) -> bool:
        """Whether all its processes are running, and nothing asked it to stop."""
        children = self._children
        return bool(children) and not self._stopping and all(child.is_running for child in children)

    @property
    def stalled(self) -> float:
        """The longest time, in seconds, since one of its processes gave a sign that its consumers run."""
        return max((child.silence for child in self._children), default=0.0)

    def _new_children(self) -> list[Child]:
        return [Child(self._command, number, self._tries) for number in range(self._count)]

    def _look(self) -> int | None:
        """Start children that are due; return an exit code once all have ended."""
        for child in self._children:
            child.look(may_renew=not any(each.is_starting for each in self._children))
        if any(child.code == USAGE_ERROR for child in self._children):
            return USAGE_ERROR
        codes = [child.code for child in self._children if child.has_ended and child.code is not None]
        return max(codes) if len(codes) == len(self._children) else None

    def _end(self) -> int:
        deadline = time.monotonic() + self._stop_timeout
        for child in self._children:
            child.terminate()
        ended = [child.end(deadline) for child in self._children]
        return 0 if all(ended) else 1

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._stopping:  # the second signal: pass it on, so that the children end at once
            for child in self._children:
                child.terminate()
        self._stopping = True


class ConsumerProcess:
    """One process, from its start to its end.

    Args:
        command: the program and its arguments.
        is_successor: kill it if it is not ready in time.

    Raises:
        OSError: out of memory, processes or files.
    """

    def __init__(self, command: Sequence[str], is_successor: bool = False) -> None:
        self.started = time.monotonic()
        self._must_get_ready = is_successor
        self._killed_after: float | None = None
        self._liveness = LivenessPipe()
        variables = {SUPERVISOR_ENV: str(os.getpid()), liveness_pipe.ENV: str(self._liveness.child)}
        try:
            # A separate process group: Ctrl-C in a terminal reaches only the supervisor, which passes it on once.
            self._process = subprocess.Popen(
                command, env={**os.environ, **variables}, process_group=0, pass_fds=[self._liveness.child]
            )
        except BaseException:
            self._liveness.close()
            raise
        finally:
            os.close(self._liveness.child)
        self.pid = self._process.pid

    def ended(self) -> int | None:
        """Return its exit code; None while it runs."""
        code = self._process.poll()
        if code is None:
            self._kill_if_late()
            return None
        self._liveness.close()
        if code < 0:  # what its handlers have started would run beside the next delivery of their messages
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        return code

    def how(self, code: int) -> str:
        """Describe how it ended, with its exit code."""
        if self._killed_after is not None:
            return f"not ready after {self._killed_after:g} s, killed"
        return f"signal {signals.name(-code) or -code}" if code < 0 else f"exit code {code}"

    def _kill_if_late(self) -> None:
        _, state = self.heard()
        self._must_get_ready &= state == STARTING
        if self._must_get_ready and time.monotonic() - self.started >= (seconds := START_SECONDS):
            self._killed_after = seconds
            self._process.kill()

    def heard(self) -> tuple[float, bytes]:
        """Return how many seconds ago its last sign of life came, and how it was then."""
        return self._liveness.silence(), self._liveness.state

    def retire(self) -> None:
        """Tell it to end once its handlers have."""
        self._liveness.retire()

    def terminate(self) -> None:
        """Ask it to end; a second time, it ends at once."""
        if self._process.poll() is None:
            self._process.terminate()

    def end(self, deadline: float) -> bool:
        """Wait for its end until `deadline` (monotonic), then kill it; return whether it ended in good order."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.warning("consumer process killed", pid=self.pid)
            self._process.kill()
            self._process.wait()
            return False
        finally:
            self._liveness.close()
        return self._process.returncode <= 0


class Child:
    """One of the processes, which is restarted if it dies, and replaced if it says that it has reached its limits.

    Its successor runs before it ends: it takes nothing new then, and its handlers may take their time.

    Attributes:
        code: its last exit code; None while it should run.
        silence: seconds since its last sign of life.
        is_starting: its successor does not run yet.
    """

    def __init__(self, command: Sequence[str], number: int, tries: int | None) -> None:
        self._command = command
        self._tries = tries
        self._early = 0
        self._number = number
        self._process: ConsumerProcess | None = None
        self._successor: ConsumerProcess | None = None
        self._retired: ConsumerProcess | None = None
        self._start_at = self._renew_at = 0.0
        self._wait = self._renewal_wait = FIRST_WAIT
        self.silence = 0.0
        self.code: int | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def is_starting(self) -> bool:
        return self._successor is not None

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs, and nothing should."""
        return self.code is not None and self._retired is None

    def look(self, may_renew: bool) -> None:
        """Start the process if it is time, note its end, and let a successor replace it.

        Args:
            may_renew: no other process is being replaced.
        """
        if self._retired is not None and (code := self._retired.ended()) is not None:
            if code:
                how = self._retired.how(code)
                log.warning("recycled consumer process died", number=self._number, how=how, pid=self._retired.pid)
            self._retired = None
        if self._process is None:
            if self.code is None and time.monotonic() >= self._start_at:
                self._start()
            return
        self.silence, state = self._process.heard()
        if self._successor is not None:
            self._look_at_successor(self._process, self._successor)
        elif state == WORN and may_renew and self._retired is None and time.monotonic() >= self._renew_at:
            self._start_successor()
        if (code := self._process.ended()) is not None:
            lived, how = time.monotonic() - self._process.started, self._process.how(code)
            self._process, self._successor, self.silence = self._successor, None, 0.0
            if self._process is None or code == USAGE_ERROR:
                self._note(code, lived, how)
            elif code:
                log.warning("consumer process died, restarting", number=self._number, how=how, wait=0.0)

    def terminate(self) -> None:
        """Ask its processes to end; a second time, they end at once."""
        for process in self._processes():
            process.terminate()

    def end(self, deadline: float) -> bool:
        """Wait for its end until `deadline` (monotonic), then kill it; return whether it ended in good order."""
        ended = [process.end(deadline) for process in self._processes()]
        return all(ended)

    def _processes(self) -> Iterator[ConsumerProcess]:
        return (each for each in (self._process, self._successor, self._retired) if each is not None)

    def _start(self) -> None:
        try:
            self._process = ConsumerProcess(self._command)
        except OSError as error:  # out of memory or processes, which may also be why children die
            self._wait_after(0.0, f"not started: {error}")
            return
        log.info("consumer process started", number=self._number, pid=self._process.pid)

    def _start_successor(self) -> None:
        try:
            self._successor = ConsumerProcess(self._command, is_successor=True)
        except OSError as error:
            self._renew_later(f"not started: {error}")

    def _look_at_successor(self, process: ConsumerProcess, successor: ConsumerProcess) -> None:
        """Let it take over once it consumes."""
        _, state = successor.heard()
        if (code := successor.ended()) is not None:
            self._successor = None
            if code:
                self._renew_later(successor.how(code))
            else:  # a burst, which found nothing to do: the process ends soon, too
                self._renew_at = time.monotonic() + LONGEST_WAIT
        elif state != STARTING:
            process.retire()
            self._process, self._successor, self._retired = successor, None, process
            self._renewal_wait = FIRST_WAIT
            log.info("consumer process recycled", number=self._number, pid=process.pid, successor=successor.pid)

    def _renew_later(self, how: str) -> None:
        """Keep the process, as its successor has not started, and try again later."""
        self._renewal_wait = min(LONGEST_WAIT, self._renewal_wait * 2)
        self._renew_at = time.monotonic() + self._renewal_wait
        wait = round(self._renewal_wait, 1)
        log.warning("consumer process not recycled, retrying", number=self._number, how=how, wait=wait)

    def _note(self, code: int, lived: float, how: str) -> None:
        if code in (0, USAGE_ERROR):
            self.code = code
            return
        self._wait_after(lived, how)

    def _wait_after(self, lived: float, how: str) -> None:
        self._early = 0 if lived >= LONG_LIFE else self._early + 1
        if self._tries is not None and self._early >= self._tries:
            log.error("consumer process given up", number=self._number, how=how, tries=self._early)
            self.code = 1
            return
        self._wait = FIRST_WAIT if lived >= LONG_LIFE else min(LONGEST_WAIT, self._wait * 2)
        self._start_at = time.monotonic() + self._wait
        log.warning("consumer process died, restarting", number=self._number, how=how, wait=round(self._wait, 1))


def is_orphan(supervisor: str) -> bool:
    """Whether the supervisor that has started this process, given its process id, is gone."""
    return os.getppid() != int(supervisor)


def watch_supervisor(stalled: Callable[[], float], renewal: Renewal) -> None:
    """Send heartbeats to the supervisor while the consumers' loops run; shut down if the supervisor was killed.

    Args:
        stalled: returns for how many seconds a loop has not run.
        renewal: says when this process should be replaced, and ends it then.
    """
    supervisor = os.environ.pop(SUPERVISOR_ENV, "")  # processes that this one starts have another parent
    heartbeat = HeartbeatSender()
    if not (supervisor.isdigit() and heartbeat.is_connected):
        return

    def watch() -> None:
        while not is_orphan(supervisor):
            if stalled() < LOOK_SECONDS:
                heartbeat.beat(renewal.state())
            if heartbeat.is_retired(LOOK_SECONDS):
                renewal.retire()
        log.warning("supervisor gone, stopping")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="delayq-supervisor-watch", daemon=True).start()
