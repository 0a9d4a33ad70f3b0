"""delayq: a message queue on Redis that delivers each message at its time, and loses none."""

from delayq import backoff
from delayq.consumer import Consumer
from delayq.crew import ConsumerInfo, Held
from delayq.errors import DelayqError, DuplicateMessage, InvalidInput, Reject, RetryAfter, StaleReceipt
from delayq.info import MessageInfo
from delayq.ledger import Event
from delayq.limits import Configuration
from delayq.message import Message, Outgoing, SentMessage
from delayq.middleware import Middleware, Sending
from delayq.operations.redriving import Redriven
from delayq.outcome import Ack
from delayq.queue import Queue
from delayq.samples import Sample
from delayq.stats import QueueStats, Upcoming
from delayq.topic import Topic
from delayq.topic_consumer import TopicConsumer
from delayq.topics.publishing import NewRecord
from delayq.topics.record import Record

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "Configuration",
    "Consumer",
    "ConsumerInfo",
    "DelayqError",
    "DuplicateMessage",
    "Event",
    "Held",
    "InvalidInput",
    "Message",
    "MessageInfo",
    "Middleware",
    "NewRecord",
    "Outgoing",
    "Queue",
    "QueueStats",
    "Record",
    "Redriven",
    "Reject",
    "RetryAfter",
    "Sample",
    "Sending",
    "SentMessage",
    "StaleReceipt",
    "Topic",
    "TopicConsumer",
    "Upcoming",
    "backoff",
]
