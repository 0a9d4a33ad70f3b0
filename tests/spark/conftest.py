"""One session of Spark, on a real Java, for all tests of this folder that a process runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from delayq.spark import session
from delayq.spark.session import QUIET
from tests.sockets import all_closed
from tests.spark.absent import absent
from tests.spark.lakes import Clock


@pytest.fixture(autouse=True)
def no_socket_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """As everywhere, but for the sockets between this process and Java, which stay for the next test."""
    spared: set[int] = set()
    if "spark" in request.fixturenames:
        context = request.getfixturevalue("spark").sparkContext
        gateway = context._gateway  # noqa: SLF001
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # by which a stream calls functions of this process
        callbacks = gateway.get_callback_server().get_listening_port()
        spared = {gateway.gateway_parameters.port, callbacks, context._accumulatorServer.server_address[1]}  # noqa: SLF001
    with all_closed(spared=spared):
        yield


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    own = {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "1"}  # errors that a test provokes are no news
    settings = QUIET | own | {"spark.sql.warehouse.dir": str(folder / "warehouse")}
    with pytest.MonkeyPatch.context() as patch:  # for Java and its tasks alone: this process has other tests, too
        for name in ("SPARK_LOCAL_DIRS", "TMPDIR"):
            patch.setenv(name, str(folder))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYTHONPATH", str(absent(folder / "absent")))
        running = session("local[2,4]", settings, "tests")
    yield running
    running.stop()
