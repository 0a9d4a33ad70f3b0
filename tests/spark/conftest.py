"""One Spark session on a real Java, shared by all tests of this folder that a process runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from delayq.spark import session
from delayq.spark.session import QUIET
from tests.harness.sockets import all_closed
from tests.harness.spark.absent import absent
from tests.lake.conftest import clock, lake  # noqa: F401  # fixtures for this folder, too

GUARD_SECONDS = 900  # against a test that hangs: some start several Javas, and each can take a minute under load


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Exclude the tests of this folder from `make test`, and give them more time."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.full)
            item.add_marker(pytest.mark.timeout(GUARD_SECONDS))


@pytest.fixture(scope="session", autouse=True)
def plain_logs() -> Iterator[None]:
    """Keep PySpark from formatting as JSON what pytest captures, also in the tests that follow in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PySparkLogger, "addHandler", logging.Logger.addHandler)
        yield


@pytest.fixture(autouse=True)
def no_socket_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check for open sockets as elsewhere, except those of a session the test starts: the next test uses them too."""
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark")
    with all_closed():
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    own = {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "1"}  # tests cause errors on purpose
    # The Java code that Spark generates for each query costs more than it saves; tests/spark/test_clusters.py uses it.
    interpreted = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    folders = {"spark.sql.warehouse.dir": str(folder / "warehouse")}
    settings = QUIET | own | interpreted | folders
    with pytest.MonkeyPatch.context() as patch:  # only for Java and its tasks: this process runs other tests too
        for name in ("SPARK_LOCAL_DIRS", "TMPDIR"):
            patch.setenv(name, str(folder))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYTHONPATH", str(absent(folder / "absent")), prepend=os.pathsep)
        running = session("local[2,2]", settings, "tests")
    # A stream calls functions of this process through this server. Start it now, because its sockets stay open too.
    ensure_callback_server_started(running.sparkContext._gateway)  # type: ignore[no-untyped-call]
    yield running
    running.stop()
