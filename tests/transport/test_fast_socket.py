"""Calls on connections that break, freeze, are interrupted or belong to other code."""

from __future__ import annotations

import contextlib
import contextvars
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fakeredis
import pytest
import redis

from delayq import Outgoing, Queue
from delayq.errors import DelayqError, LoginRefused, ServerError, ServerNotReady, ServerUnreachable
from delayq.protocol.command import Command, identity
from delayq.transport.clients import unmark
from delayq.transport.fast_socket import FastSocket, FastSocketPool
from delayq.transport.polling import PollBudget
from tests.conftest import StartServer
from tests.harness.half_push import half_pushes
from tests.harness.servers import RedisServer, free_port
from tests.harness.tls import certify
from tests.harness.topologies import SETTLED_SECONDS, follow, is_master, watch
from tests.harness.versions import each_version
from tests.harness.waiting import eventually


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url) as queue:
        yield queue


def hang_up(server: RedisServer, **login: str) -> None:
    """Close all connections to a server, as the server does with idle ones."""
    with server.client(**login) as client:
        client.execute_command("CLIENT KILL TYPE normal SKIPME yes")


def mget(key: str, read: Callable[[Any], Any] = identity, repeats: bool = True) -> Command[Any]:
    return Command(key, ("MGET", key), read, repeats=repeats)


def live(queue: Queue) -> None:
    """A message's life, where each call checks its own answer."""
    sents = [queue.send(n, id=f"m{n}") for n in range(3)]
    assert [sent.id for sent in sents] == ["m0", "m1", "m2"]
    assert queue.send("again", id="m0").created is False
    messages = queue.receive(10)
    assert sorted((message.id, message.payload) for message in messages) == [("m0", 0), ("m1", 1), ("m2", 2)]
    messages[0].nack(3600)
    assert queue.ack(messages) == [False, True, True]
    assert queue.cancel(messages[0].id) == "cancelled"
    stats = queue.stats()
    assert (stats.sent, stats.delivered, stats.acked, stats.nacked, stats.cancelled) == (3, 3, 2, 1, 1)
    assert (stats.inside, stats.missing) == (0, 0)


def with_many_wires(queue: Queue, count: int = 8) -> None:
    """Give a queue `count` idle connections."""
    barrier = threading.Barrier(count)

    def hold(_: Any) -> int:
        return barrier.wait(120)

    with ThreadPoolExecutor(count) as pool:
        assert len(list(pool.map(lambda _: queue._executor.run([mget("k", hold)]), range(count)))) == count


# -- connections that the server closes ------------------------------------------------------------------------------


def test_restart_of_the_server_goes_unnoticed(own_server: RedisServer) -> None:
    with Queue("jobs", url=own_server.url) as queue:
        with_many_wires(queue)
        for number in range(3):
            own_server.restart()
            assert queue.send(number).created
            own_server.restart()
            assert len(messages := queue.receive(1)) == 1
            own_server.restart()
            assert queue.ack(messages) == [True]
        assert (queue.stats().delivered, queue.stats().acked) == (3, 3)


@pytest.mark.parametrize("port", [False, pytest.param(True, marks=pytest.mark.full)])
def test_claim_on_a_closed_connection_neither_fails_nor_runs_twice(start_server: StartServer, port: bool) -> None:
    server = start_server(port=port)
    with Queue("jobs", url=server.url) as queue:
        queue.send_many([Outgoing(n) for n in range(40)])
        for number in range(20):
            hang_up(server)
            assert len(queue.receive(1)) == 1
            assert queue.stats().delivered == number + 1


def test_claims_of_many_threads_do_not_fail_on_closed_connections(redis_server: RedisServer, queue: Queue) -> None:
    queue.send_many([Outgoing(n) for n in range(100)])
    for _ in range(5):
        with_many_wires(queue)
        hang_up(redis_server)
        with ThreadPoolExecutor(8) as pool:
            claims = list(pool.map(lambda _: queue.receive(1), range(8)))
        assert [len(claim) for claim in claims] == [1] * 8
    assert queue.stats().delivered == 40


