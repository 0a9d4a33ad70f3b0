"""What is the same in all versions of redis-py that delayq works with."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from delayq.transport import redis_py


@pytest.mark.parametrize("name", ["can_read", "can_read_destructive"])
def test_connection_is_asked_for_a_reply_by_the_name_that_it_knows(name: str) -> None:
    connection: Any = Mock(spec=[name], **{name: AsyncMock(return_value=True)})
    assert asyncio.run(redis_py.can_read(connection)) is True


def test_node_gets_its_connection_back_with_and_without_a_method_for_it() -> None:
    old: Any = Mock(spec=["_free"], _free=deque())
    redis_py.give_back(old, "connection")
    assert list(old._free) == ["connection"]
    new: Any = Mock(spec=["release"])
    redis_py.give_back(new, "connection")
    new.release.assert_called_once_with("connection")


def test_idle_connections_of_a_node_are_closed() -> None:
    idle: Any = Mock(disconnect=AsyncMock())
    asyncio.run(redis_py.close_idle(Mock(spec=["_free"], _free=deque([idle]))))
    idle.disconnect.assert_awaited_once_with()
