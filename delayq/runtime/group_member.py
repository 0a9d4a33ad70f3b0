"""A consumer as a member of a topic's group: how it takes records, and what follows from their outcomes."""

from __future__ import annotations

from typing import NamedTuple

from delayq.log import log
from delayq.model import outcome as oc
from delayq.model.backoff import WaitAfterError
from delayq.model.backoff import exponential as default_backoff
from delayq.model.record import Record
from delayq.model.units import delay_ms

EXHAUSTED = "deliveries-exhausted"  # the reason that `reclaim` gives


class GroupMember(NamedTuple):
    """For which group and under which name records are taken.

    Attributes:
        group: its name.
        name: of the consumer.
        lasts: the consumer will come back under this name; otherwise it leaves the group when it ends.
        max_deliveries: of a record; None for no limit.
        ack_timeout: seconds after which others take over records that are not renewed.
    """

    group: str
    name: str
    lasts: bool
    max_deliveries: int | None
    ack_timeout: float
    backoff: WaitAfterError

    def judged(self, record: Record, outcome: oc.Outcome) -> oc.Outcome:
        """Return the outcome for a record that was handled."""
        if isinstance(outcome, oc.AckAndSend):
            outcome = (
                oc.Failed(error="the handler returned Ack(then=…), which works only in queues")
                if outcome.then
                else oc.DONE
            )
        most = self.max_deliveries
        if isinstance(outcome, oc.Failed) and most is not None and record.deliveries >= most:
            oc.clear_frames(outcome)
            return oc.Dead(EXHAUSTED, outcome.error)
        return outcome

    def backoff_seconds(self, record: Record, outcome: oc.Failed) -> float:
        """Return how long a record that has failed waits."""
        if outcome.delay_ms is not None:
            return outcome.delay_ms / 1000
        try:
            return delay_ms(self.backoff(record.deliveries, outcome.cause), "backoff") / 1000
        except BaseException as error:  # noqa: BLE001  # the user's function must not block the record
            log.warning(
                "backoff failed",
                group=self.group,
                id=record.id,
                error=oc.error_text(error),
            )
            return default_backoff()(record.deliveries)
