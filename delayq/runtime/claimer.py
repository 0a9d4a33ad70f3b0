"""How one run of a consumer claims messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from delayq.log import log_of
from delayq.model.delivery import Delivery
from delayq.operations.claim import Batch, ClaimNames, NextMessages, claim
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation
from delayq.protocol.queue_commands import MAX_IDS
from delayq.runtime.lease_keeper import LeaseKeeper
from delayq.runtime.poison_isolation import PoisonIsolation

D = TypeVar("D", bound=Delivery)


class Claimer(Generic[D]):
    """Claims messages under names, so that a claim can be repeated, and holds their leases; a suspect runs alone.

    Args:
        name: of the consumer.
        make_message: turns a delivery into a message.
        is_alone: whether no other queue shares the handlers; otherwise, most claims are of one message.

    Attributes:
        keyless: messages that failed at once, because their key could not be computed: no worker has seen them.
    """

    def __init__(
        self, context: QueueContext, name: str, make_message: Callable[..., D], leases: LeaseKeeper[D], is_alone: bool
    ) -> None:
        self.keyless = 0
        self._context = context
        self._name = name
        self._make_message = make_message
        self._leases = leases
        self._names = ClaimNames()
        self._following = None if is_alone else NextMessages()
        self._isolation: PoisonIsolation[D] = PoisonIsolation(leases.lease_ms / 1000)

    def limit(self, room: int) -> int:
        """Return how many messages to claim, for a room."""
        return self._isolation.limit(min(room, MAX_IDS), self._leases.held)

    def claim(self, limit: int, expected: Sequence[str]) -> Operation[Batch]:
        """Claim up to `limit` messages; see `claim`."""
        lease, following = self._leases.lease_ms, self._following
        return claim(
            self._context, self._make_message, limit, lease, False, expected, self._name, self._names, following
        )

    def admit(self, messages: list[D]) -> tuple[list[D], list[D]]:
        """Hold messages that were claimed; return those that may run, and the suspects to hand back."""
        admitted, refused = self._isolation.admit(messages, self._leases.held)
        if len(messages) == 1 and admitted and admitted[0].is_suspect:
            log_of(admitted[0]).warning("message runs alone")
        self._leases.hold(messages)
        return admitted, refused

    def end(self) -> Operation[None]:
        """Forget the names of the claims on the server."""
        if self._context.is_recorded:
            yield [shard.end_claims(self._name, self._names.run) for shard in self._context.shards]
