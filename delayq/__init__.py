"""delayq: a message queue on Redis that delivers each message at its time, and loses none.

What a program types is here; what only signatures mention is in `delayq.types`. `delayq.aio` has the same, awaited.
"""

from pathlib import Path

from delayq.consumer import Consumer
from delayq.errors import DelayqError, DuplicateMessage, InvalidInput, Reject, RetryAfter, StaleReceipt
from delayq.model import backoff, rates
from delayq.model.delivery import Outgoing, SentMessage
from delayq.model.event import Event
from delayq.model.health import troubles
from delayq.model.message import Message
from delayq.model.middleware import Middleware, Sending
from delayq.model.outcome import Ack
from delayq.model.record import Record
from delayq.operations.topics.publish import NewRecord
from delayq.queue import Queue
from delayq.topic import Topic
from delayq.topic_consumer import TopicConsumer

__version__ = "0.1.0"

_ROOT = Path(__file__).parents[1]
if (_ROOT / "pyproject.toml").is_file() and (_ROOT / "lua").is_dir():
    __path__.append(str(_ROOT))  # a checkout, in which lua/ and cli/ are not below this folder, but beside it

__all__ = [
    "Ack",
    "Consumer",
    "DelayqError",
    "DuplicateMessage",
    "Event",
    "InvalidInput",
    "Message",
    "Middleware",
    "NewRecord",
    "Outgoing",
    "Queue",
    "Record",
    "Reject",
    "RetryAfter",
    "Sending",
    "SentMessage",
    "StaleReceipt",
    "Topic",
    "TopicConsumer",
    "backoff",
    "rates",
    "troubles",
]
