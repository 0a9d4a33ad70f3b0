"""Deliveries that a consumer hands back before a handler sees them, written down: nobody else can tell of them.

A suspect that does not come alone is handed back behind what waits, and falls due anew: the delivery that reaches a
handler does not tell any more when the lease ended that the one before it had lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any
from unittest import mock

from delayq import Message
from delayq.runtime.poison_isolation import PoisonIsolation
from tests.harness.chaos.history import Journal


def note_unstarted(journal: Journal, name: Callable[[Message], str] = lambda message: message.id) -> None:
    """Write down from now on, before the server is told, what consumers of this process hand back so.

    Args:
        name: what a message is called in the journal.
    """
    admit = PoisonIsolation.admit

    def noted(self: PoisonIsolation[Any], messages: list[Any], held: Collection[Any]) -> tuple[list[Any], list[Any]]:
        admitted, refused = admit(self, messages, held)
        for message in refused:
            journal.unstarted(name(message), message)
        return admitted, refused

    mock.patch.object(PoisonIsolation, "admit", noted).start()
