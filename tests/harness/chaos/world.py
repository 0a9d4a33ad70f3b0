"""The world of a scenario: its own servers, processes and journals, and the final check that everything adds up."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from delayq import Queue, doctor
from delayq.errors import DelayqError
from tests.harness.chaos import checker, history
from tests.harness.chaos.programs import batch, chain, consume, fan, produce
from tests.harness.chaos.troubles import UNSETTLED_SECONDS
from tests.harness.servers import RedisServer, server_binaries
from tests.harness.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
STOP_SECONDS = 120.0
LEAST_LEASE = 8.0  # seconds, in the suite
PAUSE_SECONDS = 3.0  # the longest pause of a process that the suite allows for; it blunts the judge there
# The keys that a drained queue leaves, and those of the registry of names.
LASTING = (
    b"delayq:queues",
    b"delayq:topics",
    b":meta",
    b":groups",
    b":rosters",
    b":stats",
    b":timer",
    b":watch",
    b":bell",
    b":rate",
    b":consumers",
    b":crew",
    b":events",
    b":samples:minute",
    b":samples:ten",
)

Size: TypeAlias = Literal["short", "long"]


class Broken(AssertionError):
    """A scenario has failed."""


class World:
    """The environment of one run of a scenario; everything in it ends with it.

    Args:
        folder: an empty folder for journals; its owner deletes it.
        seed: decides all random choices.
        size: "short" for the suite, "long" for `make chaos`.

    Attributes:
        dice: the random generator, from the seed.
        journal: the journal of this process.
        version: the folder of the version of delayq that processes started from now on use; None for this one.
        figures: what the scenario measured beside the verdict, shown in its line.
    """

    def __init__(self, folder: Path, seed: int, size: Size) -> None:
        self.folder = folder
        self.seed = seed
        self.size = size
        self.dice = random.Random(seed)
        self.journal = history.Journal(folder / "world.jsonl")
        self.version: Path | None = None
        self.figures: dict[str, str] = {}
        self._servers: list[RedisServer] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._queues: list[Queue] = []
        self._log = (folder / "log").open("ab")
        self._end_at = time.monotonic() + self.pick(500.0, 7200.0)

    def pick(self, short: Any, long: Any) -> Any:
        """Return the value for the size of this run."""
        return short if self.size == "short" else long

    def lease(self, long: float) -> float:
        """Return the lease of a scenario's consumers, in seconds: in the suite, longer than any pause of the machine.

        A process that gets no core for longer than its lease loses its deliveries without a kill.

        Args:
            long: the lease in the long form.
        """
        return max(long, LEAST_LEASE) if self.size == "short" else long

    # -- processes -----------------------------------------------------------------------------------------------------

    def server(self, **options: Any) -> RedisServer:
        """Start a server; by default, everything it has answered is on disk. `options` are those of RedisServer.

        The long form prefers 7.0, if it is installed; tests use the newest installed version.
        """
        binaries = server_binaries()
        newest = next(reversed(binaries.values()))
        binary = self.pick(newest, binaries.get("7.0", newest))
        server = RedisServer(binary, **{"appendonly": True} | options)
        self._servers.append(server)
        return server

    def queue(self, url: str, name: str = "work", **options: Any) -> Queue:
        """Return a queue in this process; `options` are those of Queue."""
        queue = Queue(name, url=url, **options)
        self._queues.append(queue)
        return queue

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a process; its output goes to the scenario's log."""
        paths = {"PYTHONSAFEPATH": "1", "PYTHONPATH": f"{self.version}{os.pathsep}{ROOT}"} if self.version else {}
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | paths,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        self._processes.append(process)
        return process

    def consumer(self, url: str, queue: str, **task: Any) -> subprocess.Popen[bytes]:
        """Start a consumer; `task` is as in programs/consume.py."""
        return self._program("consume", consume.Task(url=url, queue=queue, journals=str(self.folder), **task))

    def chain(self, url: str, queue: str, **task: Any) -> subprocess.Popen[bytes]:
        """Start a consumer of chains; `task` is as in programs/chain.py."""
        return self._program("chain", chain.Task(url=url, queue=queue, journals=str(self.folder), **task))

    def batch(self, url: str, queue: str, **task: Any) -> subprocess.Popen[bytes]:
        """Start a consumer of batches; `task` is as in programs/batch.py."""
        return self._program("batch", batch.Task(url=url, queue=queue, journals=str(self.folder), **task))

    def fan(self, url: str, topic: str, **task: Any) -> subprocess.Popen[bytes]:
        """Start a consumer of a topic; `task` is as in programs/fan.py."""
        return self._program("fan", fan.Task(url=url, topic=topic, journals=str(self.folder), **task))

    def producer(self, url: str, queue: str, **task: Any) -> subprocess.Popen[bytes]:
        """Start a producer; `task` is as in programs/produce.py."""
        task = {"seed": self.seed} | task
        return self._program("produce", produce.Task(url=url, queue=queue, journals=str(self.folder), **task))

    def _program(self, name: str, task: msgspec.Struct) -> subprocess.Popen[bytes]:
        program = f"tests.harness.chaos.programs.{name}"
        return self.run(sys.executable, "-X", "faulthandler", "-m", program, msgspec.json.encode(task).decode())

    # -- faults --------------------------------------------------------------------------------------------------------

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process."""
        self.journal.note("fault", pid=process.pid, note="SIGKILL")
        process.kill()
        process.wait()

    @contextmanager
    def stopped(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Stop a process for a while."""
        self.journal.note("fault", pid=process.pid, note="SIGSTOP")
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)
            self.journal.note("recovered", pid=process.pid)

    @contextmanager
    def trouble(self, what: str) -> Iterator[None]:
        """Something is wrong for all processes with the server or the connection to it."""
        self.journal.note("fault", pid=0, note=what)
        try:
            yield
        finally:
            self.journal.note("recovered", pid=0)

    # -- the end -------------------------------------------------------------------------------------------------------

    def send(self, queue: Queue, payload: Any, id: str, **options: Any) -> None:
        """Send a message from this process, and note it in the journal."""
        self.journal.note("attempted", id)
        sent = queue.send(payload, id=id, **options)
        self.journal.note("sent", id, ms=sent.due_at.timestamp() * 1000 if sent.created else 0.0)

    def finish(self, process: subprocess.Popen[bytes], seconds: float = STOP_SECONDS) -> None:
        """Wait for a process that ends by itself; raise Broken if it fails or takes too long (see the log)."""
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            process.send_signal(signal.SIGABRT)
            process.wait()
            log = self.log(lines=100)
            raise Broken(f"a process did not end within {seconds} s: {process.args!r}; {log}") from error
        if code:
            raise Broken(f"a process ended with {code}: {process.args!r}; {self.log()}")

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """Ask a consumer to stop cleanly; raise Broken if it does not."""
        if not eventually((self.folder / f"consumer-{process.pid}.jsonl").exists):
            raise Broken(f"a consumer did not start: {process.args!r}; {self.log()}")
        process.terminate()
        self.finish(process)

    def check_time(self, queue: Queue) -> None:
        """Raise Broken if a scenario that runs until its fault has occurred takes too long."""
        if time.monotonic() > self._end_at:
            raise Broken(f"it comes to no end: {queue.stats()}; {self.log()}")

    def drain(self, queue: Queue, seconds: float = 60.0) -> None:
        """Wait until only dead letters are left; raise Broken if that takes too long."""

        def is_drained() -> bool:
            try:
                stats = queue.stats()
            except DelayqError:  # the server may be unavailable
                return False
            return stats.inside == stats.dead and stats.garbage == 0

        if not eventually(is_drained, seconds):
            raise Broken(f"not drained within {seconds} s: {queue.stats()}; {self.log()}")

    def verdict(
        self,
        queue: Queue,
        doctor_says: Callable[[doctor.Report], bool] | None = None,
        lease: float | None = None,
    ) -> checker.Verdict:
        """Judge a run whose queue is drained and whose consumers have ended.

        Args:
            doctor_says: whether the doctor's report is as expected; by default it must name no error.
            lease: as in `check`.

        Raises:
            Broken: something is left in Redis, the counters do not add up, or the doctor has found something.
        """
        for letter in queue.dead.list(limit=1_000_000):
            died_ms = letter.died_at.timestamp() * 1000 if letter.died_at else 0.0
            self.journal.note("buried", letter.id, attempt=letter.attempts, ms=died_ms, note=letter.reason or "")
        unsettled = UNSETTLED_SECONDS + self.pick(PAUSE_SECONDS, 0.0)
        verdict = checker.check(history.read(self.folder), lease, unsettled)
        report = doctor.examine(queue)
        if not (doctor_says(report) if doctor_says else report.healthy):
            raise Broken(f"the doctor found {[str(finding) for finding in report.findings]}; {verdict}")
        stats = queue.stats()
        if stats.missing:
            raise Broken(f"the books miss {stats.missing} messages: {stats}; {verdict}")
        if left := self.left(queue):
            raise Broken(f"keys are left: {left[:20]}; {verdict}")
        return verdict

    def left(self, queue: Queue) -> list[str]:
        """Return the keys that a drained queue does not have, except those of dead letters."""
        dead = {letter.id for letter in queue.dead.list(limit=1_000_000)}
        client: Any = queue._executor.client
        found: list[str] = []
        for keys in (scripts.keys for scripts in queue._context.shards):
            known = {keys.message(each) for each in dead}
            known |= {keys.dead, keys.attempts, keys.errors, keys.reasons} if dead else set()
            there = [
                key
                for key in client.scan_iter(keys.meta.removesuffix("meta") + "*", count=1000)
                if client.pttl(key) == -1
            ]
            found += [key.decode() for key in there if not key.endswith(LASTING) and key.decode() not in known]
        return found

    def log(self, lines: int = 20) -> str:
        """Return the end of the processes' output."""
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-lines:])

    def close(self) -> None:
        """End everything."""
        for queue in self._queues:
            queue.close()
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for server in self._servers:
            server.close()
        self.journal.close()
        self._log.close()