class Raced(list[Any]):
    """A list whose last item another thread takes whenever one is wanted."""

    def pop(self, *_: Any) -> Any:
        raise IndexError("pop from empty list")


def test_idle_connection_taken_first_by_another_thread_is_not_an_error(queue: Queue) -> None:
    for number in range(2):  # the second one brings the script of all later sends
        queue.send(number)
    (wires,) = [value for value in vars(queue._executor).values() if isinstance(value, FastSocketPool)]
    (name,) = [name for name, value in vars(wires).items() if isinstance(value, list)]
    idle = getattr(wires, name)
    setattr(wires, name, Raced(idle))
    assert queue.send(2).created
    assert len(getattr(wires, name)) == 2
    setattr(wires, name, [*getattr(wires, name)])  # otherwise nobody would close them


# -- frozen servers --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def frozen(server: RedisServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("repeats", [pytest.param(True, marks=pytest.mark.full), False])
def test_late_reply_of_a_frozen_server_reaches_no_other_call(start_server: StartServer, repeats: bool) -> None:
    server = start_server()
    with server.client() as client, Queue("jobs", url=f"{server.url}?socket_timeout=1") as queue:
        client.mset({f"k{n}": f"v{n}" for n in range(10)})
        assert queue._executor.run([mget("k0")]) == [[b"v0"]]
        with frozen(server), pytest.raises(ServerUnreachable):
            queue._executor.run([mget("k1", repeats=repeats), mget("k2", repeats=repeats)])
        for n in range(3, 10):
            assert queue._executor.run([mget(f"k{n}")]) == [[f"v{n}".encode()]]


@pytest.mark.full
def test_send_delayed_by_a_frozen_server_is_stored_once(start_server: StartServer) -> None:
    server = start_server()
    with Queue("jobs", url=f"{server.url}?socket_timeout=1") as queue:
        queue.send("first")
        os.kill(server.pid, signal.SIGSTOP)
        timer = threading.Timer(1.5, os.kill, [server.pid, signal.SIGCONT])
        timer.start()
        sent = queue.send("second")
        timer.join()
        assert sent.created
        assert queue.stats().sent == 2


# -- interrupts ------------------------------------------------------------------------------------------------------


def interrupt(_: Any) -> Any:
    raise KeyboardInterrupt


def fail(_: Any) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("read", "error"), [(interrupt, KeyboardInterrupt), (fail, ZeroDivisionError)])
def test_interrupted_exchange_leaves_no_reply_to_the_next(
    redis_server: RedisServer, shared: bool, read: Callable[[Any], Any], error: type[BaseException]
) -> None:
    pool = redis.BlockingConnectionPool.from_url(redis_server.url, max_connections=1, timeout=20)
    with redis.Redis.from_pool(pool) as client:
        client.mset({f"k{n}": f"v{n}" for n in range(9)})
        queue = Queue("jobs", redis=client) if shared else Queue("jobs", url=redis_server.url)
        for _ in range(3):
            with pytest.raises(error):
                queue._executor.run([mget("k1"), mget("k2", read), mget("k3"), mget("k4")])
            assert queue._executor.run([mget("k5"), mget("k6")]) == [[b"v5"], [b"v6"]]
            assert client.get("k7") == b"v7"
        queue.close()


