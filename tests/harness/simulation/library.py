"""The library on the virtual clock: what its modules wait with is exchanged while a simulation runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from delayq import crew, leases, log, loop, mover, outbox, pace, quarantine, queue, turns, waiter, workers
from delayq.operations import claiming, core, resting, sealing, sending, settling
from tests.harness.simulation.bells import Belfry
from tests.harness.simulation.fibers import Stage
from tests.harness.simulation.network import Network, SimulatedConnection
from tests.harness.simulation.server import Server
from tests.harness.simulation.standins import Threading, VirtualTime, Wakeup

TIMED = (
    crew,
    core,
    claiming,
    sending,
    settling,
    resting,
    leases,
    pace,
    quarantine,
    turns,
    workers,
    mover,
    queue,
    waiter,
)


@contextmanager
def exchanged(stage: Stage, network: Network, server: Server) -> Iterator[None]:
    """Let the library wait, number and connect as the simulation does."""
    time, threading, belfry = VirtualTime(stage), Threading(stage), Belfry(stage, network, server)
    server.on_token = belfry.ring
    ids, tokens = itertools.count(1), itertools.count(1)
    every: Any = pace.Every.__init__
    exchanges: list[tuple[Any, str, Any]] = [(module, "time", time) for module in TIMED]
    exchanges += [
        (every, "__defaults__", (time.monotonic,)),
        (workers, "threading", threading),
        (outbox, "threading", threading),
        (loop, "bell", belfry),
        (mover, "bell", belfry),
        (waiter, "bell", belfry),
        (crew, "os", SimpleNamespace(getpid=lambda: 1)),
        (crew, "platform", SimpleNamespace(node=lambda: "simulated")),
        (mover, "Wakeup", partial(Wakeup, stage)),
        (waiter, "secrets", SimpleNamespace(token_hex=lambda _: f"receiver-{next(tokens)}")),
        (waiter, "consumer_name", str),
        (queue, "Connection", partial(SimulatedConnection, network)),
        (queue, "new_id", lambda: f"r{next(ids)}"),
        (sealing, "new_ids", lambda count: [f"r{next(ids)}" for _ in range(count)]),
        (log, "_unconfigured", Log(stage, server)),
    ]
    with ExitStack() as stack:
        for target, name, value in exchanges:
            stack.enter_context(mock.patch.object(target, name, value))
        yield


class Log:
    """Stands for the library's logger: its lines go into the trace."""

    def __init__(self, stage: Stage, server: Server, about: str = "") -> None:
        self._stage = stage
        self._server = server
        self._about = about

    def bind(self, id: str = "", **_: Any) -> Log:
        return Log(self._stage, self._server, id)

    def _note(self, text: str, id: str = "", **_: Any) -> None:
        fiber = self._stage.current
        self._server.note(fiber.process if fiber else None, f"log {id or self._about} {text}")

    debug = info = warning = error = _note
