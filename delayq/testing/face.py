"""The blocking API, as the kit uses it, and how the kit runs its programs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from redis import Redis

from delayq.consumer import Consumer
from delayq.ledger import Ledger
from delayq.model.message import Message
from delayq.queue import Queue
from delayq.runtime.receiver import Receiver, TopicWaits
from delayq.topic import Topic
from delayq.transport import trampoline
from delayq.transport.executor import Executor

T = TypeVar("T")
Handler: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class Face:
    """One of the two APIs.

    Attributes:
        queue, topic, consumer, message, ledger, receiver, waits, executor: its classes.
        client: the class of fakeredis clients for its executor.
    """

    queue: Any
    topic: Any
    consumer: Any
    message: Any
    ledger: Any
    receiver: Any
    waits: Any
    executor: Any
    client: str


BLOCKING = Face(Queue, Topic, Consumer, Message, Ledger, Receiver, TopicWaits, Executor, "FakeRedis")
FACES = (BLOCKING,)
AnyQueue: TypeAlias = Queue
AnyTopic: TypeAlias = Topic
Client: TypeAlias = Redis


def called(handler: Handler) -> Handler:
    """Return the function that is called in a handler's place: the handler itself."""
    return handler


def run(program: Generator[Callable[[], Any], Any, T]) -> T:
    """Make the calls that a program yields, and return what it returns."""
    return trampoline.run(program, lambda call: call())
