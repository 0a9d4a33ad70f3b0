"""Which messages run alone: those whose earlier deliveries seem to have taken their consumers down."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

from delayq.message import Delivery

D = TypeVar("D", bound=Delivery)


class Quarantine(Generic[D]):
    """Keeps one suspect until nothing else is held, so that it takes no other message along if it kills its process."""

    def __init__(self) -> None:
        self._suspect: D | None = None
        self._running = False
        self._careful = False  # the last claim brought a suspect: more may follow

    def limit(self, room: int) -> int:
        """Return how many of `room` messages may be claimed: none beside a suspect, one after one."""
        if self._suspect is not None:
            return 0
        return min(room, 1) if self._careful else room

    def admit(self, messages: list[D]) -> tuple[list[D], list[D]]:
        """Keep the first suspect of a claim; return what may run now, and the other suspects, to be handed back."""
        suspects = [message for message in messages if message.is_suspect]
        self._careful = bool(suspects)
        if not suspects:
            return messages, []
        self._suspect, self._running = suspects[0], False
        return [message for message in messages if not message.is_suspect], suspects[1:]

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