@pytest.mark.parametrize("poll_seconds", [0.0, 30.0], ids=["sleeping", "polling"])
@pytest.mark.parametrize("shared", [False, True])
def test_reply_whose_wait_a_signal_ended_reaches_no_other_call(
    start_server: StartServer, shared: bool, poll_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.transport.polling.SECONDS", poll_seconds)
    server = start_server()
    handled = threading.Event()

    def end(*_: object) -> None:
        handled.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, end)
    main = threading.get_ident()
    try:
        with server.client() as client:
            client.mset({"k1": "v1", "k2": "v2"})
            queue = Queue("jobs", redis=client) if shared else Queue("jobs", url=server.url)
            assert queue._executor.run([mget("k1")]) == [[b"v1"]]
            with frozen(server):
                timer = threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGUSR1])

                def ask() -> None:
                    timer.start()
                    queue._executor.run([mget("k1")])

                with pytest.raises(KeyboardInterrupt):
                    ask()
            assert handled.is_set()
            assert queue._executor.run([mget("k2")]) == [[b"v2"]]
            queue.close()
    finally:
        signal.signal(signal.SIGUSR1, before)


SENDING_HANDLER = """
import os, signal, sys, redis
from delayq import Queue

class Interrupted(redis.Redis):
    def execute_command(self, *args, **options):
        if args[0] == "INFO":
            os.kill(os.getpid(), signal.SIGUSR1)
        return super().execute_command(*args, **options)

queue = Queue("jobs", redis=Interrupted.from_url(sys.argv[1]))
signal.signal(signal.SIGUSR1, lambda *_: (signal.signal(signal.SIGUSR1, signal.SIG_IGN), queue.send("handler")))
queue.send("main")
print(queue.stats().sent)
"""


def test_signal_handler_can_send_while_its_thread_makes_the_first_connection(redis_server: RedisServer) -> None:
    command = [sys.executable, "-c", SENDING_HANDLER, redis_server.url]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        pytest.fail("the handler waits for what its own thread holds")
    assert ended.stdout.strip() == "2", ended.stderr


def test_closing_a_queue_during_a_call_is_not_an_error(redis_server: RedisServer) -> None:
    """As a signal handler or another thread can do."""
    with Queue("jobs", url=redis_server.url) as queue:

        class Closing:
            @property
            def sha(self) -> str:
                queue.close()
                return "0" * 40

            text = "return 1"

        queue.send(1)
        client: Any = queue._executor.client
        pool = client.connection_pool
        script: Any = Closing()
        assert queue._executor.run([Command("k", (0,), identity, script)]) == [1]
        assert [each for each in (*pool._available_connections, *pool._in_use_connections) if each._sock] == []
        assert queue.send(2).created


