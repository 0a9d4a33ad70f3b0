"""A Spark cluster as processes on this machine: master, workers, submitted programs, a Spark Connect server.

Each process has its own process group, which ends together with the executors it has started: when the test ends,
and also when the test process is killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import pyspark

from delayq.spark import java
from tests.harness.spark.absent import absent
from tests.harness.spark.java_options import QUICK_JAVA
from tests.harness.tree import PACKAGE_FOLDERS, ROOT
from tests.harness.waiting import eventually

HOME = Path(pyspark.__file__).parent
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
READY_SECONDS = 250.0  # a machine under load; an idle one needs 2 s
# -S skips the checkout's .pth file; pyspark comes from the installed package, not from the zip of its sources, which
# Python would compile in each process.
WITHOUT_SITE = f"""\
#!/bin/sh
PYTHONPATH=$(printf %s "$PYTHONPATH" | sed 's,[^:]*pyspark[.]zip:,,g')
export PYTHONPATH
exec "{sys.executable}" -S "$@"
"""
# Its standard input ends when the test process ends or is killed.
GUARD = 'read -r _ || kill -9 "-$1"'


class Process:
    """A Spark program, which ends with the block.

    Args:
        log: a file for its output.
        command: the program, one of Spark's ``bin``, and its arguments.
    """

    def __init__(self, log: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [HOME / "bin" / command[0], *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                cwd=log.parent,
                start_new_session=True,
            )
        self._guard = subprocess.Popen(["sh", "-c", GUARD, "sh", str(self._process.pid)], stdin=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._guard.kill()  # before the group's id can be reused
        self._guard.communicate()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def group(self) -> int:
        """Its process group."""
        return self._process.pid

    def says(self, pattern: str) -> re.Match[str]:
        """Wait until the log matches a pattern."""
        found: list[re.Match[str]] = []

        def is_said() -> bool:
            found.extend(re.finditer(pattern, self.log.read_text(errors="replace")))
            return bool(found)

        self.goes_on_until(is_said)
        return found[0]

    def goes_on_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, which must hold before the program ends."""
        eventually(lambda: self._process.poll() is not None or condition(), READY_SECONDS)
        assert condition(), self.log.read_text(errors="replace")

    def ends_well(self) -> None:
        """Wait until the program ends, with exit code 0."""
        assert self._process.wait(READY_SECONDS) == 0, self.log.read_text()


class Cluster:
    """A master and two workers with one core each.

    Args:
        folder: where the processes write.
        environment: for all processes, and for submitted programs.

    Attributes:
        url: the URL of the master.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._environment = environment
        self._running = ExitStack()
        self._workers: list[Process] = []

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            master = starting.enter_context(self._daemon("master", "--port", "0"))
            self.url = master.says(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")[1]
            for number in range(2):
                work = self.folder / f"work-{number}"
                own = ("--cores", "1", "--memory", "1g", "--work-dir", str(work), self.url)
                host = f"127.0.0.{1 + number}"  # a speculative task only runs on another host
                self._workers.append(starting.enter_context(self._daemon(f"worker-{number}", *own, host=host)))
            master.says(r"(?s)Registering worker.*Registering worker")
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _daemon(self, name: str, *arguments: str, host: str = "127.0.0.1") -> Process:
        kind = name.partition("-")[0]
        command = ["spark-class", f"org.apache.spark.deploy.{kind}.{kind.title()}", "--host", host]
        return Process(self.folder / f"{name}.log", [*command, "--webui-port", "0", *arguments], self._environment)

    def submit(self, program: Path, *arguments: str, settings: Mapping[str, str], options: Sequence[str]) -> Process:
        """Run a Python program with spark-submit, with its driver here."""
        command = ["spark-submit", "--master", self.url, *options, *conf(settings), str(program), *arguments]
        return Process(self.folder / "driver.log", command, self._environment)

    def executors(self) -> list[int]:
        """Return the processes that run tasks."""
        groups = {worker.group for worker in self._workers}
        processes = _processes("pgid=,args=")
        return [pid for pid, (group, *args) in processes.items() if int(group) in groups and EXECUTOR in "".join(args)]

    def lose(self, executor: int) -> None:
        """Kill an executor and the Pythons it has started, as if its machine were lost."""
        started, lost = _processes("ppid="), [executor]
        for pid in lost:  # the list grows during the loop
            lost.extend(child for child, (parent,) in started.items() if int(parent) == pid)
        for pid in lost:
            with suppress(ProcessLookupError):  # its parent has already ended it
                os.kill(pid, signal.SIGKILL)


def _processes(columns: str) -> dict[int, list[str]]:
    """Return one or two columns of ps for each process, by id."""
    done = subprocess.run(["ps", "-eww", "-o", f"pid=,{columns}"], capture_output=True, text=True, check=True)
    return {int(pid): rest for pid, *rest in (line.split(maxsplit=2) for line in done.stdout.splitlines())}


def conf(settings: Mapping[str, str]) -> list[str]:
    """Return settings as arguments of spark-submit."""
    return [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]


def environment(folder: Path, python: Path | str = sys.executable) -> dict[str, str]:
    """Return an environment for Spark's processes: on the loopback interface, with their files in a folder."""
    return os.environ | {
        "JAVA_HOME": str(java.provide()),
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false",  # it would listen on a port that others use too
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(folder),
    }


def without_delayq(folder: Path) -> dict[str, str]:
    """Return an environment whose Python has the dependencies of `delayq[spark]`, but not delayq."""
    program = folder / "python"
    program.write_text(WITHOUT_SITE)
    program.chmod(0o755)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    return environment(folder, program) | {"PYTHONPATH": os.pathsep.join([str(absent(folder / "absent")), *packages])}


def zipped(path: Path) -> Path:
    """Pack delayq as in its wheel, and return the file."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(ROOT / "pyspark_delayq.py", "pyspark_delayq.py")
        for package, folder in PACKAGE_FOLDERS.items():
            for file in folder.rglob("*"):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, Path(*package.split(".")) / file.relative_to(folder))
    return path
