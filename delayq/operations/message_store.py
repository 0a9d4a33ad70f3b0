"""Where a queue keeps its messages: in Redis or, if they are due beyond a horizon, in a lake."""

from __future__ import annotations

import datetime as dt
import importlib
import os
from collections.abc import Iterable
from functools import partial
from typing import Any, Protocol

from delayq.errors import InvalidInput
from delayq.late_import import late_import
from delayq.model.delivery import Outgoing, SentMessage
from delayq.model.extras import install
from delayq.model.message_info import MessageInfo
from delayq.model.units import Seconds, milliseconds
from delayq.operations import inspect, manage, send
from delayq.operations.bulk import actions
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Program

LAKE = "delayq.lake.deferred_messages"  # loaded only for a queue with a horizon, as it needs pyarrow


class MessageStore(Protocol):
    """The operations that depend on where a message is kept.

    Attributes:
        defers: whether it keeps messages anywhere but in Redis.
    """

    defers: bool

    def may_defer(self, message: Outgoing) -> bool:
        """Whether a send may concern messages beyond the horizon."""

    def send_many(self, outgoing: Any, wait_replicas: int, is_batch: bool = True) -> Program[list[SentMessage]]:
        """Send messages; see `send.send_many`."""

    def cancel(self, message_id: str, running: bool = False) -> Program[Any]:
        """Cancel a message; `running`: also stop its handler."""

    def reschedule(self, message_id: str, delay: Seconds | None, at: dt.datetime | None) -> Program[Any]:
        """Give a message a new due time."""

    def now(self, ids: str | Iterable[str]) -> Program[dict[str, Any]]:
        """Make messages due now."""

    def get(self, message_id: str) -> Program[MessageInfo | None]:
        """Find a message."""

    def why(self, message_id: str) -> Program[str]:
        """Say why a message has not been delivered."""


class RedisStore:
    """Keeps all messages in Redis."""

    defers = False

    def __init__(self, context: QueueContext) -> None:
        self.send_many = partial(send.send_many, context)
        self.cancel = partial(manage.cancel, context)
        self.reschedule = partial(manage.reschedule, context)
        self.now = partial(actions.now, context)
        self.get = partial(inspect.get, context)
        self._context = context

    def may_defer(self, message: Outgoing) -> bool:  # noqa: ARG002  # as that of a lake
        """Never."""
        return False

    def why(self, message_id: str) -> Program[str]:
        """Say why a message has not been delivered."""
        with late_import:
            from delayq.operations import explain  # noqa: PLC0415
        return explain.why(self._context, message_id)


def message_store(context: QueueContext, horizon: Seconds | None, lake: str | os.PathLike[str] | None) -> MessageStore:
    """Return the store for a queue's arguments.

    Raises:
        InvalidInput: one of the arguments is missing or out of range, or pyarrow is not installed.
    """
    if horizon is None and lake is None:
        return RedisStore(context)
    if horizon is None or lake is None:
        raise InvalidInput("horizon= and lake= belong together: give both or neither")
    try:
        module = importlib.import_module(LAKE)
    except ModuleNotFoundError as error:
        raise InvalidInput(f"lake= needs {error.name}: {install('lake')}") from error
    store: MessageStore = module.DeferredMessages(context, milliseconds(horizon, "horizon"), lake)
    return store
