"""Which messages run alone: those whose earlier deliveries seem to have taken their consumers down."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Generic, TypeVar

from delayq.message import Delivery

D = TypeVar("D", bound=Delivery)


class Quarantine(Generic[D]):
    """Keeps one suspect until nothing else is held, so that it takes no other message along if it kills its process.

    Claims stop meanwhile; but a handler that takes long must not idle the others for as long, so they go on in every
    other stretch of `patience`, in seconds.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since = 0.0
        self._suspect: D | None = None
        self._running = False
        self._careful = False  # the last claim brought a suspect: more may follow

    def limit(self, room: int) -> int:
        """Return how many of `room` messages may be claimed: none beside a suspect, one after one."""
        if self._suspect is not None:
            blocked = self._running or int((time.monotonic() - self._since) / self._patience) % 2 == 0
            return 0 if blocked else room
        return min(room, 1) if self._careful else room

    def admit(self, messages: list[D]) -> tuple[list[D], list[D]]:
        """Keep the first suspect of a claim; return what may run now, and the other suspects, to be handed back."""
        suspects = [message for message in messages if message.is_suspect]
        if self._suspect is None:
            self._careful = bool(suspects)
            if not suspects:
                return messages, []
            self._suspect, self._running, self._since = suspects.pop(0), False, time.monotonic()
        return [message for message in messages if not message.is_suspect], suspects

    def released(self, held: Collection[D]) -> D | None:
        """Return the suspect once it is all that is held; from then on it runs. Forget one that is held no more."""
        suspect = self._suspect
        if suspect is None or self._running:
            if suspect is not None and suspect not in held:
                self._suspect = None
            return None
        if len(held) > 1:
            return None
        self._running = True
        return suspect

    def waiting(self) -> list[D]:
        """Return the suspect while it has not been run."""
        return [] if self._suspect is None or self._running else [self._suspect]
