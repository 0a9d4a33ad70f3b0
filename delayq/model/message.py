# Made from delayq/aio/message.py by `make faces`: change that file.
"""Messages as a consumer receives them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from delayq.model.delivery import Delivery, Outgoing, P, running
from delayq.model.handler_progress import checked
from delayq.model.outcome import DONE, RELEASED, AckAndSend, dead, failed
from delayq.model.units import Seconds


def current_message() -> Message[Any] | None:
    """Return the message whose handler or task runs here; None outside a handler, and in a batch handler."""
    found = running.get()
    return cast("Message[Any]", found) if isinstance(found, Delivery) else None


class Message(Delivery[P], eq=False, gc=False):
    """A delivery of a message.

    Each method raises StaleReceipt if the delivery has ended, and InvalidInput in a process that was forked after the
    message was received. Then nothing was changed.
    """

    def ack(self, then: Iterable[Outgoing] = ()) -> None:
        """Settle the message as done.

        Args:
            then: up to 100 messages of the same queue, 4 MiB together, that are sent in the same step: all of them
                with the ack, or none. In a queue with shards, they live on this message's shard: leave their ids out.

        Raises:
            InvalidInput: for any of `then`; OtherShard, if an id belongs to another shard. Nothing was changed.
            DuplicateMessage: one of `then` with on_conflict="error" has an id that exists. Nothing was changed.
        """
        self._owner.settle(self, AckAndSend(then) if then else DONE)

    def nack(self, delay: Seconds | None = None, error: BaseException | str | None = None) -> None:
        """Fail the delivery: the message is retried, or becomes a dead letter if no retry is left.

        Args:
            delay: seconds (0 or more) or a timedelta until the next attempt; None for the queue's backoff.
            error: kept with the message.
        """
        self._owner.settle(self, failed(delay, error))

    def extend(self, seconds: Seconds) -> None:
        """Make the lease end `seconds` (0.001 to 86,400) from now."""
        self._owner.extend(self, seconds)

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Note how far the handler is, for `MessageInfo.progress`; calls within a second of the last note are skipped.

        Args:
            done: how much of the work is done, 0 to 2**53.
            total: all of the work, 0 to 2**53; None if it is unknown.
            text: up to 200 characters; longer ones are cut.
        """
        self._owner.report(self, checked(done, total, text))

    def release(self) -> None:
        """Hand the message back unstarted, without using a retry."""
        self._owner.settle(self, RELEASED)

    def reject(self, reason: str = "rejected", error: BaseException | str | None = None) -> None:
        """Move the message to the dead letters, even if retries are left."""
        self._owner.settle(self, dead(reason, error))