def test_socket_closed_during_a_wait_is_not_mistaken_for_the_next_file(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread closes the client, and the next file that is opened gets the number of its socket."""
    pool = redis.ConnectionPool.from_url(redis_server.url, socket_timeout=30)
    wire = FastSocket(pool, PollBudget())
    monkeypatch.setattr(
        "delayq.transport.polling.SECONDS", 30.0
    )  # so that it polls for the reply, however slow the machine is
    assert wire.exchange([b"PING\r\n"], [identity]) == [b"PONG"]
    connected: socket.socket = vars(wire)["_socket"]
    number = connected.fileno()
    files: list[socket.socket] = []

    def close() -> None:
        if not files:
            connected.close()
            ours, theirs = socket.socketpair()
            files.extend((ours, theirs))
            assert number in {ours.fileno(), theirs.fileno()}
            for each in files:
                each.setblocking(False)
                each.sendall(b"+another's\r\n")

    monkeypatch.setattr("delayq.transport.polling.give_way", close)
    try:
        with pytest.raises(redis.ConnectionError):
            wire.exchange([b"BLPOP nothing 0\r\n"], [identity])
        assert [each.recv(100) for each in files] == [b"+another's\r\n"] * 2
    finally:
        wire.close(broken=True)
        for each in files:
            each.close()


@pytest.mark.parametrize("keep", [True, False], ids=["own client", "shared client"])
def test_call_polls_unless_too_many_replies_came_late(
    redis_server: RedisServer, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """Also if each call has its own wire, as with a shared client. Across a network, polling would be in vain."""
    monkeypatch.setattr("delayq.transport.polling._budgets", {})  # other tests use the one for this server
    pool = redis.ConnectionPool.from_url(redis_server.url, socket_timeout=30)
    wires = FastSocketPool(pool, keep=keep, lost=lambda: None)
    looks: list[None] = []

    def exchange(*command: Any) -> int:
        looks.clear()
        wire = contextvars.copy_context().run(wires.take, repeats=True, began=time.perf_counter())
        wires.use(wire, [Command("", command, identity)])
        return len(looks)

    def look() -> None:
        looks.append(None)
        redis_client.rpush("something", "x")

    monkeypatch.setattr("delayq.transport.polling.give_way", look)
    monkeypatch.setattr("delayq.transport.polling._SHARE", 0.0)  # so that only replies earn
    monkeypatch.setattr("delayq.transport.polling.SECONDS", 30.0)
    assert exchange("BLPOP", "something", 20) > 0  # it lasts until it polls
    monkeypatch.setattr("delayq.transport.polling.SECONDS", 0.001)
    for _ in range(9):
        exchange("BLPOP", "nothing", 0.01)
    assert exchange("BLPOP", "nothing", 0.01) == 0
    wires.end()
    pool.disconnect()


def test_call_with_much_to_send_does_not_poll(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scripts take longer, so that it would use up what short calls have earned."""
    wire = FastSocket(redis.ConnectionPool.from_url(redis_server.url), PollBudget())
    looks: list[None] = []
    monkeypatch.setattr("delayq.transport.polling.give_way", lambda: looks.append(None))
    monkeypatch.setattr("delayq.transport.polling.SECONDS", 30.0)
    wire.exchange([b"PING\r\n"] * 400 + [b"BLPOP nothing 0.01\r\n"], [identity] * 401)
    wire.close(broken=True)
    assert looks == []


def test_replies_that_arrive_together_through_tls_are_read_separately(
    tls_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "delayq.transport.polling.SECONDS", 30.0
    )  # so that each exchange counts as quick, however slow it is
    with Queue("safe", url=tls_url) as queue:
        live(queue)


# -- errors ----------------------------------------------------------------------------------------------------------


def test_error_of_one_call_does_not_affect_others(redis_server: RedisServer, queue: Queue) -> None:
    with redis_server.client() as client:
        client.mset({"k1": "v1", "k2": "v2", "text": "text"})
    refused = Command("text", ("ZRANGE", "text", 0, -1), fail)
    for _ in range(3):
        first, error, last = queue._executor.run([mget("k1"), refused, mget("k2")])
        assert (first, last) == ([b"v1"], [b"v2"])
        assert isinstance(error, ServerError)
        assert "WRONGTYPE" in str(error)


def test_flushed_scripts_are_sent_again_and_nothing_runs_twice(redis_client: redis.Redis, queue: Queue) -> None:
    for number in range(5):
        redis_client.script_flush()
        assert queue.send(number).created
        redis_client.script_flush()
        messages = queue.receive(10)
        assert [message.payload for message in messages] == [number]
        redis_client.script_flush()
        assert queue.ack(messages) == [True]
        redis_client.script_flush()
        assert queue.stats().delivered == number + 1


@each_version
def test_replica_gives_an_error_and_the_queue_works_once_it_is_a_primary_again(
    start_server: StartServer, version: str
) -> None:
    server = start_server(version=version)
    with server.client() as client, Queue("jobs", url=server.url) as queue, Queue("jobs", redis=client) as shared:
        for each in (queue, shared):
            each.send("before")
            client.replicaof("127.0.0.1", "1")
            for call in (lambda each=each: each.send("x"), each.receive, each.pause):
                with pytest.raises(ServerNotReady):
                    call()
            client.replicaof("NO", "ONE")
            assert each.send("after").created
            assert len(each.receive(2)) == 2
        assert queue.stats().sent == 4


@pytest.mark.full
def test_server_that_loads_its_data_gives_an_error(start_server: StartServer) -> None:
    """A replica that resynchronizes loads while its connections stay open."""
    slow = {"loading-process-events-interval-bytes": "1024", "key-load-delay": "4000"}
    master = start_server(port=True, config={"repl-diskless-sync-delay": "0"})
    server = start_server(config=slow)
    with master.client() as client:
        client.mset({f"k{n}": "x" * 100 for n in range(5000)})
    calls: list[Exception] = []
    with server.client(health_check_interval=0) as client, server.client() as admin:
        queue = Queue("jobs", redis=client)
        queue.send(1)
        admin.replicaof("127.0.0.1", str(master.port))
        deadline = time.monotonic() + 120
        while not any("LOADING" in str(error).upper() for error in calls) and time.monotonic() < deadline:
            try:
                queue.stats()
            except Exception as error:  # noqa: BLE001  # it is what the test looks at
                calls.append(error)
            time.sleep(0.01)
        assert "loading" in str(calls[-1])
        assert [error for error in calls if not isinstance(error, ServerNotReady)] == []
        admin.config_set("key-load-delay", 0)
        assert eventually(lambda: admin.info("persistence")["loading"] == 0)
        admin.replicaof("NO", "ONE")
        assert queue.send(2).created


def test_refused_login_is_not_tried_twice(start_server: StartServer) -> None:
    server = start_server(config={"requirepass": "old"})
    with Queue("jobs", url=f"unix://:old@{server.socket}") as queue, server.client(password="old") as admin:
        live(queue)
        admin.config_set("requirepass", "new")
        admin.execute_command("CLIENT KILL TYPE normal SKIPME yes")
        calls: list[Callable[[], object]] = [
            lambda: queue.send("x"),
            lambda: queue.send("y"),
            queue.receive,
            queue.stats,
        ]
        for call in calls:
            admin.acl_log_reset()
            with pytest.raises(LoginRefused) as refusal:
                call()
            assert "old" not in str(refusal.value)
            assert [int(entry["count"]) for entry in admin.acl_log()] == [1]
        admin.config_set("requirepass", "old")
        assert queue.send("z").created


def test_failed_promotion_gives_an_error(redis_client: redis.Redis, queue: Queue) -> None:
    queue.send(1)
    redis_client.rename("delayq:{jobs}:pending", "kept")
    redis_client.set("delayq:{jobs}:pending", "no sorted set")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        queue.receive()
    redis_client.rename("kept", "delayq:{jobs}:pending")
    assert len(queue.receive()) == 1


# -- clients of other code -------------------------------------------------------------------------------------------


KINDS: list[dict[str, Any]] = [
    {},
    {"protocol": 2},
    {"protocol": 3},
    {"decode_responses": True},
    {"encoding": "latin-1"},
]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_shared_client_gets_all_its_connections_back(any_server: RedisServer, options: dict[str, Any]) -> None:
    pool = redis.BlockingConnectionPool.from_url(any_server.url, max_connections=1, timeout=60, **options)
    with redis.Redis.from_pool(pool) as client:
        queue = Queue("jobs", redis=client)
        live(queue)
        queue.close()
        assert client.ping()
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(queue.send, range(80)))
        assert queue.stats().pending == 80
        client.set("delayq:{other}:pending", "no sorted set")
        for _ in range(3):
            with pytest.raises(ServerError):
                Queue("other", redis=client).send("x")
            hang_up(any_server)
            assert len(queue.receive(1)) == 1
        connection = pool.get_connection()
        pool.release(connection)
        assert client.ping()


