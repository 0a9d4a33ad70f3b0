"""An embedded store: one server for all users of a folder, configured so that it loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from structlog.testing import capture_logs

from delayq import Queue
from delayq.errors import InvalidURL
from delayq.transport.embedded import connection, keeper, open_store, store
from delayq.transport.embedded.binaries import find_server
from delayq.transport.open_client import connect
from delayq.transport.server_check import check_server
from tests.harness.stores import Watched, is_alive
from tests.harness.waiting import eventually


def test_processes_share_one_store(watched: Watched, any_program: str):
    one, two = watched.user(), watched.user()
    one.run("SET", "key", "value")
    assert two.run("GET", "key") == "value"
    assert watched.look()["server"].startswith(f"redis {any_program}.".replace("redis valkey-", "valkey "))


@pytest.mark.usefixtures("any_program")
def test_data_is_kept_after_the_last_user_leaves(watched: Watched):
    one = watched.user()
    one.run("RPUSH", "list", 1, 2, 3)
    one.leave()
    assert eventually(watched.is_at_rest)
    assert watched.user().run("LRANGE", "list", 0, -1) == ["1", "2", "3"]


def test_server_is_configured_to_lose_nothing_and_to_listen_to_no_others(folder: Path):
    with open_store(folder) as client:
        wanted = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction", "port": "0"}
        assert {name: client.config_get(name)[name] for name in wanted} == wanted
        socket = Path(client.config_get("unixsocket")["unixsocket"])
        assert socket.parent == folder
        assert (socket.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o700, 0o700)
        assert {path.stat().st_mode & 0o077 for path in (folder / "appendonlydir").iterdir()} == {0}


def test_server_checks_find_nothing_to_warn_about(folder: Path):
    with open_store(folder) as client, capture_logs() as logs:
        assert check_server(client).address == str(folder)
    assert logs == []


def test_first_opening_in_a_process_logs_where_the_data_is(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "_announced", set())
    with capture_logs() as logs, open_store(folder), open_store(folder) as client:
        pid = client.info("server")["process_id"]
        version = find_server(folder, None).version
    (line,) = logs
    assert (line["log_level"], line["path"], line["pid"]) == ("info", str(folder), pid)
    assert line["server"] == str(version)


@pytest.mark.parametrize(("mode", "is_warned"), [(0o700, False), (0o755, False), (0o775, True), (0o777, True)])
def test_folder_writable_by_others_gives_a_warning(
    folder: Path, mode: int, is_warned: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection, "_announced", set())
    folder.mkdir()
    folder.chmod(mode)
    with capture_logs() as logs, open_store(folder):
        pass
    warned = [line["mode"] for line in logs if line["log_level"] == "warning"]
    assert warned == [f"{mode:o}"] * is_warned


def test_url_names_the_folder(folder: Path):
    with connect(f"embedded://{folder}") as one, open_store(folder) as two:
        assert isinstance(one, redis.Redis)
        one.set("key", "value")
        assert two.get("key") == b"value"


def test_url_with_a_password_is_refused(folder: Path):
    with pytest.raises(InvalidURL, match="embedded store has none"):
        connect(f"embedded://:secret@{folder}")
    assert not folder.exists()


def test_store_without_a_path_is_in_delayq_home(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DELAYQ_HOME", str(folder))
    with open_store(), connect("embedded://"):
        assert (folder / keeper.ADDRESS).exists()


def test_store_without_a_home_is_in_the_working_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DELAYQ_HOME", raising=False)
    monkeypatch.chdir(folder.parent)
    with open_store() as client:
        assert (folder.parent / ".delayq" / keeper.ADDRESS).exists()
        monkeypatch.chdir("/")
        client.connection_pool.disconnect()
        assert client.ping()


def test_new_store_in_a_container_gives_a_warning_unless_its_place_was_chosen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(store, "CONTAINER_FILES", (folder.parent / "containerenv",))
    monkeypatch.delenv("DELAYQ_HOME", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def warned(name: str, home: bool = False) -> bool:
        folder.with_name(name).mkdir(exist_ok=True)
        monkeypatch.chdir(folder.with_name(name))
        with capture_logs() as logs, open_store(folder.with_name(name) / "chosen" if home else None):
            return any(line["event"] == "new embedded store in a container" for line in logs)

    assert not warned("outside")
    (folder.parent / "containerenv").touch()
    assert not warned("outside")  # the store is no longer new
    assert warned("docker")
    assert not warned("chosen", home=True)
    (folder.parent / "containerenv").unlink()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert warned("pod")


def test_default_store_can_be_forbidden(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DELAYQ_HOME", str(folder))
    monkeypatch.setenv("DELAYQ_REQUIRE_URL", "1")
    with Queue("emails") as queue, pytest.raises(InvalidURL, match="DELAYQ_REQUIRE_URL forbids the embedded store"):
        queue.send("payload")
    assert not folder.exists()
    with open_store(folder) as client:
        assert client.ping()
    monkeypatch.setenv("DELAYQ_REQUIRE_URL", "0")
    with open_store() as client:
        assert client.ping()


def test_git_ignores_a_new_store_but_not_a_folder_that_existed(folder: Path):
    with open_store(folder):
        assert (folder / ".gitignore").read_text() == "*\n"
    folder.with_name("old").mkdir()
    with open_store(folder.with_name("old")):
        assert not folder.with_name("old").joinpath(".gitignore").exists()


@pytest.mark.full
def test_store_can_have_a_long_path(watched: Watched, monkeypatch: pytest.MonkeyPatch):
    elsewhere = watched.folder.parent / "tmp"
    elsewhere.mkdir()
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    watched.folder /= "long/" * 40
    one, two = watched.user(), watched.user()
    one.run("SET", "key", "value")
    assert two.run("GET", "key") == "value"
    socket = Path(watched.look()["socket"])
    assert socket.is_relative_to(elsewhere)
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    watched.kill("keeper")
    assert eventually(lambda: not any(map(is_alive, watched.seen)))
    assert two.run("GET", "key") == "value"
    watched.look()
    for user in (one, two):
        user.leave()
    assert eventually(watched.is_at_rest)
    assert list(elsewhere.iterdir()) == []
