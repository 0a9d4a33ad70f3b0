"""An event loop for the tests of the async API: asyncio's, and with `full` also uvloop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

Run = Callable[[Coroutine[Any, Any, Any]], Any]

on_one_loop = pytest.mark.parametrize(
    "run", ["asyncio"], indirect=True
)  # what is checked does not depend on the event loop
on_both_loops = pytest.mark.parametrize("run", ["asyncio", "uvloop"], indirect=True)  # also in `make test`


@pytest.fixture(params=["asyncio", pytest.param("uvloop", marks=pytest.mark.full)])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """``run(coroutine)``: returns its result; no task may be left after the test."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else None
    runner = asyncio.Runner(loop_factory=factory)
    yield runner.run
    left = asyncio.all_tasks(runner.get_loop())
    runner.close()
    assert left == set()
