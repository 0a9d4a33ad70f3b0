"""What a node answers to calls on one connection, and how often the cluster's slots are looked up."""

from __future__ import annotations

import asyncio
import threading
import types
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from redis import exceptions

from delayq.errors import ServerNotReady, ServerUnreachable
from delayq.protocol.command import Command, identity
from delayq.protocol.script import script
from delayq.transport import cluster
from delayq.transport.cluster import _NodeCalls
from delayq.transport.cluster_async import Cluster as AsyncCluster
from delayq.transport.cluster_async import _NodeCalls as AsyncNodeCalls
from delayq.transport.cluster_calls import MOST_LOOK_SECONDS, SentCommands
from delayq.transport.executor import Executor
from delayq.transport.executor_async import Executor as AsyncExecutor


class Node:
    """A server, its pool and its connection, with the replies that it gives."""

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


def test_refused_asking_fails_only_its_own_call() -> None:
    node = Node(exceptions.NoPermissionError("asking"), exceptions.MovedError("5 h:1"), "second", "third")
    sent = [SentCommands(Command("a", ("GET", "a"), identity), whole=False) for _ in range(3)]
    sent[0].asked = object()
    talk = _NodeCalls(node, "node", sent)
    talk.speak()
    talk.listen()
    talk.close()
    assert isinstance(sent[0].reply, exceptions.NoPermissionError)
    assert [each.reply for each in sent[1:]] == ["second", "third"]
    assert not node.replies
    assert not node.is_closed


class Nodes:
    """The nodes_manager of a client whose look-ups take as long as the test likes."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.looks = 0
        self.nodes_cache: dict[str, Any] = {}
        self.now = 1000.0
        self._seconds = seconds

    def initialize(self) -> None:
        self.looks += 1
        self.now += self._seconds


def test_threads_whose_calls_fail_together_look_up_the_slots_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes()
    monkeypatch.setattr("delayq.transport.cluster.time.monotonic", lambda: nodes.now)
    looker = cluster.Cluster(types.SimpleNamespace(nodes_manager=nodes))  # type: ignore[arg-type]
    threads = [threading.Thread(target=looker._look) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert nodes.looks == 1


def test_long_look_up_does_not_delay_the_next_one_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(seconds=20)
    monkeypatch.setattr("delayq.transport.cluster.time.monotonic", lambda: nodes.now)
    looker = cluster.Cluster(types.SimpleNamespace(nodes_manager=nodes))  # type: ignore[arg-type]
    looker._look()
    nodes.now += MOST_LOOK_SECONDS - 0.1
    looker._look()
    assert nodes.looks == 1
    nodes.now += 0.1
    looker._look()
    assert nodes.looks == 2


class Moving(cluster.Cluster):
    """Refuses scripts the first time, as if their slot moved; answers other calls with how often it was asked."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._asked: Counter[SentCommands] = Counter()

    def _exchange(self, todo: Iterable[SentCommands], impatient: bool = False) -> None:  # noqa: ARG002
        for each in todo:
            each.is_unsent = False
            self._asked[each] += 1
            is_refused = self._asked[each] == 1 and each.call.script is not None
            each.reply = exceptions.TryAgainError("TRYAGAIN") if is_refused else self._asked[each]


class AsyncMoving(AsyncCluster):
    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._moving = Moving(client)

    async def _exchange(self, todo: Iterable[SentCommands], impatient: bool = False) -> None:  # noqa: ARG002
        self._moving._exchange(todo)


@pytest.mark.parametrize("is_async", [False, True])
def test_read_after_a_refused_call_is_repeated(is_async: bool) -> None:
    """Otherwise it would return the state from before the call."""
    client: Any = types.SimpleNamespace(nodes_manager=types.SimpleNamespace(get_node_from_slot=lambda _: None))
    calls = [
        Command("{q}p", (1, "{q}p"), identity, script("pending_to_ready")),
        Command("{q}r", (1, "{q}r"), identity, script("ready_to_unack"), repeats=False),
        Command("{q}m", ("MGET", "{q}m"), identity),
        Command("{q}x", ("XDEL", "{q}x", "1-1"), identity, repeats=False),
        Command("{other}m", ("MGET", "{other}m"), identity),
    ]
    run = AsyncMoving(client).run if is_async else Moving(client).run
    replies: Any = run(calls, whole=False, repeat=True, may_run_twice=True)
    assert (asyncio.run(replies) if is_async else replies) == [2, 2, 2, 1, 1]


