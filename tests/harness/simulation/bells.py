"""The bells that idle consumers wait on: each consumer blocks a connection, and the first to block is served first."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from delayq.errors import ServerUnreachable
from delayq.transport.bell_source import BellSource
from tests.harness.simulation.fibers import Stage
from tests.harness.simulation.network import Network
from tests.harness.simulation.schedule import Event
from tests.harness.simulation.server import Server
from tests.harness.simulation.standins import Wakeup


class Belfry:
    """Replaces the module `delayq.transport.listener`: all bells, as on the server."""

    def __init__(self, stage: Stage, network: Network, server: Server) -> None:
        self.BellListener = partial(Bell, self)
        self.stage = stage
        self.network = network
        self._server = server
        self._blocked: dict[str, list[Blocked]] = defaultdict(list)

    def wait(
        self,
        bells: Sequence[Bell],
        seconds: float,
        wakeup: Wakeup | None = None,
        is_exact: bool = True,  # noqa: ARG002  # all waits are
    ) -> None:
        """Wait like `delayq.transport.listener.wait`."""
        if seconds <= 0 or any(bell.has_token for bell in bells) or (wakeup is not None and wakeup.is_set):
            return
        fiber = self.stage.fiber
        wake = fiber.waker()
        for bell in bells:
            bell.wake = wake
        if wakeup is not None:
            wakeup.wake = wake
        self.stage.schedule.after(math.ceil(seconds * 1_000_000), wake)
        fiber.pause()

    def block(self, blocked: Blocked) -> None:
        """Tell the server that a client waits."""
        if blocked.bell.is_blocked_by(blocked):
            self._blocked[blocked.bell.key].append(blocked)
            self.ring(blocked.bell.key)

    def unblock(self, blocked: Blocked) -> None:
        """Tell the server that a client no longer waits."""
        if blocked in self._blocked[blocked.bell.key]:
            self._blocked[blocked.bell.key].remove(blocked)

    def ring(self, key: str) -> None:
        """Give the token, if there is one, to the client that waits for it."""
        if self._blocked[key] and self._server.take_token(key):
            blocked = self._blocked[key].pop(0)
            self._server.note(blocked.bell.process, "rings")
            self.stage.schedule.after(self.network.latency(blocked.bell.process), lambda: blocked.bell.receive(blocked))


@dataclass(eq=False)
class Blocked:
    """One BLPOP."""

    bell: Bell


class Bell:
    """Replaces `delayq.transport.listener.BellListener`."""

    def __init__(self, belfry: Belfry, client: Any, source: BellSource, *_known: object) -> None:
        self.process = belfry.stage.fiber.process
        self.client = client
        self.source = source
        self.key = source.key
        self.has_token = False
        self.wake: Event | None = None
        self._belfry = belfry
        self._network = belfry.network
        self._blocked: Blocked | None = None

    def is_blocked_by(self, blocked: Blocked) -> bool:
        """Whether it currently waits with this."""
        return self._blocked is blocked

    def listen(self) -> None:
        if self._blocked is not None:
            return
        if self._network.is_down:
            raise ServerUnreachable("no connection for the bell")
        self._blocked = blocked = Blocked(self)
        self._after(lambda: self._belfry.block(blocked))

    def receive(self, blocked: Blocked) -> None:
        """Take the token that the server sent; if the connection is closed by now, the token is lost."""
        if self._blocked is blocked and not self.process.is_dead:
            self.has_token = True
            if self.wake is not None:
                self.wake()

    def take_token(self) -> bool:
        rang, self.has_token = self.has_token, False
        if rang:
            self._blocked = None
        return rang

    def stop_listening(self) -> bool:
        blocked = self._blocked
        if blocked is None:
            return False
        self._belfry.stage.fiber.sleep(self._network.latency(self.process))
        self._belfry.unblock(blocked)
        self._belfry.stage.fiber.sleep(2000)  # a token may be on its way
        self._blocked = None
        return self.take_token()

    def close(self) -> None:
        blocked, self._blocked, self.has_token = self._blocked, None, False
        if blocked is not None:  # until the server knows, it may waste a token on it
            self._after(lambda: self._belfry.unblock(blocked))

    def _after(self, event: Event) -> None:
        self._belfry.stage.schedule.after(self._network.latency(self.process), event)
