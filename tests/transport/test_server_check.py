"""What connecting finds out about a real server, and which errors its answers become."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fakeredis
import pytest
import redis
import redis.asyncio
from redis import exceptions
from redis.cluster import RedisCluster
from structlog.testing import capture_logs

from delayq import Queue, Topic, aio, errors
from delayq.transport import clients, open_client
from delayq.transport import server_check as server
from delayq.transport.server_check import check_server, translate
from tests.conftest import StartServer
from tests.harness.servers import RedisServer, free_port
from tests.harness.versions import each_version
from tests.harness.waiting import eventually

Client = redis.Redis | RedisCluster
Connect = Callable[[str], Any]


@pytest.fixture(autouse=True)
def _nothing_warned_of_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_warned", set())


@pytest.fixture
def connect() -> Iterator[Connect]:
    """``connect(url)``: a client, closed after the test."""
    with contextlib.ExitStack() as made:

        def connect(url: str) -> Client:
            client = open_client.connect(url)
            made.callback(clients.close, client)
            return client

        yield connect


@pytest.fixture
def cluster(start_server: StartServer) -> RedisServer:
    """A cluster with one server."""
    port = str(free_port())
    node = start_server(port=True, config={"cluster-enabled": "yes", "cluster-port": port})
    with node.client() as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        assert eventually(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
    return node


@pytest.fixture
def sentinel(start_server: StartServer, tmp_path: Path) -> Iterator[int]:
    """The port of a sentinel with the password "watch", which watches one server as "queue"."""
    master, port = start_server(port=True, config={"requirepass": "secret"}), free_port()
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"port {port}\nrequirepass watch\nsentinel monitor queue 127.0.0.1 {master.port} 1\n"
        "sentinel auth-pass queue secret\n"
    )
    process = subprocess.Popen([master.binary, config, "--sentinel"], stdout=subprocess.DEVNULL)
    with redis.Redis(port=port, password="watch") as client:
        assert eventually(lambda: is_up(client))
    yield port
    process.kill()
    process.wait()


def is_up(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except exceptions.ConnectionError:
        return False


def asked(client: redis.Redis) -> int:
    """How often somebody asked the server for its settings."""
    return int(client.info("commandstats").get("cmdstat_config|get", {"calls": 0})["calls"])


def test_queues_and_topics_that_share_a_client_check_its_server_once(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    before = asked(redis_client)
    shared = redis.Redis.from_url(redis_server.url)
    for name in ("a", "b"):
        Queue(name, redis=shared).send("x")
        Topic(name, redis=shared).publish("x")
    assert asked(redis_client) == before + 1
    with Queue("c", url=redis_server.url) as other:
        other.send("x")
    assert asked(redis_client) == before + 2


def test_async_queues_and_topics_that_share_a_client_check_its_server_once(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    async def send() -> None:
        async with redis.asyncio.Redis.from_url(redis_server.url) as shared:
            for name in ("a", "b"):
                await aio.Queue(name, redis=shared).send("x")
                await aio.Topic(name, redis=shared).publish("x")

    before = asked(redis_client)
    asyncio.run(send())
    assert asked(redis_client) == before + 1


def warnings_of(client: Client) -> list[dict[str, Any]]:
    with capture_logs() as logs:
        check_server(client)
    return [dict(entry) for entry in logs if entry["log_level"] == "warning"]


def test_version_and_settings_are_found_on_every_version(any_server: RedisServer):
    with any_server.client() as client:
        info = check_server(client)
    reported = {"valkey-9.1": "7.2"}.get(any_server.version, any_server.version)  # Valkey 9.1 reports Redis 7.2
    assert (info.version or ())[:2] == tuple(map(int, reported.split(".")))
    assert (info.address, info.maxmemory_policy, info.append_only) == (str(any_server.socket), "noeviction", False)
    assert (info.save_points, info.cluster) == ("", False)


class OldServer(redis.Redis):
    def execute_command(self, *args: Any, **_: Any) -> Any:
        return {"redis_version": "6.0.16"} if args[0] == "INFO" else {}


def test_server_before_6_2_is_refused():
    with pytest.raises(errors.ServerTooOld, match=r"localhost:6379 is Redis 6\.0\.16.*6\.2.*upgrade"):
        check_server(OldServer())


def test_eviction_gives_one_warning(start_server: StartServer):
    evicting = start_server(appendonly=True, config={"maxmemory-policy": "allkeys-lru"})
    with evicting.client() as client, evicting.client() as second:
        (warning,) = warnings_of(client)
        assert (warning["maxmemory_policy"], warning["server"]) == ("allkeys-lru", str(evicting.socket))
        assert "noeviction" in warning["remedy"]
        assert warnings_of(client) == warnings_of(second) == []


def test_missing_persistence_gives_one_warning_per_server(start_server: StartServer):
    for _ in range(2):
        with start_server(appendonly=False).client() as client:
            (warning,) = warnings_of(client)
            assert "appendonly" in warning["remedy"]
            assert warnings_of(client) == []


@pytest.mark.parametrize("options", [{"appendonly": True}, {"config": {"save": "3600 1"}}])
def test_persistence_of_either_kind_is_enough(start_server: StartServer, options: dict[str, Any]):
    with start_server(**options).client() as client:
        assert warnings_of(client) == []


def test_settings_hidden_by_the_acl_give_no_warning(start_server: StartServer):
    hiding = start_server(config={"maxmemory-policy": "allkeys-lru"})
    with hiding.client() as admin:
        admin.execute_command("ACL SETUSER", "silent", "on", ">secret", "~*", "+@all", "-info", "-config")
        admin.execute_command("ACL SETUSER", "reserved", "on", ">secret", "~*", "+@all", "-config")
    with hiding.client(username="silent", password="secret") as client:
        assert warnings_of(client) == []
        info = check_server(client)
        assert (info.version, info.maxmemory_policy, info.append_only, info.save_points) == (None, None, None, None)
    with hiding.client(username="reserved", password="secret") as client:
        (warning,) = warnings_of(client)
        assert "maxmemory_policy" in warning


def test_fake_server_is_accepted_as_it_is():
    with fakeredis.FakeRedis() as client:
        assert warnings_of(client) == []
        assert check_server(client).version is None


def test_client_that_decodes_replies_works(redis_server: RedisServer):
    with redis_server.client(decode_responses=True) as client:
        assert check_server(client).append_only is False


@pytest.mark.parametrize("login", ["", ":wrong@", "nobody:secret@"])
def test_wrong_login_is_refused_at_once(start_server: StartServer, login: str, connect: Connect):
    locked = start_server(port=True, config={"requirepass": "secret"})
    client = connect(f"redis://{login}127.0.0.1:{locked.port}")
    before = times_connected(locked)
    with pytest.raises(errors.LoginRefused, match=rf"127\.0\.0\.1:{locked.port}: .*check the user") as caught:
        check_server(client)
    assert (
        times_connected(locked) - before == 2
    )  # one by the refused call, one by the client that counts: there was no second attempt
    assert "wrong" not in str(caught.value)
    client.close()


def times_connected(server: RedisServer) -> int:
    with server.client(password="secret") as client:
        return int(client.info("stats")["total_connections_received"])


def test_any_password_works_percent_encoded(start_server: StartServer, connect: Connect):
    password = "p@ss/w?rd#1:%25&="
    locked = start_server(port=True, config={"requirepass": password})
    for url in (
        f"redis://:{quote(password, safe='')}@127.0.0.1:{locked.port}",
        f"redis://127.0.0.1:{locked.port}?password={quote(password, safe='')}",
        f"unix://:{quote(password, safe='')}@{locked.socket}",
    ):
        client = connect(url)
        assert client.set("key", "ä") is True
        assert client.get("key") == "ä".encode()
        client.close()


def test_missing_server_is_reported_with_its_address(connect: Connect):
    port = free_port()
    client = connect(f"redis://user:secret@127.0.0.1:{port}")
    with pytest.raises(
        errors.ServerUnreachable, match=rf"127\.0\.0\.1:{port}\..*check that the server is running"
    ) as caught:
        check_server(client)
    assert "secret" not in str(caught.value)


class SilentServer:
    """Answers every command with OK until it falls silent, and counts its connections."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.connections: dict[Any, socket.socket] = {}  # by the address of their other end
        self.is_silent = False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, peer = self.listener.accept()
                self.connections[peer] = connection
                threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (asked := connection.recv(1000)) and not self.is_silent:
                connection.sendall(b"+PONG\r\n" if b"PING" in asked else b"+OK\r\n")

    def made(self) -> int:
        """How many connections there were, including those not accepted yet."""
        with socket.create_connection(("127.0.0.1", self.port)) as last:  # they are accepted in order
            name = last.getsockname()
            assert eventually(lambda: name in self.connections)
        self.connections.pop(name).close()
        return len(self.connections)

    def close(self) -> None:
        for opened in (self.listener, *self.connections.values()):
            opened.close()


