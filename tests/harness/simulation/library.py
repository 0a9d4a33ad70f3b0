"""The library on the virtual clock: what its modules wait with is replaced while a simulation runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from delayq import backoff, log, queue
from delayq.model import consumer_info, interval, lease_clock
from delayq.operations import (
    byte_budget,
    claim,
    encode,
    fetch,
    idle,
    open_messages,
    queue_context,
    send,
    settle,
    shard_outages,
)
from delayq.runtime import (
    base_engine,
    bells,
    driver,
    engine,
    heartbeat,
    poison_isolation,
    receive_wait,
    receiver,
    refused_outcomes,
    send_coalescer,
    shard_backlog,
    shutdown,
    thread_pool,
)
from tests.harness.simulation.bells import Belfry
from tests.harness.simulation.fibers import Stage
from tests.harness.simulation.network import Network, SimulatedConnection
from tests.harness.simulation.server import Server
from tests.harness.simulation.standins import SimpleQueue, Threading, VirtualTime, Wakeup

DOWN_BYTES = 4000  # a round trip brings one of the largest messages, or hundreds of the smallest
TIMED = (
    byte_budget,
    consumer_info,
    queue_context,
    open_messages,
    send,
    idle,
    interval,
    lease_clock,
    poison_isolation,
    base_engine,
    engine,
    thread_pool,
    driver,
    receive_wait,
    receiver,
    shard_backlog,
    shard_outages,
    shutdown,
)


@contextmanager
def exchanged(stage: Stage, network: Network, server: Server) -> Iterator[None]:
    """Let the library wait, make ids and connect through the simulation."""
    time, threading, belfry = VirtualTime(stage), Threading(stage), Belfry(stage, network, server)
    server.on_token = belfry.ring
    ids, tokens = itertools.count(1), itertools.count(1)
    every: Any = interval.Interval.__init__
    refused: Any = refused_outcomes.RefusedOutcomes.__init__
    exchanges: list[tuple[Any, str, Any]] = [(module, "time", time) for module in TIMED]
    exchanges += [
        (every, "__defaults__", (time.monotonic,)),
        (refused, "__defaults__", (time.monotonic,)),
        (settle, "DEFAULT_BACKOFF", backoff.fixed(0.4)),  # without jitter
        (byte_budget, "DOWN_BYTES", DOWN_BYTES),
        (byte_budget, "LEAST_BYTES", DOWN_BYTES // 4),
        (byte_budget, "LEAST_MEASURED_BYTES", DOWN_BYTES // 4),
        (fetch, "DOWN_BYTES", DOWN_BYTES),
        (thread_pool, "threading", threading),
        (thread_pool, "SimpleQueue", partial(SimpleQueue, stage)),
        (send_coalescer, "threading", threading),
        (heartbeat, "threading", threading),
        (bells, "listener", belfry),
        (receive_wait, "listener", belfry),
        (consumer_info, "os", SimpleNamespace(getpid=lambda: 1)),
        (consumer_info, "platform", SimpleNamespace(node=lambda: "simulated")),
        (driver, "SelfPipe", partial(Wakeup, stage)),
        (driver, "within", lambda _, call: call()),  # calls never take longer than the network's own limit
        (claim, "secrets", SimpleNamespace(token_hex=lambda _: f"{next(tokens):016x}")),
        (receive_wait, "secrets", SimpleNamespace(token_hex=lambda _: f"receiver-{next(tokens)}")),
        (receive_wait, "consumer_name", str),
        (queue, "Executor", partial(SimulatedConnection, network)),
        (queue, "new_id", lambda: f"r{next(ids)}"),
        (encode, "new_id", lambda: f"r{next(ids)}"),
        (encode, "new_ids", lambda count: [f"r{next(ids)}" for _ in range(count)]),
        (log.log, "_standard", Log(stage, server)),
    ]
    with ExitStack() as stack:
        for target, name, value in exchanges:
            stack.enter_context(mock.patch.object(target, name, value))
        yield


class Log:
    """Replaces the library's logger: its lines go into the trace."""

    def __init__(self, stage: Stage, server: Server, about: str = "") -> None:
        self._stage = stage
        self._server = server
        self._about = about

    def bind(self, id: str = "", **_: Any) -> Log:
        return Log(self._stage, self._server, id)

    def _note(self, text: str, id: str = "", **_: Any) -> None:
        fiber = self._stage.current
        self._server.note(fiber.process if fiber else None, f"log {id or self._about} {text}")

    debug = info = warning = error = exception = _note