def test_id_is_encoded_the_same_on_every_path(redis_server: RedisServer) -> None:
    with redis_server.client(encoding="latin-1") as client:
        queue = Queue("jobs", redis=client)
        assert queue.send("x", id="é").created
        hang_up(redis_server)  # redis-py repeats the next call in its own way
        assert not queue.send("x", id="é").created
        assert queue.stats().sent == 1


def test_push_messages_are_not_mistaken_for_replies(redis_server: RedisServer) -> None:
    pool = redis.BlockingConnectionPool.from_url(redis_server.url, max_connections=1, timeout=2, protocol=3)
    with redis.Redis.from_pool(pool) as client, redis_server.client() as other:
        queue = Queue("jobs", redis=client)
        queue.send("first")
        for number in range(50):
            client.execute_command("CLIENT", "TRACKING", "ON", "BCAST")
            other.mset({f"k{n}": n for n in range(number + 1)})
            assert queue.send(number, id=f"m{number}").id == f"m{number}"
            assert queue._executor.run([mget("k0")]) == [[b"0"]]
            assert client.ping()


@pytest.mark.parametrize("keep", [False, True])
def test_half_a_push_message_is_not_mistaken_for_a_reply(tmp_path: Path, keep: bool) -> None:
    pool = redis.ConnectionPool(
        connection_class=redis.UnixDomainSocketConnection, path=str(tmp_path / "socket"), protocol=3, max_connections=1
    )
    sockets = FastSocketPool(pool, keep, lambda: None)
    with half_pushes(tmp_path / "socket"):
        for key in "abc":
            call = Command(key, ("MGET", key), identity)
            assert sockets.use(sockets.take(True, time.perf_counter()), [call]) == [[key.encode()]]
        connection = pool.get_connection() if not keep else None
        if connection is not None:
            connection.send_command("MGET", "d")
            assert connection.read_response() == [b"d"]
            pool.release(connection)
        sockets.end()
        pool.disconnect()
    unmark()