def test_server_that_falls_silent_is_tried_a_few_times_and_no_more(connect: Connect):
    silent = SilentServer()
    client = connect(f"redis://127.0.0.1:{silent.port}?socket_timeout=0.1")

    def answers() -> bool:
        with contextlib.suppress(exceptions.TimeoutError):
            return bool(client.get("key") == b"OK")
        return False

    assert eventually(answers)
    before = silent.made()
    silent.is_silent = True
    with pytest.raises(exceptions.TimeoutError) as caught:
        client.get("key")
    assert silent.made() - before == clients.RETRIES
    assert isinstance(translate(caught.value), errors.ServerUnreachable)
    client.close()
    silent.close()


def test_restart_goes_unnoticed(own_server: RedisServer, connect: Connect, monkeypatch: pytest.MonkeyPatch):
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == clients.RETRIES:
            own_server.start()

    client = connect(own_server.url)
    client.set("key", "value")
    own_server.kill()
    monkeypatch.setattr("redis.retry.sleep", pause)
    assert client.get("key") == b"value"
    assert len(pauses) == clients.RETRIES


def test_client_is_known_by_name(redis_server: RedisServer, connect: Connect):
    client = connect(redis_server.url)
    assert isinstance(client, redis.Redis)
    assert client.client_getname() == "delayq"


