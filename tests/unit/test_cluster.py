"""What a node answers to calls on one connection, and how often a cluster is looked at."""

from __future__ import annotations

import threading
import types
from typing import Any

import pytest
from redis import exceptions

from delayq import cluster
from delayq.calls import Call, as_is
from delayq.cluster import Sent, _Talk


class Node:
    """A server, its pool and its connection, with the replies that it is to give."""

    def __init__(self, *replies: Any) -> None:
        self.connection_pool = self
        self.replies = list(replies)
        self.is_closed = False

    def get_connection(self) -> Node:
        return self

    def release(self, _connection: Node) -> None: ...

    def disconnect(self) -> None:
        self.is_closed = True

    def pack_commands(self, commands: list[Any]) -> list[Any]:
        return commands

    def send_packed_command(self, _commands: list[Any]) -> None: ...

    def read_response(self, *_: Any, **_options: Any) -> Any:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def parse_response(self, _connection: Node, _name: str, **_options: Any) -> Any:
        return self.read_response()


def test_refused_asking_is_the_error_of_its_own_call_alone() -> None:
    node = Node(exceptions.NoPermissionError("asking"), exceptions.MovedError("5 h:1"), "second", "third")
    sent = [Sent(Call("a", ("GET", "a"), as_is), whole=False) for _ in range(3)]
    sent[0].asked = object()  # type: ignore[assignment]
    talk = _Talk(node, "node", sent)
    talk.speak()
    talk.listen()
    talk.close()
    assert isinstance(sent[0].reply, exceptions.NoPermissionError)
    assert [each.reply for each in sent[1:]] == ["second", "third"]
    assert not node.replies
    assert not node.is_closed


class Nodes:
    """The nodes_manager of a client whose looks take as long as one likes."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.looks = 0
        self.now = 1000.0
        self._seconds = seconds

    def initialize(self) -> None:
        self.looks += 1
        self.now += self._seconds


def test_threads_whose_calls_fail_together_look_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes()
    monkeypatch.setattr("delayq.cluster.time.monotonic", lambda: nodes.now)
    looker = cluster.Cluster(types.SimpleNamespace(nodes_manager=nodes))  # type: ignore[arg-type]
    threads = [threading.Thread(target=looker._look) for _ in range(10)]  # noqa: SLF001
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert nodes.looks == 1


def test_look_that_takes_long_does_not_keep_the_next_one_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(seconds=20)
    monkeypatch.setattr("delayq.cluster.time.monotonic", lambda: nodes.now)
    looker = cluster.Cluster(types.SimpleNamespace(nodes_manager=nodes))  # type: ignore[arg-type]
    looker._look()  # noqa: SLF001
    nodes.now += cluster.MOST_LOOK_SECONDS - 0.1
    looker._look()  # noqa: SLF001
    assert nodes.looks == 1
    nodes.now += 0.1
    looker._look()  # noqa: SLF001
    assert nodes.looks == 2
