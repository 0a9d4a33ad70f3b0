"""Which messages run alone: those whose earlier deliveries seem to have taken their consumers down."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Generic, TypeVar

from delayq.model.delivery import Delivery

D = TypeVar("D", bound=Delivery)

CLAIMS_OF_ONE = 8  # after a suspect has come: so many may come before it, or other suspects after it


class PoisonIsolation(Generic[D]):
    """Lets a suspect run only when nothing else is held, so that neither takes the other along.

    One that comes with others, or while others run, is handed back, uncounted. Nothing is claimed then until those are
    done, and one message at a time for a while. But a handler that takes long must not idle the others for as long, so
    they continue in every other period of `stretch` seconds.
    """

    def __init__(self, stretch: float) -> None:
        self._stretch = stretch
        self._since = 0.0
        self._claims_of_one = 0
        self._alone: D | None = None

    def limit(self, room: int, held: Collection[D]) -> int:
        """Return how many of `room` messages may be claimed: none beside a suspect, one after one."""
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
        """Return what may run of a claim, beside what is held, and the suspects to be handed back."""
        suspects = [message for message in messages if message.is_suspect]
        if not suspects:
            self._claims_of_one = max(0, self._claims_of_one - 1)
            return messages, []
        if not self._claims_of_one or len(suspects) == len(messages):
            self._since = time.monotonic()  # also when nothing else was to be had: there is no use in claiming on
        self._claims_of_one = CLAIMS_OF_ONE
        if len(messages) == 1 and not held:
            (self._alone,) = messages
            return messages, []
        return [message for message in messages if not message.is_suspect], suspects
