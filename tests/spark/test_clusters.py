"""delayq on Spark clusters: a standalone one, and a Spark Connect server."""

from __future__ import annotations

import datetime as dt
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from delayq import Outgoing, Queue
from delayq.lake.queue_folder import QueueFolder
from delayq.operations.send import MAX_SENT
from tests.conftest import StartServer
from tests.harness.proxy import Cut, Proxy
from tests.harness.servers import RedisServer
from tests.harness.spark import connect_client, held_write
from tests.harness.spark.standalone import Cluster, Process, conf, environment, without_delayq, zipped

SMALL = {"spark.executor.memory": "512m", "spark.ui.enabled": "false"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, without_delayq(folder)) as running:
        yield running


def test_killed_executor_and_speculative_task_lose_nothing_duplicate_nothing_and_show_no_password(
    start_server: StartServer, tmp_path: Path, cluster: Cluster
):
    """The speculative task comes last: Spark starts it when all others have ended, including the killed one's retry."""
    password = f"pw{secrets.token_hex(16)}"
    server = start_server(port=True, config={"requirepass": password})
    url = f"redis://:{password}@127.0.0.1:{server.port}/0"
    (tmp_path / "url").write_text(url)
    (tmp_path / "events").mkdir()
    settings = {
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both executors are up before the first task
        "spark.speculation": "true",
        "spark.eventLog.enabled": "true",  # everything that the web interface shows, and more
        "spark.eventLog.dir": str(tmp_path / "events"),
        "spark.eventLog.compress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(held_write.BATCH),
        "spark.sql.shuffle.partitions": "3",
    } | SMALL
    options = ["--name", "reminders", "--py-files", str(zipped(tmp_path / "delayq.zip"))]
    with Queue("letters", url=url) as queue:
        with cluster.submit(Path(held_write.__file__), str(tmp_path), settings=settings, options=options) as driver:
            for name, held in {"killed": held_write.KILLED, "slow": held_write.SLOW}.items():
                driver.goes_on_until((tmp_path / name).exists)
                driver.goes_on_until(partial(has_sent, queue, held[0]))
            os.kill(parent_of(int((tmp_path / "killed").read_text())), signal.SIGKILL)
            driver.ends_well()

        summary = json.loads((tmp_path / "summary.json").read_text())
        assert summary["sent"] + summary["existing"] == held_write.ROWS
        assert summary["rejected"] == 0
        assert 2 <= summary["existing"] <= (len(held_write.KILLED) + len(held_write.SLOW)) // 2  # from both first tries

        stats = queue.stats()
        assert (stats.sent, stats.pending) == (held_write.ROWS, held_write.ROWS)
        letters = {message.id: message.payload for message in queue.peek(limit=held_write.ROWS)}
        assert letters == {f"reminder-{n}": held_write.letter(n) for n in range(held_write.ROWS)}

    document = json.loads((tmp_path / "told.json").read_text())
    assert Path(document["delayq"]).is_relative_to(tmp_path / "delayq.zip")
    assert (document["spark.app.name"], document["spark.sql.shuffle.partitions"]) == ("reminders", "3")

    folders = (tmp_path, cluster.folder)
    written = {path: data for each in folders for path, data in found_in(each) if path != tmp_path / "url"}
    assert {"driver.log", "stderr"} <= {path.name for path in written}
    assert any(data for path, data in written.items() if path.is_relative_to(tmp_path / "events"))
    assert [path for path, data in written.items() if password.encode() in data] == []


def has_sent(queue: Queue, number: int) -> bool:
    return queue.get(f"reminder-{number}") is not None


def found_in(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Return the files below a folder and their contents; executors that end delete theirs meanwhile."""
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            with suppress(FileNotFoundError):
                if path.is_file():
                    yield path, path.read_bytes()


def parent_of(pid: int) -> int:
    done = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_executor_killed_during_a_job_command_loses_and_duplicates_nothing(
    start_server: StartServer, tmp_path: Path, cluster: Cluster
):
    hour = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0) + dt.timedelta(hours=3)
    letters = {f"letter-{n}": n for n in range(15 * MAX_SENT)}  # as many calls
    lake, reached, goes_on = tmp_path / "lake", threading.Event(), threading.Event()

    def decide(name: str) -> Cut | None:
        if name != "send_unique" or proxy.passed.count(name) != 2:
            return None
        reached.set()
        goes_on.wait()
        return Cut("before")  # all calls of a batch were sent at once: the ones in flight go no further

    with ExitStack() as stack:
        server = start_server()
        queue = stack.enter_context(Queue("letters", url=server.url, horizon=3600, lake=lake))
        queue.send_many([Outgoing(n, id=name, at=hour) for name, n in letters.items()])
        proxy = stack.enter_context(Proxy(Path(server.socket), decide, port=True))
        stack.callback(goes_on.set)
        command = [sys.executable, "-m", "delayq.cli", "pipeline", "hydrate", "letters", "--lake", str(lake)]
        options = ["--horizon", "4h", "--master", cluster.url, *conf({"spark.cores.max": "1"} | SMALL)]
        own = environment(tmp_path) | {"DELAYQ_URL": proxy.url}
        with Process(tmp_path / "driver.log", [*command, *options], own) as driver:
            driver.goes_on_until(reached.is_set)
            (executor,) = cluster.executors()
            cluster.lose(executor)
            goes_on.set()
            driver.ends_well()

        (found,) = QueueFolder(lake, "letters").hours()
        manifest = QueueFolder(lake, "letters").manifest(found.name)
        assert manifest is not None
        (loaded,) = manifest.loaded
        assert loaded.sent + loaded.existing == len(letters)
        assert loaded.existing == MAX_SENT  # the first call of the killed try had succeeded
        assert queue.stats().sent == len(letters)
        assert {message.id: message.payload for message in queue.peek(limit=len(letters))} == letters


def test_spark_connect_server_with_delayq_installed_knows_the_format(redis_server: RedisServer, tmp_path: Path):
    with zipfile.ZipFile(zipped(tmp_path / "delayq.zip")) as archive:
        archive.extractall(tmp_path / "installed")
    with Queue("letters", url=redis_server.url) as queue:
        queue.configure(events=100_000)
    own = without_delayq(tmp_path) | {"DELAYQ_URL": redis_server.url}
    _, *packages = own["PYTHONPATH"].split(os.pathsep)  # without what hides grpc and pandas: foreachBatch needs them
    own["PYTHONPATH"] = os.pathsep.join([*packages, str(tmp_path / "installed")])
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }
    command = ["spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    with Process(tmp_path / "server.log", [*command, "--master", "local[2]", *conf(settings)], own) as server:
        port = server.says(r"Spark Connect server started at: .*:(\d+)")[1]
        without_path = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        client = [sys.executable, connect_client.__file__, f"sc://127.0.0.1:{port}"]
        done = subprocess.run(client, env=without_path, capture_output=True, text=True, timeout=800, check=False)
        assert done.returncode == 0, f"{done.stderr}\n{server.log.read_text()}"
    assert json.loads(done.stdout) == {"found": connect_client.ROWS, "copied": connect_client.ROWS, "zone": "UTC"}
    with Queue("letters", url=redis_server.url) as queue:
        assert queue.stats().sent == connect_client.ROWS
