"""Calls whose reply is still outstanding when their trip has ended."""

from __future__ import annotations

from typing import Any

from delayq.errors import ServerUnreachable

_NONE = object()


class Silent(ServerUnreachable):
    """The node has not answered an earlier call yet, so it was not asked."""

    def __init__(self, node: str) -> None:
        super().__init__(f"{node} has not answered yet: try again later")


class Unanswered(Silent):
    """The node has not answered this call yet; its reply is kept here when it comes.

    Unlike after a lost connection, the caller need not repeat the call: it may look here later.
    """

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self._reply: Any = _NONE

    @property
    def is_open(self) -> bool:
        """Whether the reply may still come."""
        return self._reply is _NONE

    @property
    def reply(self) -> Any:
        """The result of the call, or the DelayqError in its place."""
        return self if self._reply is _NONE else self._reply

    def answer(self, reply: Any) -> None:
        """Keep the result, or the error that the call has ended with."""
        self._reply = reply