def test_in_process_server_serves_many_threads() -> None:
    with fakeredis.FakeRedis(server=fakeredis.FakeServer()) as client:
        queue = Queue("jobs", redis=client)
        live(queue)
        with ThreadPoolExecutor(8) as pool:
            sents = list(pool.map(queue.send, range(80)))
        assert len({sent.id for sent in sents}) == queue.stats().pending == 80


# -- firewalls -------------------------------------------------------------------------------------------------------


class Firewall:
    """Forwards connections to a server until it forgets them. Then it silently drops what they send."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._peers: dict[socket.socket, socket.socket | None] = {}
        self._lock = threading.Lock()
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    def forget(self) -> None:
        with self._lock:
            self._peers = dict.fromkeys(self._peers)

    def _forward(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._stopped, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    end: Any = key.fileobj
                    if end is self._stopped:
                        return
                    with self._lock:
                        self._serve(end, selector)

    def _serve(self, end: socket.socket, selector: selectors.BaseSelector) -> None:
        if end is self._listener:
            client, server = end.accept()[0], socket.socket(socket.AF_UNIX)
            server.connect(str(self._server.socket))
            self._peers |= {client: server, server: client}
            for each in (client, server):
                selector.register(each, selectors.EVENT_READ)
            return
        data = b""
        with contextlib.suppress(ConnectionResetError):
            data = end.recv(65536)
        if not data:
            selector.unregister(end)
        peer = self._peers[end]
        if peer is not None:
            with contextlib.suppress(OSError):  # it may be gone already
                if data:
                    peer.sendall(data)
                else:
                    peer.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._stop.close()
        self._thread.join()
        for each in (self._listener, self._stopped, *self._peers):
            each.close()


@pytest.fixture
def firewall(redis_server: RedisServer) -> Iterator[Firewall]:
    firewall = Firewall(redis_server)
    yield firewall
    firewall.close()


@pytest.mark.full
def test_claim_notices_in_time_that_a_firewall_forgot_its_idle_connection(
    firewall: Firewall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.transport.fast_socket._CHECK_AFTER_SECONDS", 0.0)
    with Queue("jobs", url=f"redis://127.0.0.1:{firewall.port}/0?socket_timeout=4") as queue:
        queue.send_many([Outgoing(n) for n in range(5)])
        firewall.forget()
        assert len(queue.receive(1)) == 1
        assert queue.stats().delivered == 1


@pytest.mark.full
def test_claim_on_a_shared_client_that_checks_its_connections_notices_it_too(firewall: Firewall) -> None:
    options: dict[str, Any] = {"health_check_interval": 0.01, "socket_timeout": 4}
    with redis.Redis(host="127.0.0.1", port=firewall.port, **options) as client:
        queue = Queue("jobs", redis=client)
        queue.send_many([Outgoing(n) for n in range(5)])
        firewall.forget()
        time.sleep(0.02)
        assert len(queue.receive(1)) == 1
        assert queue.stats().delivered == 1


# -- forks -----------------------------------------------------------------------------------------------------------


def in_child(run: Callable[[], object]) -> int:
    """Fork, run a function in the child, and return its process id. It exits with 0 if the function returned."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(240)
            run()
            code = 0
        os._exit(code)
    return child


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("shared", [False, True])
def test_forked_child_uses_its_own_sockets(redis_server: RedisServer, shared: bool) -> None:
    with redis_server.client() as client:
        queue = Queue("jobs", redis=client) if shared else Queue("jobs", url=redis_server.url)
        with_many_wires(queue, 4)

        def send(who: str) -> None:
            for number in range(200):
                assert queue.send(number, id=f"{who}-{number}").id == f"{who}-{number}"

        children = [in_child(lambda n=n: send(f"child{n}")) for n in range(3)]  # type: ignore[misc]
        send("parent")
        codes = [exit_code(child) for child in children]
        assert codes == [0, 0, 0]
        assert queue.stats().sent == 4 * 200
        queue.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_child_forked_while_another_thread_connected_can_connect(redis_server: RedisServer) -> None:
    parent, connecting, gate = os.getpid(), threading.Event(), threading.Event()

    class Slow(redis.Redis):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            if args[0] == "INFO" and os.getpid() == parent:
                connecting.set()
                assert gate.wait(120)
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    with Slow.from_url(redis_server.url) as client, ThreadPoolExecutor(1) as threads:
        queue = Queue("jobs", redis=client)
        first = threads.submit(queue.send, "x")
        assert connecting.wait(120)
        child = in_child(lambda: queue.send("y"))
        code = exit_code(child)
        gate.set()
        assert first.result(120).created
        assert code == 0
        assert queue.stats().sent == 2


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_child_that_closes_its_queue_leaves_the_parents_connections_open(redis_server: RedisServer) -> None:
    with Queue("jobs", url=redis_server.url) as queue, redis_server.client() as client:
        with_many_wires(queue, 4)
        before = {each["id"] for each in client.client_list()}
        assert exit_code(in_child(queue.close)) == 0
        queue.send_many([Outgoing(1)])
        assert len(queue.receive()) == 1
        assert {each["id"] for each in client.client_list()} == before


