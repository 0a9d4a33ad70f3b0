"""Cut the connection at each command of each operation: nothing is lost or left over, and no call reports a lie.

A first, undisturbed call shows which commands an operation sends, so new commands are covered automatically.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cached_property, partial

import pytest

from delayq import Message, Queue
from delayq.dead_letters import DeadLetters
from delayq.errors import ServerNotReady
from delayq.model.other_libraries import ForeignWord
from tests.harness.cutting.operations import OPERATIONS, Operation, counts
from tests.harness.cutting.stage import At, Played, Road, Stage, by_client, by_cluster, by_url, by_url_with_shards, say
from tests.harness.proxy import WAYS, Cut, Proxy
from tests.harness.servers import RedisServer, server_binaries
from tests.harness.topologies import tell
from tests.harness.waiting import eventually

TRIES = 10  # of a case whose command was not sent: the wait of an operation may be over before
NOT_REACHED = "was not reached"
# settle: called by the methods of a message; execute: called by all other methods
WITHOUT_TRIP = {
    f"Queue.{name}" for name in ("batch_handler", "close", "cron", "execute", "handler", "settle", "task", "wish")
}
# The ways from a queue to the server, and the cuts to try on each. If a connection is cut for good behind the first of
# several commands of a round trip, the client knows as much as if all had run.
ROADS: dict[str, tuple[Road, list[Cut]]] = {
    "url": (by_url, [*map(Cut, WAYS), Cut("before", for_good=True), Cut("after", for_good=True)]),
    "client": (by_client, [Cut("after"), Cut("within"), Cut("after", for_good=True)]),
    "shards": (by_url_with_shards, [Cut("after"), Cut("after", for_good=True)]),
    "cluster": (by_cluster, [Cut("before"), Cut("after"), Cut("after", for_good=True)]),
}


# What `make test` cuts: one call of each kind, on the plainest road.
QUICK = {"send with an id", "send_many", "receive", "ack", "ack, then by an id", "nack", "reschedule", "dead.requeue"}


def is_worth(road: str, name: str) -> bool:
    """Whether an operation behaves differently on this road: some of those that take longest do not."""
    if (road, name) in {("shards", "configure"), ("client", "receive, waiting")}:  # the first is refused
        return False
    return road == "url" or name not in {"receive, in vain", "doctor", "doctor, repairing"}


@pytest.fixture(scope="module")
def server(default_version: str) -> Iterator[RedisServer]:
    server = RedisServer(server_binaries()[default_version], config={"hz": "500"})  # WAIT ends in time
    yield server
    server.close()


@pytest.fixture(scope="module")
def node(default_version: str) -> Iterator[RedisServer]:
    """A single server that is a whole cluster."""
    config = {"cluster-enabled": "yes", "hz": "500"}
    node = RedisServer(server_binaries()[default_version], port=True, config=config)
    tell(node, "ADDSLOTSRANGE", 0, 16383)
    assert eventually(lambda: tell(node, "INFO")["cluster_state"] == "ok")
    yield node
    node.close()


@pytest.fixture
def stages(request: pytest.FixtureRequest) -> Iterator[Callable[[Road], Stage]]:
    with contextlib.ExitStack() as made:

        def stage(road: Road) -> Stage:
            is_cluster = road is by_cluster
            server: RedisServer = request.getfixturevalue("node" if is_cluster else "server")
            proxy = made.enter_context(Proxy(server.socket, port=is_cluster))
            if is_cluster:  # the address that the cluster gives to its clients
                with server.client() as client:
                    client.config_set("cluster-announce-port", proxy.port)
                    assert eventually(lambda: proxy.port in {slots[2][1] for slots in tell(server, "SLOTS")})
            return made.enter_context(contextlib.closing(Stage(server, proxy, road)))

        yield stage


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few messages take many calls, and repeat calls without a wait."""
    monkeypatch.setattr("delayq.operations.send.MAX_SENT", 2)
    monkeypatch.setattr("delayq.operations.send.CALLS_A_TRIP", 2)
    monkeypatch.setattr("delayq.operations.send.REPLICA_TIMEOUT_MS", 1)
    monkeypatch.setattr("delayq.operations.open_messages.LEAST_PART", 1)
    monkeypatch.setattr("delayq.operations.upkeep.FALLBACK_MS", 3_600_000)  # only the first receive collects garbage
    monkeypatch.setattr("redis.retry.sleep", lambda _: None)
    monkeypatch.setattr("delayq.transport.cluster_calls.PAUSES", (0.001, 0.01, 0.02, 0.05))
    monkeypatch.setattr("delayq.transport.cluster_calls.LOOK_SECONDS", 0.0)


