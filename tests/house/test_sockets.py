"""A test that leaves a socket open fails itself and no other: see `tests.conftest.no_socket_left`."""

from __future__ import annotations

import pytest

from tests.harness.servers import RedisServer
from tests.harness.sockets import all_closed


def test_socket_left_open_is_named(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        with pytest.raises(AssertionError, match=f"left open: fd=.* to '{redis_server.socket}'"), all_closed(seconds=0):
            client.ping()
        with all_closed(seconds=0):  # it was open before
            client.ping()


def test_closed_socket_is_fine(redis_server: RedisServer) -> None:
    with all_closed(seconds=0), redis_server.client() as client:
        client.ping()
