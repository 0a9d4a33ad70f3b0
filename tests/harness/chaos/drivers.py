"""A Spark driver that is killed, or whose workers are killed, at random times while it works."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from tests.harness.chaos.world import ROOT, Broken
from tests.harness.waiting import eventually

BEGIN_SECONDS = 180.0  # for Java, Spark and the rest of an earlier run, on a machine under load
DONE_SECONDS = 600.0
LATEST_SECONDS = 4.0  # the latest end of a driver after it started to work
WORKER = b"pyspark.worker"


class Driver:
    """A program that runs streaming queries until everything is done, and is restarted after a kill.

    Args:
        folder: for its log, and for Spark's files.
        checkpoints: the checkpoints of its queries.
        command: the arguments for Python that run it.
    """

    def __init__(self, folder: Path, checkpoints: Sequence[Path], *command: str) -> None:
        self._checkpoints = checkpoints
        self._command = [sys.executable, *command]
        self._folder = folder
        self._log = (folder / "driver.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self._log.close()

    @property
    def log(self) -> str:
        """The output of all runs."""
        return (self._folder / "driver.log").read_text(errors="replace")

    def reach_a_moment(self, dice: random.Random) -> float:
        """Run until a batch has started, and for some seconds more; return how many.

        Raises:
            Broken: the driver ended before.
        """
        process, before = self._running(), self._batches()
        if not eventually(lambda: self._batches() > before or process.poll() is not None, BEGIN_SECONDS):
            raise Broken(f"no batch within {BEGIN_SECONDS} s: {self.log[-3000:]}")
        seconds = dice.uniform(0, LATEST_SECONDS)
        time.sleep(seconds)
        if process.poll() is not None:
            raise Broken(f"all was done, or failed, before the last kill: {self.log[-3000:]}")
        return seconds

    def kill(self) -> None:
        """Kill the driver and everything it has started."""
        process = self._running()
        os.killpg(process.pid, signal.SIGKILL)
        self._end(process)

    def kill_alone(self) -> None:
        """Kill the driver's Python; its Java notices, and ends by itself some time later."""
        process = self._running()
        process.kill()
        self._end(process)

    def kill_worker(self, dice: random.Random) -> None:
        """Kill a process that runs the Python of a task."""
        driver, found = self._running().pid, list[int]()

        def is_at_work() -> bool:
            found.extend(_workers(driver))
            return bool(found)

        if not eventually(is_at_work, BEGIN_SECONDS):
            raise Broken(f"no task has run in Python: {self.log[-3000:]}")
        os.kill(dice.choice(found), signal.SIGKILL)

    def finish(self) -> None:
        """Run until everything is done; raise Broken if the driver fails."""
        process = self._running()
        code = process.wait(DONE_SECONDS)
        self._process = None
        if code:
            raise Broken(f"the driver ended with {code}: {self.log[-3000:]}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(self._folder)}
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
                env=environment, start_new_session=True,
            )  # fmt: skip
        return self._process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._process = None

    def _batches(self) -> int:
        return sum(each.name.isdecimal() for path in self._checkpoints for each in (path / "offsets").glob("*"))


def _workers(driver: int) -> list[int]:
    """Return the processes that run the Python of tasks, forked by a daemon that Java has started."""
    return [each for each in _descendants(driver) if WORKER in _words(each) and WORKER in _words(_parent(each))]


def _descendants(process: int) -> Iterator[int]:
    for child in [int(path.name) for path in Path("/proc").glob("[0-9]*") if _parent(int(path.name)) == process]:
        yield child
        yield from _descendants(child)


def _parent(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _words(process: int) -> list[bytes]:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
