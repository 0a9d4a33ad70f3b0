"""How long an idle consumer of the async API waits: to the microsecond, although event loops count milliseconds."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from delayq.transport import listener_async
from tests.aio.conftest import Run, on_both_loops


@on_both_loops
@pytest.mark.parametrize("seconds", [0.0, 0.0004, 0.0052, 0.0105])
def test_wait_ends_neither_early_nor_with_a_tick_of_the_event_loop(
    run: Run, seconds: float, monkeypatch: pytest.MonkeyPatch
):
    timers: list[float] = []
    wait = asyncio.wait

    async def noted(*args: Any, **options: Any) -> Any:
        timers.append(options["timeout"])
        return await wait(*args, **options)

    async def main() -> None:
        began = time.monotonic()
        await listener_async.wait([], seconds, asyncio.get_running_loop().create_future())
        assert time.monotonic() - began >= seconds

    monkeypatch.setattr(asyncio, "wait", noted)
    run(main())
    assert timers == [max(0.0, seconds - listener_async.TICK_SECONDS)]


@on_both_loops
def test_call_ends_a_wait_at_any_time(run: Run):
    async def main() -> None:
        events = asyncio.get_running_loop()
        for delay in (0.0, 0.001, 0.0295, 0.0302):
            woken = events.create_future()
            timer = events.call_later(delay, woken.set_result, None)
            await listener_async.wait([], 0.03, woken)
            timer.cancel()
        woken = events.create_future()
        woken.set_result(None)
        await listener_async.wait([], 60, woken)

    run(main())


@on_both_loops
def test_others_have_their_turn_during_the_end_of_a_wait(run: Run):
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def main() -> None:
        other = asyncio.create_task(others())
        for _ in range(100):  # the process may be paused for longer than a wait
            await listener_async.wait([], 0.0009)
            if turns:
                break
        other.cancel()
        await asyncio.wait({other})

    run(main())
    assert turns > 0
