"""What happens to a store when its users, keeper and server end, cleanly or not, and what is said when it fails."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
import redis
from structlog.testing import capture_logs

from delayq import Queue, aio
from delayq.errors import NoEmbeddedServer, StoreError, StoreTooNew
from delayq.transport.embedded import keeper, open_store, store
from delayq.transport.embedded.binaries import find_server
from tests.harness.stores import Watched, is_alive, script, starts_in_log, use_program
from tests.harness.waiting import eventually

ASTRAY = "embedded store moved or deleted"


def test_store_serves_until_the_last_user_is_gone(watched: Watched):
    one, two, three = watched.user(), watched.user(), watched.user()
    pid = watched.look()["pid"]
    one.leave()
    two.kill()
    time.sleep(0.3)
    assert is_alive(pid)
    assert three.run("PING") is True
    three.kill()
    assert eventually(watched.is_at_rest)
    assert not (watched.folder / keeper.ADDRESS).exists()
    assert list(watched.folder.glob("*.sock")) == []


@pytest.mark.full
def test_store_that_takes_long_to_load_waits_for_another_user(folder: Path):
    watched = Watched(folder)
    with open_store(folder) as client:
        client.eval("for i = 1, 1000000 do redis.call('INCR', KEYS[1]) end", 1, "key")
    assert eventually(watched.is_at_rest)
    with open_store(folder):
        before = watched.look()
    time.sleep(0.05)
    with open_store(folder) as client:
        assert client.info("server")["process_id"] == before["pid"]
    assert eventually(watched.is_at_rest)


@pytest.mark.full
def test_store_survives_the_kill_of_the_process_that_opened_it(watched: Watched):
    opener = watched.user()
    opener.run("SET", "key", "value")
    other = watched.user()
    opener.kill()
    assert other.run("GET", "key") == "value"


@pytest.mark.usefixtures("any_program")
@pytest.mark.parametrize(
    "victims",
    [
        ["pid"],
        *(pytest.param(more, marks=pytest.mark.full) for more in (["keeper"], ["keeper", "pid"], ["pid", "keeper"])),
    ],
    ids="-".join,
)
def test_killed_keepers_and_servers_come_back_with_everything_acknowledged(watched: Watched, victims: list[str]):
    one, two = watched.user(), watched.user()
    before = watched.look()
    for i in range(100):
        one.run("SADD", "set", i)
    for victim in victims:
        os.kill(before[victim], signal.SIGKILL)
    assert eventually(lambda: not is_alive(before["pid"]))
    assert two.run("SCARD", "set") == 100
    assert one.run("SADD", "set", 100) == 1
    after = watched.look()
    assert after["pid"] != before["pid"]
    assert ("keeper" in victims) == (after["keeper"] != before["keeper"])


@pytest.mark.full
def test_nothing_acknowledged_is_lost_while_the_server_is_killed_repeatedly(folder: Path):
    answered: list[int] = []
    with open_store(folder) as client:
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                client.sadd("set", len(answered))
                answered.append(len(answered))

        writer = threading.Thread(target=write)
        writer.start()
        watched = Watched(folder)
        for which in ("pid", "keeper", "pid", "pid", "keeper"):
            reached = len(answered) + 20
            assert eventually(lambda: len(answered) >= reached)  # noqa: B023
            watched.kill(which)
        reached = len(answered) + 20
        assert eventually(lambda: len(answered) >= reached)
        stop.set()
        writer.join()
        assert {int(member) for member in client.smembers("set")} >= set(answered)
    assert eventually(watched.is_at_rest)


def test_terminated_keeper_stops_its_server_and_is_replaced(watched: Watched):
    user = watched.user()
    user.run("SET", "key", "value")
    before = watched.look()
    os.kill(before["keeper"], signal.SIGTERM)
    assert eventually(lambda: not is_alive(before["keeper"]) and not is_alive(before["pid"]))
    assert user.run("GET", "key") == "value"


@pytest.mark.full
def test_no_server_starts_beside_one_that_does_not_end(watched: Watched):
    user = watched.user()
    user.run("SET", "key", "value")
    before = watched.look()
    os.kill(before["pid"], signal.SIGSTOP)
    os.kill(before["keeper"], signal.SIGKILL)
    try:
        other = watched.user(wait=False)
        assert eventually(lambda: not (watched.folder / keeper.ADDRESS).exists())  # the next keeper is being started
        time.sleep(0.3)
        assert starts_in_log(watched) == 1
    finally:
        os.kill(before["pid"], signal.SIGCONT)  # a stopped one would outlive the test
    assert other.read() == "open"
    assert other.run("GET", "key") == "value"


@pytest.mark.full
def test_interrupt_of_its_users_terminal_does_not_reach_a_keeper(watched: Watched):
    user, other = watched.user(new_session=True), watched.user()
    other.run("SET", "key", "value")
    before = watched.look()
    os.killpg(user.process.pid, signal.SIGINT)
    assert user.process.wait() != 0
    time.sleep(0.3)
    assert other.run("GET", "key") == "value"
    assert watched.look() == before


def test_server_without_a_keeper_is_stopped_and_its_data_served(folder: Path):
    """What remains on systems whose kernel does not tell a server that its keeper died."""
    open_store(folder).close()
    watched = Watched(folder)
    assert eventually(watched.is_at_rest)
    config = keeper.CONFIG | {"dir": str(folder), "unixsocket": str(folder / "stray.sock")}
    words = [word for name, value in config.items() for word in (f"--{name}", value)]
    with (folder / keeper.SERVER_LOCK).open("rb") as lock:
        assert keeper.try_lock(lock.fileno())
        stray = subprocess.Popen(
            [find_server(folder, None).path, *words], stdout=subprocess.DEVNULL, pass_fds=[lock.fileno()]
        )
    with redis.Redis(unix_socket_path=str(folder / "stray.sock")) as client:
        assert eventually(lambda: keeper.ask(str(folder / "stray.sock"), "PING") == b"+PONG\r\n")
        client.set("key", "value")
    address = {"socket": str(folder / "stray.sock"), "server": "redis 8.2.3", "pid": stray.pid, "keeper": 0}
    (folder / keeper.ADDRESS).write_text(json.dumps(address))
    with open_store(folder) as client:
        assert stray.wait(120) == 0
        assert client.get("key") == b"value"


@pytest.mark.full
def test_folder_deleted_under_its_users_can_be_opened_again(watched: Watched):
    old = watched.user()
    old.run("SET", "key", "old")
    shutil.rmtree(watched.folder)
    new = watched.user()
    new.run("SET", "key", "new")
    assert old.run("GET", "key") == "old"
    pid = watched.look()["pid"]
    old.leave()
    time.sleep(0.3)
    assert watched.user().run("GET", "key") == "new"
    assert watched.look()["pid"] == pid


@pytest.mark.full
def test_user_whose_folder_was_deleted_moves_to_the_new_one(watched: Watched):
    user = watched.user()
    user.run("SET", "key", "old")
    address = watched.look()
    shutil.rmtree(watched.folder)
    os.kill(address["keeper"], signal.SIGKILL)
    assert eventually(lambda: not is_alive(address["pid"]))
    assert user.run("GET", "key") is None
    assert watched.look()["pid"] != address["pid"]


def test_server_that_does_not_start_is_reported_with_its_log(folder: Path):
    with open_store(folder) as client:
        client.set("key", "value")
    assert eventually(Watched(folder).is_at_rest)
    (manifest,) = (folder / "appendonlydir").glob("*.manifest")
    manifest.write_text("spoilt\n")
    with pytest.raises(StoreError, match=rf"(?s){folder}.*AOF manifest"):
        open_store(folder)


def test_full_disk_that_ends_a_server_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch):
    open_store(folder).close()
    assert eventually(Watched(folder).is_at_rest)
    monkeypatch.setenv("DELAYQ_REDIS_SERVER", script(folder.parent, "valkey server v=99.0.0", "echo DB loaded; exit 1"))

    def refuse(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(StoreError, match=rf"(?s){folder} ended because its disk is full: .*DB loaded"):
        open_store(folder)


@pytest.mark.parametrize("torn", ["", '{"socket": "/tm', "[]", '{"socket": "/tmp/s"}'])
def test_incomplete_address_file_is_ignored(folder: Path, torn: str):
    with open_store(folder) as client:
        client.set("key", "value")
    assert eventually(Watched(folder).is_at_rest)
    (folder / keeper.ADDRESS).write_text(torn)
    with open_store(folder) as client:
        assert client.get("key") == b"value"


@pytest.mark.parametrize("is_moved", [False, True])
def test_moved_or_deleted_folder_is_logged_once(folder: Path, is_moved: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "LOOK_SECONDS", 0)
    with Queue("jobs", url=f"embedded://{folder}") as queue, capture_logs() as logs:
        queue.send("x")
        if is_moved:
            folder.rename(folder.with_name("moved"))
        else:
            shutil.rmtree(folder)
        assert [queue.stats().pending for _ in range(3)] == [1] * 3
    logged = [(line["event"], line["log_level"], line["path"]) for line in logs if "moved" in line["event"]]
    assert logged == [(ASTRAY, "error", str(folder))]


def test_async_api_logs_a_moved_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "LOOK_SECONDS", 0)

    async def live() -> None:
        async with aio.Queue("jobs", url=f"embedded://{folder}") as queue:
            await queue.send("x")
            await asyncio.to_thread(folder.rename, folder.with_name("moved"))
            await queue.stats()

    with capture_logs() as logs:
        asyncio.run(live())
    assert [line["event"] for line in logs if "moved" in line["event"]] == [ASTRAY]


def test_user_of_a_moved_folder_joins_the_store_that_took_its_place(watched: Watched):
    user = watched.user()
    user.run("SET", "key", "old")
    address = watched.look()
    watched.folder.rename(watched.folder.with_name("moved"))
    other = watched.user()
    os.kill(address["keeper"], signal.SIGKILL)
    assert eventually(lambda: not is_alive(address["pid"]))
    assert user.run("GET", "key") is None
    other.leave()
    assert user.run("SET", "key", "new")


def test_missing_program_is_reported_with_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DELAYQ_REDIS_SERVER", "/no/such/redis-server")
    with pytest.raises(NoEmbeddedServer, match=r"/no/such/redis-server does not run.*install.*DELAYQ_URL"):
        open_store(folder)


@pytest.mark.full
def test_older_server_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    use_program(monkeypatch, "8.2")
    open_store(folder).close()
    assert eventually(Watched(folder).is_at_rest)
    use_program(monkeypatch, "6.2")
    with pytest.raises(
        StoreTooNew, match=r"written by redis 8\.2\.\d+, which redis 6\.2\.\d+ \(.*\) cannot read: install"
    ):
        open_store(folder)
    use_program(monkeypatch, "8.2")
    with open_store(folder) as client:
        assert client.ping()
