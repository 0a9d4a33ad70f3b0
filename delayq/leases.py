"""The deliveries that a consumer holds, and the heartbeat that renews their leases."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Generic, TypeVar

from delayq.calls import Steps
from delayq.log import log_of
from delayq.message import Delivery
from delayq.operations import settling
from delayq.operations.core import Core
from delayq.pace import Every

D = TypeVar("D", bound=Delivery)


class Leases(Generic[D]):
    """What was claimed and is not settled.

    A lease is renewed when a third of it is over, so that two heartbeats may fail before it ends.

    Args:
        lease_ms: the length of each.
    """

    def __init__(self, core: Core, lease_ms: int) -> None:
        self._core = core
        self._lease_ms = lease_ms
        self._held: dict[int, D] = {}
        self.heartbeat = Every(lease_ms / 6000)

    def hold(self, messages: Iterable[D]) -> None:
        """Look after these deliveries from now on."""
        self._held.update((id(message), message) for message in messages)

    def drop(self, message: D) -> None:
        """Look after a delivery no longer."""
        self._held.pop(id(message), None)

    def held(self) -> Collection[D]:
        """Return what is looked after."""
        return self._held.values()

    def stands(self, message: D) -> bool:
        """Whether a lease surely stands: this process may have been stopped for longer than that."""
        return message.held_until > time.monotonic()

    def renew(self) -> Steps[None]:
        """Renew the leases that have less than two thirds left, but for those that are known to be lost."""
        horizon = time.monotonic() + self._lease_ms / 1000 * 2 / 3
        waning = [each for each in self._held.values() if 0 < each.held_until < horizon and not each.settled]
        for message in (yield from settling.renew(self._core, waning, self._lease_ms)) if waning else []:
            if not message.settled:  # by its handler, meanwhile
                log_of(message).warning("lease lost: the message is delivered again")
