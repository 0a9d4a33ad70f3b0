"""Which messages run alone: those whose earlier deliveries seem to have crashed their consumers."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Generic, TypeVar

from delayq.model.delivery import Delivery

D = TypeVar("D", bound=Delivery)

CLAIMS_OF_ONE = 8  # claims of one message after a suspect: as many may come before it, or suspects after it


class PoisonIsolation(Generic[D]):
    """Lets a suspect run only when nothing else is held, so that a crash affects no other message.

    A suspect that comes with others, or while others run, is handed back, uncounted. Then nothing is claimed until
    those are done, and for a while only one message at a time. But a handler that takes long must not idle the others
    for as long, so they continue in every other period of `stretch` seconds.
    """

    def __init__(self, stretch: float) -> None:
        self._stretch = stretch
        self._since = 0.0
        self._claims_of_one = 0
        self._alone: D | None = None

    def limit(self, room: int, held: Collection[D]) -> int:
        """Return how many of `room` messages may be claimed: none beside a suspect, and one at a time after one."""
        if self._alone is not None:
            if self._alone in held:
                return 0
            self._alone = None
        if not self._claims_of_one:
            return room
        if not held:
            return min(room, 1)
        return room if int((time.monotonic() - self._since) / self._stretch) % 2 else 0

    def admit(self, messages: list[D], held: Collection[D]) -> tuple[list[D], list[D]]:
        """Return the messages of a claim that may run beside the held ones, and the suspects to hand back."""
        suspects = [message for message in messages if message.is_suspect]
        if not suspects:
            self._claims_of_one = max(0, self._claims_of_one - 1)
            return messages, []
        if not self._claims_of_one or len(suspects) == len(messages):
            self._since = time.monotonic()  # even if there was nothing else: claiming more would not help
        self._claims_of_one = CLAIMS_OF_ONE
        if len(messages) == 1 and not held:
            (self._alone,) = messages
            return messages, []
        return [message for message in messages if not message.is_suspect], suspects
