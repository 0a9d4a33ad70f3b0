"""The deliveries that a consumer holds, and the heartbeat that renews their leases."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Generic, TypeVar

from delayq.log import log_of
from delayq.model.delivery import Delivery
from delayq.model.lease_clock import lease_now
from delayq.model.units import lease_ms
from delayq.operations import settle, unfetched
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, gather, noop, unwrap

HEARTBEATS_PER_LEASE = 6

D = TypeVar("D", bound=Delivery)


class LeaseKeeper(Generic[D]):
    """What was claimed and is not settled.

    A heartbeat renews each lease of which a third is over. Heartbeats come every sixth of a lease, so that several may
    fail before one ends.

    Attributes:
        lease_ms: the length of each.
        heartbeat_seconds: between two renewals.
        settling: the deliveries that are being settled, by their `id()`: one of them may be found settled already.
    """

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self.lease_ms = lease_ms(context.settings.lease)
        self._held: dict[int, D] = {}
        self.heartbeat_seconds = self.lease_ms / 1000 / HEARTBEATS_PER_LEASE
        self.settling: frozenset[int] = frozenset()

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
        return message.held_until > lease_now()

    def renew(self) -> Operation[None]:
        """Renew the leases that have less than two thirds left, but for those that are known to be lost.

        It runs beside everything else that the consumer does.
        """
        horizon = lease_now() + self.lease_ms / 1000 * 2 / 3
        known = [each for each in tuple(self._held.values()) if each.held_until or each.is_replaced]
        waning = [each for each in known if each.held_until < horizon and not each.settled]
        waning = [each for each in waning if id(each) not in self.settling]
        renewing = settle.renew(self._context, waning, self.lease_ms) if waning else noop()
        lost, error = yield from gather(renewing, unfetched.renew(self._context))
        for message in unwrap(lost) or ():
            if not message.settled and id(message) not in self.settling:  # else it was settled meanwhile
                lost_to = "message replaced while running" if message.is_replaced else "lease lost"
                log_of(message).warning(lost_to)
        unwrap(error)
