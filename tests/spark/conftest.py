"""One session of Spark, on a real Java, for all tests of this folder that a process runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from delayq.spark import session
from delayq.spark.session import QUIET
from tests.harness.sockets import all_closed
from tests.harness.spark.absent import absent
from tests.lake.conftest import clock, lake  # noqa: F401  # fixtures for this folder, too

GUARD_SECONDS = 900  # against a test that hangs: some start several Javas, of which each may take a minute under load


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the tests of this folder out of `make test`, and let them take longer than others."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.full)
            item.add_marker(pytest.mark.timeout(GUARD_SECONDS))


@pytest.fixture(autouse=True)
def no_socket_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """As everywhere, but for the sockets of a session that the test begins: they stay for the next one."""
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark")
    with all_closed():
        yield


PREPARED = """\
import sys

sys.path[:] = [path for path in sys.path if not path.endswith("pyspark.zip")]
if "pyspark.daemon" in sys.orig_argv:
    import delayq.spark
"""


def warm(folder: Path) -> Path:
    """Let each Python that Spark starts begin quickly, if it finds this folder on its path.

    It imports pyspark as it is installed, and compiled: Spark would have it taken from a zip of sources, which costs
    half a second a time. Java waits ten seconds for a new Python to call back, and a machine may be busy. The Python
    that Spark forks others of begins with delayq's imports, so that those, a new one after each error, need not do them
    again. One that Spark starts for itself, as to plan a stream, does them when it has called back.
    """
    (folder / "sitecustomize.py").write_text(PREPARED)
    return folder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    own = {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "1"}  # errors that a test provokes are no news
    # The Java that Spark writes for each query costs more than it saves; tests/spark/test_clusters.py has it written.
    interpreted = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    folders = {"spark.sql.warehouse.dir": str(folder / "warehouse")}
    settings = QUIET | own | interpreted | folders
    with pytest.MonkeyPatch.context() as patch:  # for Java and its tasks alone: this process has other tests, too
        for name in ("SPARK_LOCAL_DIRS", "TMPDIR"):
            patch.setenv(name, str(folder))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYTHONPATH", str(warm(absent(folder / "absent"))))
        running = session("local[2,2]", settings, "tests")
    # By which a stream calls functions of this process: from the begin, for its sockets stay, too.
    ensure_callback_server_started(running.sparkContext._gateway)  # type: ignore[no-untyped-call]
    yield running
    running.stop()
