"""delayq: a message queue on Redis that delivers each message at its time, and loses none.

Names that programs use are here, types that only signatures mention are in `delayq.types`, and all errors are in
`delayq.errors`. `delayq.aio` has the same, awaited.
"""

import sys
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

from delayq.errors import (
    DelayqError,
    DuplicateMessage,
    InvalidInput,
    KeyOverwritten,
    LoginRefused,
    NoResult,
    QueueFull,
    Reject,
    ResultTimeout,
    RetryAfter,
    ServerError,
    ServerNotReady,
    ServerOutOfMemory,
    ServerTooOld,
    ServerUnreachable,
    StaleReceipt,
    TaskFailed,
)
from delayq.late_import import late_names

if TYPE_CHECKING:
    from delayq.consumer import Consumer
    from delayq.model import backoff, rates
    from delayq.model.delivery import Outgoing, SentMessage
    from delayq.model.event import Event
    from delayq.model.health import troubles
    from delayq.model.message import Message, current_message
    from delayq.model.message_ids import content_id
    from delayq.model.middleware import Middleware, Sending
    from delayq.model.outcome import Ack
    from delayq.model.record import Record
    from delayq.operations.topics.publish import NewRecord
    from delayq.queue import Queue
    from delayq.queue_names import queues
    from delayq.task import SentTask, Task
    from delayq.topic import Topic
    from delayq.topic_consumer import TopicConsumer

__version__ = "0.1.0"


class _Checkout:
    """Finds delayq.cli and delayq.lua in a checkout, where they are beside this folder, not in it."""

    root = Path(__file__).parents[1]

    @classmethod
    def find_spec(cls, name, path=None, target=None):  # type: ignore[no-untyped-def]  # noqa: ARG003
        if name in {"delayq.cli", "delayq.lua"}:
            folder = cls.root / name.removeprefix("delayq.")
            return spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])
        return None


if (_Checkout.root / "pyproject.toml").is_file() and (_Checkout.root / "lua").is_dir():
    sys.meta_path.append(_Checkout)

__getattr__ = late_names(
    __name__,
    Ack="delayq.model.outcome",
    Consumer="delayq.consumer",
    Event="delayq.model.event",
    Message="delayq.model.message",
    Middleware="delayq.model.middleware",
    NewRecord="delayq.operations.topics.publish",
    Outgoing="delayq.model.delivery",
    Queue="delayq.queue",
    Record="delayq.model.record",
    Sending="delayq.model.middleware",
    SentMessage="delayq.model.delivery",
    SentTask="delayq.task",
    Task="delayq.task",
    Topic="delayq.topic",
    TopicConsumer="delayq.topic_consumer",
    backoff="delayq.model.backoff",
    content_id="delayq.model.message_ids",
    current_message="delayq.model.message",
    queues="delayq.queue_names",
    rates="delayq.model.rates",
    troubles="delayq.model.health",
)


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "Ack",
    "Consumer",
    "DelayqError",
    "DuplicateMessage",
    "Event",
    "InvalidInput",
    "KeyOverwritten",
    "LoginRefused",
    "Message",
    "Middleware",
    "NewRecord",
    "NoResult",
    "Outgoing",
    "Queue",
    "QueueFull",
    "Record",
    "Reject",
    "ResultTimeout",
    "RetryAfter",
    "Sending",
    "SentMessage",
    "SentTask",
    "ServerError",
    "ServerNotReady",
    "ServerOutOfMemory",
    "ServerTooOld",
    "ServerUnreachable",
    "StaleReceipt",
    "Task",
    "TaskFailed",
    "Topic",
    "TopicConsumer",
    "backoff",
    "content_id",
    "current_message",
    "queues",
    "rates",
    "troubles",
]
