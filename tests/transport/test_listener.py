"""A bell listener on a real server: its connection, and commands that cross on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from delayq.transport.bell_source import BellSource
from delayq.transport.listener import BellListener
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

KEY = "delayq:{work}:bell"


@pytest.fixture
def bell(redis_client: redis.Redis) -> Iterator[BellListener]:
    bell = BellListener(redis_client, BellSource(KEY))
    yield bell
    bell.close()


def held_back(bell: BellListener, monkeypatch: pytest.MonkeyPatch, arrives: bool) -> list[str]:
    """Let a bell listen whose BLPOP arrives only after its node was asked to unblock it, or never."""
    bell.listen()
    assert bell.stop_listening() is False  # connected, and not listening
    connection, node, asked = bell._connection, bell._node, list[str]()
    send, execute = connection.send_command, node.execute_command
    kept: list[Any] = []
    monkeypatch.setattr(connection, "send_command", lambda *words: kept.append(words))

    def execute_command(*words: Any) -> Any:
        asked.append(words[0])
        said = execute(*words)
        if kept and arrives:
            send(*kept.pop())
        return said

    monkeypatch.setattr(node, "execute_command", execute_command)
    bell.listen()
    return asked


def test_blpop_that_arrives_after_the_end_is_unblocked(bell: BellListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.transport.listener.CROSSED_SECONDS", 60.0)
    asked = held_back(bell, monkeypatch, arrives=True)
    assert bell.stop_listening() is False
    assert len(asked) > 1
    monkeypatch.undo()
    bell.listen()
    assert bell.stop_listening() is False


def test_connection_whose_blpop_never_arrives_is_given_up(bell: BellListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.transport.listener.CROSSED_SECONDS", 0.05)
    held_back(bell, monkeypatch, arrives=False)
    assert bell.stop_listening() is False
    assert bell.fileno() == -1


def test_token_that_arrives_while_the_listener_stops_is_reported(bell: BellListener, redis_server: RedisServer) -> None:
    bell.listen()
    with redis_server.client() as other:
        other.lpush(KEY, "1")
        assert eventually(lambda: not other.exists(KEY))
    assert bell.stop_listening() is True
