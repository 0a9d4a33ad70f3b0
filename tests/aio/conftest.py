"""Fixtures: an event loop of each kind, and a queue of the async face."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """``run(coroutine)``: its result; no task is left after the test."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else None
    runner = asyncio.Runner(loop_factory=factory)
    yield runner.run
    left = asyncio.all_tasks(runner.get_loop())
    runner.close()
    assert left == set()
