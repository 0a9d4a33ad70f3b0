"""The messages of ``delayq demo``, and what happens to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from delayq.model import backoff
from delayq.model.delivery import Outgoing
from delayq.model.message import Message
from delayq.model.show import show_duration
from delayq.queue import Queue

SPAN = 8.0  # seconds over which the messages fall due
PLAIN, FLAKY = 30, 6
TOTAL = PLAIN + FLAKY + 4
BACKOFF = backoff.exponential(base=0.8, factor=2, jitter=0)


class MailRefused(Exception):
    """A temporary refusal by the demo's mail server."""


class DemoAction(NamedTuple):
    """A change to a waiting message, some seconds after the start."""

    second: float
    act: Callable[[Queue], object]
    text: str


def cast() -> Iterator[Outgoing]:
    """Yield the messages in the order in which they fall due, the special ones last."""
    for number in range(PLAIN):
        yield _mail(f"mail-{number + 1:02}", SPAN * number / PLAIN)
    for number in range(FLAKY):
        yield _mail(f"flaky-{number + 1}", 0.5 + SPAN * number / FLAKY, fails=1 + number % 2)
    yield _mail("doomed", 1.0, fails=99, max_retries=2)
    yield _mail("unwanted", 8.0)
    yield _mail("put-off", 7.0)
    yield _mail("code", 7.5, expires_in=8.0)


ACTIONS = (
    DemoAction(
        1.0, lambda queue: queue.reschedule("put-off", delay=9), "put-off is rescheduled: due in 9s instead of at 7s"
    ),
    DemoAction(1.2, lambda queue: queue.reschedule("code", delay=9), "code is rescheduled to 10s, but expires at 8s"),
    DemoAction(1.5, lambda queue: queue.cancel("unwanted"), "unwanted is cancelled before it falls due at 8s"),
)
"""They happen six seconds before the due times, so that a pause of the machine changes nothing."""

EXPECTED = {"sent": TOTAL, "acked": TOTAL - 3, "cancelled": 1, "expired": 1, "rescheduled": 2, "dead": 1, "inside": 1}
"""The expected counts."""


def _mail(id_: str, delay: float, fails: int = 0, **options: Any) -> Outgoing:
    takes = 0.1 + sum(id_.encode()) % 5 / 10
    payload = {"to": f"{id_}@example.org", "takes": takes, "fails": fails}
    return Outgoing(payload, delay=delay, id=id_, **options)


class Mailer:
    """The demo's handler: it takes as long, and fails as often, as the payload says.

    Args:
        say: shows an event.

    Attributes:
        early: deliveries before their due time; more than 0 is a fault in delayq.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.early = 0

    def __call__(self, message: Message) -> None:
        """Deliver a mail, or fail."""
        mail, attempt = message.payload, f"{message.id:<9} attempt {message.attempt}"
        self.early += message.handed_ms < message.due_ms
        self._say(f"{attempt} starts, {show_duration(message.lateness)} late")
        time.sleep(mail["takes"])
        if message.attempt > mail["fails"]:
            self._say(f"{attempt} done: acked")
            return
        then = "dead: no retry left" if message.is_last else f"retry in {show_duration(BACKOFF(message.attempt))}"
        self._say(f"{attempt} failed, {then}")
        raise MailRefused("451 try again later")
