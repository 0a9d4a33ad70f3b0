"""The tests' own servers do what `tests/harness/servers.py` promises."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.conftest import StartServer
from tests.harness import servers
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


def test_any_server_has_the_version_in_the_test_id(any_client: redis.Redis, any_server: RedisServer):
    said = any_client.info("server")  # Valkey's redis_version is the Redis version that it is compatible with
    version = f"valkey-{said['valkey_version']}" if "valkey_version" in said else said["redis_version"]
    assert version.startswith(f"{any_server.version}.")


def test_killed_own_server_keeps_what_was_written(own_server: RedisServer):
    with own_server.client() as client:
        client.set("key", "value")
        own_server.kill()
        with pytest.raises(redis.ConnectionError):
            client.execute_command("PING")
        own_server.restart()
        assert client.get("key") == b"value"


def test_server_with_port_is_reached_by_tcp(start_server: StartServer):
    server = start_server(port=True)
    assert server.url == f"redis://127.0.0.1:{server.port}/0"
    with server.client() as client:
        assert client.ping()


def test_parallel_tests_get_different_ports(monkeypatch: pytest.MonkeyPatch):
    given = []
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    for worker in ("gw0", "gw1", "gw2"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        given += [servers.free_port() for _ in range(1000)]
    assert len(set(given)) == 3000


def test_frozen_server_can_be_closed(start_server: StartServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.harness.servers.STOP_SECONDS", 0.1)
    server = start_server()
    os.kill(server.pid, signal.SIGSTOP)
    server.stop()
    assert not listens(server.socket)


def test_server_that_does_not_start_says_why(start_server: StartServer):
    with pytest.raises(RuntimeError, match=r"(?s)did not start.*no-such-setting"):
        start_server(config={"no-such-setting": "1"})


def test_flush_of_a_server_that_another_process_started_is_refused(start_server: StartServer):
    mine, other = start_server(), start_server()
    mine.socket.unlink()
    mine.socket.symlink_to(other.socket)
    with other.client() as client:
        client.set("key", "value")
        with pytest.raises(RuntimeError, match="refused to flush"):
            mine.flush()
        assert client.get("key") == b"value"


def test_server_does_not_outlive_a_killed_test_process(default_version: str):
    program = """
import sys, time
from tests.harness.servers import RedisServer, server_binaries
server = RedisServer(server_binaries()[sys.argv[1]])
print(server.directory, flush=True)
time.sleep(60)
"""
    command = [sys.executable, "-c", program, default_version]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        directory = Path(process.stdout.readline().strip())
        assert listens(directory / "s")
        process.kill()
    assert eventually(lambda: not directory.exists())
    assert not listens(directory / "s")


def listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0