class Recovering(cluster.Cluster):
    """Fails all calls the first time, before or after they are sent, and answers them later."""

    def __init__(self, client: Any, error: Exception, is_unsent: bool) -> None:
        super().__init__(client)
        self._error = error
        self._is_unsent = is_unsent
        self.trips = 0

    def _exchange(self, todo: Iterable[SentCommands], impatient: bool = False) -> None:  # noqa: ARG002
        self.trips += 1
        for each in todo:
            each.is_unsent = self._is_unsent
            each.reply = self._error if self.trips == 1 else b"done"

    def _look_until(self, end: float) -> None: ...


class AsyncRecovering(AsyncCluster):
    def __init__(self, client: Any, error: Exception, is_unsent: bool) -> None:
        super().__init__(client)
        self._recovering = Recovering(client, error, is_unsent)

    async def _exchange(self, todo: Iterable[SentCommands], impatient: bool = False) -> None:  # noqa: ARG002
        self._recovering._exchange(todo)

    async def _look_until(self, end: float) -> None: ...


def run_with_failure(
    calls: list[Command[Any]], error: Exception, is_async: bool, repeat: bool = True, is_unsent: bool = False
) -> list[Any]:
    client: Any = types.SimpleNamespace(nodes_manager=types.SimpleNamespace(get_node_from_slot=lambda _: None))

    async def run() -> list[Any]:
        executor = AsyncExecutor(lambda: client, True, None)
        executor.enter()
        executor._client, executor._cluster = client, AsyncRecovering(client, error, is_unsent)
        return await executor.run(calls, repeat)

    if is_async:
        return asyncio.run(run())
    executor = Executor(lambda: client, True, None)
    executor._client, executor._cluster = client, Recovering(client, error, is_unsent)
    return executor.run(calls, repeat)


CANCEL = Command("{q}c", (1, "{q}c"), bytes.decode, script("cancel"), repeats=False)
SEND = Command("{q}s", (1, "{q}s"), bytes.decode, script("send"))


@pytest.mark.parametrize("is_async", [False, True])
def test_call_that_must_not_run_twice_outlasts_a_short_trouble_of_its_node(is_async: bool) -> None:
    """It was never sent. A node of a busy machine is in trouble for some milliseconds now and then."""
    error = exceptions.ClusterDownError("in trouble")
    assert run_with_failure([CANCEL], error, is_async, is_unsent=True) == ["done"]
    (refused,) = run_with_failure([CANCEL], error, is_async, repeat=False, is_unsent=True)
    assert isinstance(refused, ServerNotReady)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", [exceptions.ConnectionError("cut"), exceptions.TryAgainError("moving")], ids=repr)
def test_call_is_not_sent_again_beside_one_that_must_not_run_twice(is_async: bool, error: Exception) -> None:
    """A send that is repeated would bring back the message that the other call may have cancelled."""
    replies = run_with_failure([SEND, CANCEL], error, is_async)
    assert all(isinstance(each, ServerUnreachable | ServerNotReady) for each in replies)
    assert run_with_failure([SEND, SEND], error, is_async) == ["done"] * 2


class Loading:
    """A node and its connection, which ends after the first reply: it is loading its data."""

    name = "a:1"

    def __init__(self) -> None:
        self._replies: list[Exception] = [exceptions.BusyLoadingError("loading"), exceptions.ConnectionError("closed")]

    def acquire_connection(self) -> Loading:
        return self

    def release(self, connection: Loading) -> None: ...

    def pack_commands(self, commands: Any) -> Any:
        return commands

    async def connect(self) -> None: ...

    async def disconnect(self, nowait: bool) -> None: ...

    async def send_packed_command(self, packed: Any, check_health: bool) -> None: ...

    async def parse_response(self, *_: Any, **__: Any) -> Any:
        raise self._replies.pop(0)


def test_only_the_refused_call_counts_as_refused() -> None:
    """The node may have run those after it."""
    group = [SentCommands(call, False) for call in (CANCEL, SEND)]
    node: Any = Loading()
    asyncio.run(AsyncNodeCalls(node, group).run())
    assert [each.is_refused for each in group] == [True, False]
    assert [each.is_lost for each in group] == [False, True]
