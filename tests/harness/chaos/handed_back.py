"""Notes deliveries that a consumer returns before a handler sees them, because nothing else records them.

A suspect that is not claimed alone is returned behind the waiting messages and falls due again. So the delivery that
reaches a handler no longer shows when the lost lease before it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any
from unittest import mock

from delayq import Message
from delayq.runtime.poison_isolation import PoisonIsolation
from tests.harness.chaos.history import Journal


def note_unstarted(journal: Journal, name: Callable[[Message], str] = lambda message: message.id) -> None:
    """From now on, note what consumers of this process return in this way, before the server gets it.

    Args:
        name: gives the name of a message in the journal.
    """
    admit = PoisonIsolation.admit

    def noted(self: PoisonIsolation[Any], messages: list[Any], held: Collection[Any]) -> tuple[list[Any], list[Any]]:
        admitted, refused = admit(self, messages, held)
        for message in refused:
            journal.unstarted(name(message), message)
        return admitted, refused

    mock.patch.object(PoisonIsolation, "admit", noted).start()
