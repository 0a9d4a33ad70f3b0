"""How long another client waits for answers: it sends a PING every millisecond, to a busy and to an idle server."""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.harness.chaos.programs.ping import run_first
from tests.harness.chaos.world import Broken, World
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

LONGEST_WAIT_MS = 20.0


class Wait(NamedTuple):
    """The longest wait of a stage, in ms, for the busy server, and at the same time for the idle one.

    Attributes:
        most: 99 % of the waits for the busy server were no longer than this.
    """

    busy: float
    idle: float
    most: float

    def __str__(self) -> str:
        return f"{self.busy:.1f} ({self.idle:.1f}) ms, 99 % {self.most:.1f}"


def _threads(pid: int) -> list[int]:
    folder = Path(f"/proc/{pid}/task")
    return [int(each.name) for each in folder.iterdir()] if folder.is_dir() else [pid]


def check_waits(world: World, waits: Mapping[str, Wait]) -> None:
    """Note the waits; in the long form, raise Broken if one was too long."""
    world.figures |= {f"{name}:": str(wait) for name, wait in waits.items()}
    late = {name: str(wait) for name, wait in waits.items() if wait.busy > LONGEST_WAIT_MS}
    if world.size == "long" and late:
        raise Broken(f"a PING waited longer than {LONGEST_WAIT_MS:.0f} ms: {late}; of all, {world.figures}")


class Pings:
    """Two clients, each in its own process.

    The idle server shows how long the machine itself makes a client wait. In the long form, if allowed, servers and
    clients run before all other processes, so that the figures measure the server and not a busy machine. This applies
    to all threads of a server: while it frees memory, it waits for locks that threads of its allocator hold.

    Args:
        busy: the busy server.
        idle: the idle server.
    """

    def __init__(self, world: World, busy: RedisServer, idle: RedisServer) -> None:
        self._world = world
        self._files = [world.folder / f"pings-{name}" for name in ("busy", "idle")]
        self._stages: list[tuple[str, float, float]] = []
        if world.size == "long":
            threads = [each for server in (busy, idle) for each in _threads(server.pid)]
            world.figures["runs first:"] = "yes" if all(run_first(each, 1) for each in threads) else "no"
        program = (sys.executable, "-m", "tests.harness.chaos.programs.ping")
        servers = zip((busy, idle), self._files, strict=True)
        self._processes = [world.run(*program, str(server.socket), str(file)) for server, file in servers]
        if not eventually(lambda: all(file.exists() for file in self._files)):
            raise Broken(f"no PINGs: {world.log()}")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the waits of this stage separately."""
        began = time.monotonic()
        yield
        self._stages.append((name, began, time.monotonic()))

    def end(self) -> dict[str, Wait]:
        """Stop the clients; return the waits of each stage."""
        for process in self._processes:
            process.terminate()
            self._world.finish(process)
        pairs = []
        for file in self._files:
            times = array("d", file.read_bytes())
            pairs.append(list(zip(times[::2], times[1::2], strict=True)))
        waits = {}
        for name, began, ended in self._stages:
            busy, idle = [sorted(took * 1000 for at, took in each if began <= at <= ended) or [0.0] for each in pairs]
            waits[name] = Wait(busy[-1], idle[-1], busy[len(busy) * 99 // 100])
        return waits
