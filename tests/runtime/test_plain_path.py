"""A message without anything around its handler passes few functions on its way through a pool."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import delayq
from delayq import Consumer, Message, Outgoing, Queue, aio
from tests.harness.servers import RedisServer

MESSAGES = 400
OURS = (str(Path(delayq.__file__).parent), __file__)


class Calls:
    """Counts the calls of delayq's functions and of handlers by their thread, as a profiler."""

    def __init__(self) -> None:
        self.found: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            self.found[threading.current_thread().name, frame.f_code.co_qualname] += 1

    def each(self, thread: str) -> dict[str, int]:
        """The functions that ran at least once for each message, on threads whose name begins so, and how often."""
        each: Counter[str] = Counter()
        for (on, name), count in self.found.items():
            each[name] += count if on.startswith(thread) else 0
        return {name: count // MESSAGES for name, count in each.items() if count >= MESSAGES}


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    with Queue("jobs", url=redis_server.url) as queue:
        queue.send_many([Outgoing(b"x")] * MESSAGES)
    return redis_server.url


def test_thread_calls_few_functions_for_a_message(url: str) -> None:
    def handle(_: Message) -> None:
        pass

    calls = Calls()
    threading.setprofile(calls)
    try:
        with Queue("jobs", url=url) as queue:
            assert Consumer(queue, handle).drain() == MESSAGES
    finally:
        threading.setprofile(None)
    each = calls.each("delayq-worker")
    assert sum(each.values()) <= 7, each


def test_event_loop_calls_few_functions_for_a_message(url: str) -> None:
    async def handle(_: aio.Message) -> None:
        pass

    async def drain() -> int:
        async with aio.Queue("jobs", url=url) as queue:
            return await aio.Consumer(queue, handle).drain()

    calls = Calls()
    sys.setprofile(calls)
    try:
        assert asyncio.run(drain()) == MESSAGES
    finally:
        sys.setprofile(None)
    each = calls.each(threading.current_thread().name)
    assert sum(each.values()) <= 12, each