# -- sentinels and TLS -----------------------------------------------------------------------------------------------


@pytest.mark.full
def test_no_call_uses_the_old_master_once_one_has_found_the_new_one(start_server: StartServer) -> None:
    """The old master may still accept writes for a while, and loses them when it becomes a replica."""
    old, new = start_server(port=True), start_server(port=True)
    sentinel = start_server(port=True, sentinel=True)
    watch(sentinel, old)
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/mymaster/0"
    with Queue("jobs", url=url) as queue, old.client() as client:
        with_many_wires(queue)
        queue.send("before")
        mine = [each["id"] for each in client.client_list() if each["name"] == "delayq"]
        watch(sentinel, new)
        for each in mine[::2]:  # half of the connections break
            client.client_kill_filter(_id=each)
        with_many_wires(queue)
        stored = client.dbsize()
        for number in range(20):
            queue.send(number)
        with_many_wires(queue)
        assert client.dbsize() == stored
        assert queue.stats().sent == 20


def started_failover(sentinel: redis.Redis) -> bool:
    """Whether a sentinel has found a replica that it can promote; first it has to see the replica's state."""
    try:
        return bool(sentinel.execute_command("SENTINEL", "FAILOVER", "mymaster"))
    except redis.ResponseError:
        return False


@pytest.mark.full
def test_failover_is_followed(start_server: StartServer) -> None:
    master, replica = start_server(port=True), start_server(port=True)
    follow(replica, master)
    sentinel = start_server(port=True, sentinel=True)
    watch(sentinel, master)
    with sentinel.client() as client:
        assert eventually(lambda: len(client.sentinel_slaves("mymaster")) == 1)
        with Queue("jobs", url=f"redis+sentinel://127.0.0.1:{sentinel.port}/mymaster/0") as queue:
            with_many_wires(queue)
            queue.send("before")
            assert eventually(lambda: len(client.sentinel_slaves("mymaster")) == 1)
            assert eventually(lambda: started_failover(client), SETTLED_SECONDS)
            number = 0
            with replica.client() as new:
                while not is_master(replica) or number < 20:
                    number += 1
                    with contextlib.suppress(ServerError):
                        queue.send(number)
                    time.sleep(0.01)

                def arrives() -> bool:
                    with contextlib.suppress(ServerError, redis.ConnectionError):
                        return bool(new.exists(f"delayq:{{jobs}}:msg:{queue.send('after').id}"))
                    return False

                assert eventually(arrives, SETTLED_SECONDS)
                assert len(queue.receive(1)) == 1


