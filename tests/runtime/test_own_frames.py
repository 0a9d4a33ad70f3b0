"""The log of a failed delivery shows the handler's frames; those of delayq that called it are logged at debug."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from delayq import Consumer, InvalidInput, Message, Middleware, Queue, Topic, TopicConsumer, aio
from delayq.log import own_frames
from tests.harness import pooled
from tests.harness.servers import RedisServer

Lines = list[MutableMapping[str, Any]]


def fail(_: object) -> None:
    deeper()


def deeper() -> None:
    raise ValueError("broken")


async def fail_async(_: object) -> None:
    await asyncio.sleep(0)
    deeper()


def names(exc_info: Any) -> list[str]:
    trace = exc_info[2] if isinstance(exc_info, tuple) else exc_info.__traceback__
    return [frame.name for frame in traceback.extract_tb(trace)]


def shown(lines: Lines) -> list[str]:
    """The functions in the traceback of the failure; at debug, the same ones come last."""
    (failed,) = [line for line in lines if line["event"] == "delivery failed"]
    (whole,) = [line for line in lines if line["event"] == "all frames of a failed delivery"]
    found = names(failed["exc_info"])
    assert whole["log_level"] == "debug"
    assert names(whole["exc_info"])[-len(found) :] == found
    assert len(names(whole["exc_info"])) > len(found)
    return found


def consumed(queue: Queue, **options: Any) -> Lines:
    queue.send("x")
    with capture_logs() as lines:
        Consumer(queue, **options).drain()
    return lines


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("emails", url=redis_server.url) as queue:
        yield queue


@pytest.mark.parametrize("options", [{}, {"timeout": 60}], ids=["plain", "with a time limit"])
def test_traceback_of_a_handler_begins_with_it(queue: Queue, options: dict[str, Any]):
    queue.handler(fail)
    assert shown(consumed(queue, **options)) == ["fail", "deeper"]


def test_traceback_of_an_async_handler_begins_with_it(redis_server: RedisServer):
    async def run() -> None:
        async with aio.Queue("emails", url=redis_server.url) as queue:
            queue.handler(fail_async)
            await queue.send("x")
            await aio.Consumer(queue, timeout=60).drain()

    with capture_logs() as lines:
        asyncio.run(run())
    assert shown(lines) == ["fail_async", "deeper"]


def test_traceback_of_a_handler_of_records_begins_with_it(redis_server: RedisServer):
    with Topic("orders", url=redis_server.url) as topic, capture_logs() as lines:
        group = topic.group("billing")
        topic.publish("x")
        TopicConsumer(group, fail).run(max_records=1)
    assert shown(lines) == ["fail", "deeper"]


def test_traceback_of_a_batch_begins_with_its_handler(queue: Queue):
    @queue.batch_handler()
    def handle(_: list[Message]) -> None:
        deeper()

    assert shown(consumed(queue)) == ["handle", "deeper"]


def test_frames_of_middleware_stay(queue: Queue):
    middleware = Middleware()

    @middleware.around_delivery
    @contextmanager
    def around(_: Message) -> Iterator[None]:
        yield

    queue = Queue("emails", redis=queue._executor.client, middleware=middleware)
    queue.handler(fail)
    found = shown(consumed(queue))
    assert found[-2:] == ["fail", "deeper"]


def test_call_of_delayq_within_a_handler_stays_in_the_traceback(queue: Queue):
    @queue.handler
    def handle(_: Message) -> None:
        queue.send("x", delay=-1)

    found = shown(consumed(queue))
    assert found[:2] == ["handle", "send"]
    assert len(found) > 2


def test_error_of_delayq_itself_keeps_its_frames():
    with pytest.raises(InvalidInput) as raised:
        Queue("emails", lease="x")  # type: ignore[arg-type]
    raised.value.__traceback__ = raised.value.__traceback__ and raised.value.__traceback__.tb_next
    assert names(own_frames(raised.value))


def test_traceback_of_a_handler_in_a_process_begins_with_it(queue: Queue):
    queue.handler(pooled.fail_in_depth)
    lines = consumed(queue, pool="process", concurrency=1)
    (failed,) = [line for line in lines if line["event"] == "delivery failed"]
    text = "".join(traceback.format_exception(failed["exc_info"][1]))
    assert "in fail_in_depth" in text
    assert "delayq/runtime" not in text
