"""The dead letters of a queue."""

from __future__ import annotations

from collections.abc import Iterable

from delayq.connection import Connection
from delayq.errors import InvalidInput
from delayq.info import MessageInfo
from delayq.operations import inspecting, managing
from delayq.operations.core import Core
from delayq.times import Seconds


class DeadLetters:
    """Messages that were rejected or ran out of retries, kept with their last error: `Queue.dead`."""

    def __init__(self, core: Core, connection: Connection) -> None:
        self._core = core
        self._connection = connection

    def list(self, limit: int = 100) -> list[MessageInfo]:
        """Return up to `limit` (1 to 1,000,000) dead letters, the longest dead first."""
        return self._connection.do(inspecting.peek(self._core, "dead", limit))

    def requeue(self, ids: str | Iterable[str] = "all", delay: Seconds = 0) -> int:
        """Bring dead letters back to pending with their retries reset.

        Args:
            ids: one id, several, or "all" for what is dead now. (A message whose id is "all": give ["all"].)
            delay: seconds (0 or more) or a timedelta until they are due.

        Returns:
            how many came back; those whose payload is gone stay dead.
        """
        if ids == "all":
            return self._connection.do(managing.requeue_all(self._core, delay))
        if not isinstance(ids, Iterable):
            raise InvalidInput(f"ids {ids!r} are neither an id, nor several, nor 'all'")
        chosen = [ids] if isinstance(ids, str) else list(ids)
        return self._connection.do(managing.requeue(self._core, chosen, delay))

    def purge(self, older_than: Seconds | None = None) -> int:
        """Discard dead letters, those that died `older_than` ago or all; return how many there were."""
        return self._connection.do(managing.purge(self._core, ["dead"], older_than))
