"""delayq: a message queue on Redis that delivers each message at its time, and loses none."""

from delayq import backoff
from delayq.consumer import Consumer
from delayq.errors import DelayqError, DuplicateMessage, InvalidInput, Reject, RetryAfter, StaleReceipt
from delayq.info import MessageInfo
from delayq.message import Message, Outgoing, SentMessage
from delayq.queue import Queue
from delayq.stats import QueueStats

__version__ = "0.1.0"

__all__ = [
    "Consumer",
    "DelayqError",
    "DuplicateMessage",
    "InvalidInput",
    "Message",
    "MessageInfo",
    "Outgoing",
    "Queue",
    "QueueStats",
    "Reject",
    "RetryAfter",
    "SentMessage",
    "StaleReceipt",
    "backoff",
]
