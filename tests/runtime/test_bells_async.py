from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from delayq.runtime.bells_async import Bells


class Listener:
    """Closes at the second call: the first one is cancelled."""

    def __init__(self) -> None:
        self.calls = 0

    async def close(self) -> None:
        self.calls += 1
        if self.calls == 1:
            raise asyncio.CancelledError


def test_cancelled_close_leaves_the_other_connections_to_the_next_one():
    bells, others = Bells(SimpleNamespace(leave=None)), [Listener() for _ in range(3)]  # type: ignore[arg-type]
    listeners: list[Any] = list(others)
    bells.listeners = listeners
    for _ in others:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(bells.close())
    asyncio.run(bells.close())
    assert [each.calls for each in others] == [2, 2, 2]
    assert bells.listeners == []
