"""One run of a consumer on blocking connections, its handlers on threads: makes the moves of `delayq.turns`."""

from __future__ import annotations

from collections.abc import Callable

from delayq import bell
from delayq.message import Message
from delayq.mover import Mover
from delayq.operations import scheduling
from delayq.processes import Processes
from delayq.queue import Queue
from delayq.turns import Turns
from delayq.workers import Workers


class Loop(Turns[Message], Mover):
    """The state of a run.

    Args:
        hire: makes what runs the handlers: it is given what tells whether a message's lease still stands, and what is
            to be called, on any thread, after each outcome.
        most: return after so many messages, or None.
        burst: return when nothing is due.
    """

    _workers: Workers[Message] | Processes[Message]

    def __init__(
        self,
        queue: Queue,
        hire: Callable[[Callable[[Message], bool], Callable[[], None]], Workers[Message] | Processes[Message]],
        name: str,
        burst: bool = False,
        most: int | None = None,
    ) -> None:
        super().__init__(queue.core, Message, name, burst, most)
        self._queue = queue
        Mover.__init__(self, queue.connection, hire(self._leases.stands, self._nudge))

    def connect(self) -> None:
        """Make sure that the queue can be served.

        Raises:
            ServerError, QueueMismatch
        """
        try:
            self._unstored = self._do(scheduling.add_all(self._core, self._queue.cron_handlers.prepared))
            client = self._queue.connection.client
        except BaseException:
            self._wakeup.close()
            raise
        self._bells = [bell.Bell(client, scripts.keys.bell) for scripts in self._core.shards]
