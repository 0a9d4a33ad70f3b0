"""Learns which running handlers are to be stopped, and stops them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar

from delayq.errors import DelayqError
from delayq.log import log, log_of
from delayq.model.delivery import Delivery
from delayq.model.lease_clock import lease_now
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation
from delayq.protocol.queue_commands import MAX_IDS
from delayq.runtime.lease_keeper import LeaseKeeper

LOOK_SECONDS = 1.0  # after a delivery, and then between two looks

D = TypeVar("D", bound=Delivery)


class CancellationWatch(Generic[D]):
    """Looks once a second for deliveries to stop, from a second after the delivery of the oldest one on.

    So consumers whose handlers take less than a second never look. A look is an EXISTS per shard, in a round trip that
    the consumer makes anyway.

    Args:
        leases: of the messages that the consumer holds, in the order of their deliveries.
        stop: ends the handler of a message, if its pool can.
    """

    def __init__(self, context: QueueContext, leases: LeaseKeeper[D], stop: Callable[[D], object]) -> None:
        self._context = context
        self._leases = leases
        self._stop = stop
        self._next = 0.0  # by `lease_now`
        self._ahead = 0.0  # of `lease_now` to the server's clock, seconds

    def took(self, message: D) -> None:
        """Note that a message was handed out just now."""
        self._ahead = lease_now() - message.handed_ms / 1000

    def left(self) -> float:
        """Return the seconds until the next look; infinity while nothing is held."""
        oldest = next(iter(self._leases.held), None)
        if oldest is None:
            return math.inf
        now = lease_now()
        age = now - self._ahead - oldest.handed_ms / 1000
        young = LOOK_SECONDS - age if age >= 0 else 0.0  # before 0: the server's clock was set back
        return max(0.0, young, self._next - now)

    def look(self) -> Operation[None]:
        """Stop the handlers of deliveries that are to be stopped. An error ends nothing: the next look comes soon."""
        self._next = lease_now() + LOOK_SECONDS
        shards = self._context.shards
        found = yield [shard.has_stops() for shard in shards]
        asked = {id(shard) for shard, reply in zip(shards, found, strict=True) if reply == 1}
        held = [each for each in tuple(self._leases.held) if not (each.settled or each.cancelled)] if asked else []
        for shard, positions in self._context.by_shard(range(len(held)), lambda position: held[position].id):
            for start in range(0, len(positions) if id(shard) in asked else 0, MAX_IDS):
                some = [held[position] for position in positions[start : start + MAX_IDS]]
                (found_stops,) = yield [shard.stopping([(each.id, each.receipt) for each in some])]
                if isinstance(found_stops, DelayqError):
                    log.debug("stops not read", queue=self._context.name, error=str(found_stops))
                    continue
                for message, stop in zip(some, found_stops, strict=True):
                    if stop is not None:
                        self._end(message)

    def _end(self, message: D) -> None:
        log_of(message).info("handler to be stopped")
        message.cancelled = True
        if message.on_cancel is None:
            self._stop(message)
        else:
            message.on_cancel()
