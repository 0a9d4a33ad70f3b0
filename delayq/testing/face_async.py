"""The async API, as the kit uses it, and how the kit runs its programs; it also serves blocking queues."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from redis.asyncio import Redis

import delayq
from delayq.aio import Consumer, Message, Queue, Topic
from delayq.aio.ledger import Ledger
from delayq.runtime.receiver_async import Receiver, TopicWaits
from delayq.runtime.routing_async import awaited
from delayq.testing.face import BLOCKING, Face
from delayq.transport import trampoline
from delayq.transport.executor_async import Executor

T = TypeVar("T")

ASYNC = Face(Queue, Topic, Consumer, Message, Ledger, Receiver, TopicWaits, Executor, "FakeAsyncRedis")
FACES = (ASYNC, BLOCKING)
AnyQueue: TypeAlias = Queue | delayq.Queue
AnyTopic: TypeAlias = Topic | delayq.Topic
Client: TypeAlias = Redis

called = awaited  # in a handler's place: a plain one runs in a thread, as in production


async def run(program: Generator[Callable[[], Any], Any, T]) -> T:
    """Make the calls that a program yields, await those of the async API, and return what the program returns."""
    return await trampoline.run_async(program, _call)


async def _call(call: Callable[[], Any]) -> Any:
    value = call()
    return await value if inspect.isawaitable(value) else value