@pytest.fixture
def tls_url(start_server: StartServer, tmp_path: Path) -> str:
    authority = certify(tmp_path)
    port = free_port()
    files = {"cert": "server.pem", "key": "server.key", "ca-cert": "ca.pem"}
    settings = {f"tls-{name}-file": str(tmp_path / file) for name, file in files.items()}
    start_server("7.0", config=settings | {"tls-port": str(port), "tls-auth-clients": "no"})
    return f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority}"


@pytest.mark.full
def test_many_large_messages_go_through_tls(tls_url: str) -> None:
    with Queue("safe", url=tls_url) as queue:
        live(queue)
        with_many_wires(queue)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(queue.send, [b"x" * 100_000 for _ in range(40)]))
        assert [len(message.body) for message in queue.receive(100)] == [100_000] * 40
        client: Any = queue._executor.client
        client.execute_command("CLIENT KILL TYPE normal SKIPME yes")
        queue.send("after")
        client.execute_command("CLIENT KILL TYPE normal SKIPME yes")
        assert [message.payload for message in queue.receive(100)] == ["after"]


def test_call_that_finds_the_pool_empty_fails_instead_of_waiting(redis_server: RedisServer) -> None:
    with Queue("jobs", url=f"{redis_server.url}?max_connections=2") as queue:
        queue.send(1)
        barrier = threading.Barrier(3)

        def run(_: int) -> list[Any] | DelayqError:
            try:
                return queue._executor.run([mget("k", lambda _: barrier.wait(120))])
            except DelayqError as error:
                barrier.wait(120)
                return error

        with ThreadPoolExecutor(3) as pool:
            results = list(pool.map(run, range(3)))
        (error,) = [result for result in results if isinstance(result, DelayqError)]
        assert "max_connections" in str(error)
        assert queue.send(2).created


def test_commands_of_a_few_kilobytes_are_sent_together(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """While handlers run, each send waits for the interpreter's lock, and the server for the rest of the trip."""
    packets: list[int] = []
    write = FastSocket._write

    def counted(self: FastSocket, packet: bytes) -> None:
        packets.append(len(packet))
        write(self, packet)

    live(queue)
    monkeypatch.setattr(FastSocket, "_write", counted)
    keys = [f"{number}" * 1000 for number in range(5)]
    assert queue._executor.run([mget(key) for key in keys]) == [[None]] * 5
    assert len(packets) == 1
    assert queue._executor.run([mget(key * 20) for key in keys]) == [[None]] * 5
    assert len(packets) == 6
