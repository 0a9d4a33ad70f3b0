"""The deliveries that a consumer holds, and the heartbeat that renews their leases."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    """The deliveries that were claimed and are not settled.

    A heartbeat renews each lease after a third of its time. Heartbeats come every sixth of a lease, and after one that
    failed every half second, so several can fail before a lease ends.

    Attributes:
        lease_ms: the length of a lease.
        heartbeat_seconds: between two renewals.
        held: the deliveries whose leases are renewed.
        settling: the deliveries that are being settled, by their `id()`: a renewal may find them settled already.
    """

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self.lease_ms = lease_ms(context.settings.lease)
        self._held: dict[int, D] = {}
        self.held: Collection[D] = self._held.values()
        self.heartbeat_seconds = self.lease_ms / 1000 / HEARTBEATS_PER_LEASE
        self.settling: frozenset[int] = frozenset()

    def hold(self, messages: Sequence[D]) -> None:
        """Renew the leases of these deliveries from now on."""
        self._held.update(zip(map(id, messages), messages, strict=True))

    def drop(self, message: D) -> None:
        """Stop renewing the lease of a delivery."""
        self._held.pop(id(message), None)

    def stands(self, message: D) -> bool:
        """Whether a message may start: its lease certainly holds, also after a suspension, and it is not cancelled."""
        return message.held_until > lease_now() and not message.cancelled

    def renew(self, everything: bool = False) -> Operation[None]:
        """Renew the leases that have less than two thirds left, or all, except those known to be lost.

        A delivery that is being settled is renewed only if the settlement takes long: with less than a third left.

        It runs concurrently with everything else in the consumer.

        Raises:
            DelayqError: some could not be renewed.
        """
        known = [each for each in tuple(self._held.values()) if each.held_until or each.is_replaced]
        waning = [each for each in known if not each.settled and (everything or self._wanes(each))]
        renewing = settle.renew(self._context, waning, self.lease_ms) if waning else noop()
        renewed, error = yield from gather(renewing, unfetched.renew(self._context, everything))
        lost, trouble = unwrap(renewed) or ((), None)
        for message in lost:
            if not message.settled and id(message) not in self.settling:  # otherwise it was settled meanwhile
                lost_to = "message replaced while running" if message.is_replaced else "lease lost"
                log_of(message).warning(lost_to)
        unwrap(trouble)
        unwrap(error)

    def _wanes(self, message: D) -> bool:
        left = message.held_until - lease_now()
        return left < self.lease_ms / 1000 * (1 / 3 if id(message) in self.settling else 2 / 3)
