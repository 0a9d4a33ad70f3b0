"""Lost replies: the server has done the work, and the client never learns it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from delayq import Queue
from delayq.errors import ServerUnreachable
from delayq.protocol.command import Command

Reply = Literal["heard", "repeated", "unheard"]
"""What becomes of it: it arrives; or it is lost, and the client asks again unasked; or it gives up."""

NO_CHANGES = {"open_queue", "heartbeat", "sample", "stats", "get", "held_keys"}


class LostReplies:
    """Loses the reply to the next call that changes something.

    A call that must not run twice is never repeated: its client gives up.

    Attributes:
        next: what to do with the reply.
        skip: how many more round trips to let through before the one whose reply is lost.
        last: what happened to the reply.
        trip: the commands whose reply was lost.
    """

    def __init__(self) -> None:
        self.next: Reply = "heard"
        self.skip = 0
        self.last: Reply = "heard"
        self.trip: set[str] = set()
        self._begun = False

    def begin(self) -> None:
        """A new call of the client starts."""
        self.last, self.trip, self._begun = "heard", set(), False

    def end(self) -> None:
        """The call has ended: lose no reply of the next one."""
        self.next, self.skip = "heard", 0

    def within(self, queue: Queue) -> Queue:
        """Apply to the calls of this client."""
        executor = queue._executor
        run = executor.run

        def losing(calls: Sequence[Command[Any]], repeat: bool = True) -> list[Any]:
            results = run(calls, repeat)
            names = {call.script.name if call.script else str(call.args[0]) for call in calls}
            self._begun = self._begun or any(call.script and call.script.name not in NO_CHANGES for call in calls)
            if self.next == "heard" or not self._begun:
                return results
            if self.skip:
                self.skip -= 1
                return results
            self.last, self.next, self.trip = self.next, "heard", names
            if self.last == "repeated" and repeat and all(call.repeats for call in calls):
                return run(calls, repeat)
            self.last = "unheard"
            raise ServerUnreachable("the reply was lost")

        vars(executor)["run"] = losing
        return queue