def test_blocked_connection_does_not_block_others(redis_server: RedisServer, connect: Connect):
    client = connect(redis_server.url)
    assert isinstance(client, redis.Redis)
    bell = client.connection_pool.get_connection()
    bell.send_command("BLPOP", "bell", 0)
    workers = [threading.Thread(target=client.blpop, args=("work", 20)) for _ in range(120)]
    for worker in workers:
        worker.start()
    assert eventually(lambda: client.info("clients")["blocked_clients"] == 121)
    client.rpush("work", *range(120))
    for worker in workers:
        worker.join()
    client.rpush("bell", "rung")
    assert bell.read_response() == [b"bell", b"rung"]
    client.connection_pool.release(bell)


@pytest.mark.full
def test_cluster_is_connected_and_checked(cluster: RedisServer, connect: Connect):
    client = connect(f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster.port}")
    assert isinstance(client, RedisCluster)
    client.set("key", "value")
    assert client.get("key") == b"value"
    info = check_server(client)
    assert (info.cluster, (info.version or ())[:2]) == (True, (8, 2))
    assert server.address(client) == f"127.0.0.1:{cluster.port}"
    client.close()


@pytest.mark.full
def test_cluster_that_refuses_the_login_says_so(cluster: RedisServer, connect: Connect):
    with pytest.raises(errors.LoginRefused):
        connect(f"redis+cluster://user:secret@127.0.0.1:{cluster.port}")


def test_single_server_is_not_accepted_as_a_cluster(start_server: StartServer, connect: Connect):
    with pytest.raises(errors.ServerError, match="redis://"):
        connect(f"redis+cluster://127.0.0.1:{start_server(port=True).port}")


@pytest.mark.full
def test_cluster_node_used_as_a_single_server_gives_named_errors(cluster: RedisServer, connect: Connect):
    client = connect(f"redis://127.0.0.1:{cluster.port}")
    assert isinstance(client, redis.Redis)
    client.execute_command("CLUSTER DELSLOTS", 12182)  # the slot of "foo"
    client.execute_command("CONFIG SET", "cluster-require-full-coverage", "no")
    with pytest.raises(exceptions.RedisError) as caught:
        client.set("foo", 1)
    assert isinstance(translate(caught.value), errors.ServerNotReady)
    moved = translate(exceptions.MovedError("12182 127.0.0.1:1"))
    assert type(moved) is errors.ServerError
    assert "redis+cluster://" in str(moved)


@pytest.mark.full
def test_sentinel_leads_to_the_master(sentinel: int, connect: Connect):
    url = f"redis+sentinel://:secret@127.0.0.1:1,127.0.0.1:{sentinel}/queue/2?sentinel_password=watch"
    client = connect(url)
    client.set("key", "value")
    assert client.get("key") == b"value"
    assert check_server(client).address == "the master of queue"


@pytest.mark.full
def test_unknown_service_is_reported_without_secrets(sentinel: int, connect: Connect):
    client = connect(f"redis+sentinel://:secret@127.0.0.1:{sentinel}/nobody?sentinel_password=watch")
    with pytest.raises(errors.ServerUnreachable, match="No master found for 'nobody'") as caught:
        check_server(client)
    assert len(str(caught.value)) < 200


@each_version
def test_full_memory_is_reported_from_inside_a_script(start_server: StartServer, version: str):
    full = start_server(version=version, config={"maxmemory": "1"})
    with full.client() as client, pytest.raises(exceptions.RedisError) as caught:
        client.eval("return redis.call('SET', KEYS[1], 1)", 1, "key")
    assert isinstance(translate(caught.value), errors.ServerOutOfMemory)