def every_cut(stage: Stage, operation: Operation, cuts: list[Cut]) -> dict[str, str]:
    """Cut an operation at each of its commands; return what went wrong, by command and cut."""
    for _ in range(2):  # the second time, the server has the scripts
        with stage.played(operation, lambda _: None) as whole:
            assert whole.error is None
            names = list(stage.proxy.passed)
            examine(stage, operation, whole, whole)
    assert names, "it has sent nothing that could be cut"
    wrong: dict[str, str] = {}
    for i, name in enumerate(names):
        if is_one_of_many(names, i):
            continue
        for cut in cuts:
            number = names[: i + 1].count(name)
            if trouble := one_cut(stage, operation, whole, partial(At, name, number, cut)):
                wrong[f"{cut}, {name} {number}"] = trouble
    missed = [place for place, trouble in wrong.items() if trouble == NOT_REACHED]
    if operation.timed and len(missed) <= len(names) * len(cuts) // 3:
        return {place: trouble for place, trouble in wrong.items() if place not in missed}
    return wrong


def is_one_of_many(names: list[str], i: int) -> bool:
    """Whether a plain command is between two of its kind: of such a row, only the first and the last are cut.

    For example, the doctor asks for the type of each key. Every script is cut, because it may change something.
    """
    return names[i].isupper() and names[i - 1 : i + 2] == [names[i]] * 3


def one_cut(stage: Stage, operation: Operation, whole: Played, at: Callable[[], At]) -> str:
    """Cut an operation at one command; return what went wrong, or nothing."""
    for _ in range(TRIES):
        with stage.played(operation, at()) as played:
            if stage.proxy.cuts:
                try:
                    examine(stage, operation, whole, played)
                except Exception as error:  # noqa: BLE001  # try the other places too
                    return f"{error!r:.400}"
                return ""
    return NOT_REACHED


def examine(stage: Stage, operation: Operation, whole: Played, played: Played) -> None:
    before, after, wanted = played.before.numbered(), played.after.numbered(), whole.after.numbered()
    if played.error is None:
        assert played.result == whole.result or operation.instead(played.result, whole.result), played.result
        assert after == wanted
    else:
        for id in before.keys() | after.keys() | wanted.keys():
            ends = {before.get(id), wanted.get(id), *operation.between}
            assert after.get(id) in ends, f"{id} is {after.get(id)}"
    assert eventually(lambda: is_served(lambda: counts(played.queue)))
    assert counts(played.queue) == counts(stage.direct)
    if played.after == played.before and wanted == before:
        return  # it should change nothing, and it did not
    if operation.whole:
        stage.assert_in_order()
    if played.error is not None and operation.again:
        assert eventually(lambda: is_served(lambda: say(lambda: operation.run(played.queue, played.stock))))
        assert stage.seen().numbered() == wanted
    if not operation.whole:
        stage.assert_in_order()
    stage.assert_all_comes(stage.seen())


def is_served(call: Callable[[], object]) -> bool:
    """Make a call; return False if the client avoids a cluster node that was unreachable a moment ago."""
    with contextlib.suppress(ServerNotReady):
        call()
        return True
    return False


@pytest.mark.by_lot(4)
@pytest.mark.parametrize(
    ("road", "name"),
    [
        pytest.param(road, name, marks=() if road == "url" and name in QUICK else pytest.mark.full)
        for road in ROADS
        for name in OPERATIONS
        if is_worth(road, name)
    ],
)
@pytest.mark.usefixtures("small")
def test_operation_with_a_cut_connection_loses_nothing_and_reports_nothing_false(
    stages: Callable[[Road], Stage], road: str, name: str
) -> None:
    make, cuts = ROADS[road]
    assert every_cut(stages(make), OPERATIONS[name], cuts) == {}


def test_every_public_method_is_tested_with_cuts() -> None:
    methods = {
        f"{kind.__name__}.{name}"
        for kind in (Queue, DeadLetters, Message)
        for name, value in vars(kind).items()
        if name[0] != "_" and not isinstance(value, property | cached_property | ForeignWord)
    }
    covered = {method for operation in OPERATIONS.values() for method in operation.covers}
    assert methods - WITHOUT_TRIP == covered - {"doctor.examine"}
