"""Changes in a lake on file systems that cannot replace a file: a kill loses none of them."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from delayq import Outgoing
from delayq.errors import LakeMismatch
from delayq.lake import object_store, queue_folder, versioned_json
from delayq.lake.layout import DeferredRow, DeferRun
from delayq.lake.object_store import read_json
from delayq.lake.queue_folder import QueueFolder
from delayq.lake.versioned_json import VersionedJson, name_of
from tests.harness.lake.lakes import DAY, Clock, delivered, far_queue, load, manifest
from tests.harness.lake.unreplacing import Killed, Unreplacing
from tests.harness.servers import RedisServer

IDS = {"a", "b", "c"}


@pytest.fixture
def unreplacing(monkeypatch: pytest.MonkeyPatch) -> Unreplacing:
    """Puts all lakes on a file system that cannot replace files."""
    handler = Unreplacing()
    for module in (object_store, queue_folder):
        monkeypatch.setattr(module, "place", lambda path: (fs.PyFileSystem(handler), path))
    return handler


def broken_off(server: RedisServer, lake: Path, system: Unreplacing, steps: int, later: float) -> bool:
    """Load in a program that dies after so many steps, and again some time later; return whether it died.

    What is there is delivered and acked after each.
    """
    clock, told = Clock(), ""
    server.flush()
    with far_queue(server.url, lake, clock) as queue:
        queue.send_many([Outgoing("x", delay=DAY, id=each) for each in IDS])
        clock.later(DAY)
        system.left, died = steps, False
        try:
            load(queue, lake)
        except Killed:
            died = True
        system.left = None
        came = Counter(each.id for each in delivered(queue))
        clock.later(later)
        try:
            load(queue, lake)
        except LakeMismatch as error:
            told = str(error)
        came.update(each.id for each in delivered(queue))
    assert came == Counter(IDS) or (later and "broke off so long ago" in told and set(came.values()) <= {1})
    return died


@pytest.mark.parametrize("later", [0, 3 * DAY])
def test_load_killed_at_any_step_is_completed_or_reported_and_never_repeated(
    redis_server: RedisServer, tmp_path: Path, unreplacing: Unreplacing, later: float
):
    """Also when Redis has forgotten what it was sent, so that only the manifest knows."""
    deaths = next(
        n for n in count() if not broken_off(redis_server, tmp_path / f"{n}", unreplacing, steps=n, later=later)
    )
    assert deaths > 4  # two manifests, each written and moved, and one of them removed
    assert unreplacing.replaced == []


def test_document_has_its_old_or_new_content_whenever_its_writer_is_killed(lake: Path, unreplacing: Unreplacing):
    document = VersionedJson(str(lake), "v1.2", int)
    assert document.read() is None
    for n in count():
        document.write(1)
        unreplacing.left = n
        try:
            document.write(2)
        except Killed:
            unreplacing.left = None
            assert document.read() in (1, 2)
        else:
            break
    assert n == 3
    unreplacing.left = None
    assert document.read() == 2
    assert len([path for path in lake.iterdir() if name_of(path.name)]) == 1
    assert unreplacing.replaced == []


def test_damaged_file_of_messages_is_whole_after_it_is_written_again(lake: Path):
    """As by a run that is repeated under its name."""
    hour, rows = "2030-01-02T12", [DeferredRow(each, 0, 0, b"") for each in IDS]
    deferred = QueueFolder(lake, "jobs")
    file = deferred.write(hour, "run-0", rows)
    (path,) = lake.rglob("*.parquet")
    path.write_bytes(bytes(path.stat().st_size))
    assert deferred.write(hour, "run-0", rows) == file
    assert deferred.read(hour, file).num_rows == len(IDS)


def test_document_written_while_it_is_read_is_read_in_its_new_version(lake: Path, monkeypatch: pytest.MonkeyPatch):
    document = VersionedJson(str(lake), "a", int)
    document.write(1)

    def read(*args: Any) -> Any:
        monkeypatch.setattr(versioned_json, "read_json", read_json)
        document.write(2)
        return read_json(*args)

    monkeypatch.setattr(versioned_json, "read_json", read)
    assert document.read() == 2


@pytest.mark.full
def test_document_is_always_present_while_another_process_writes_it(lake: Path):
    """Otherwise a load would think that an hour was never loaded, and send it again after Redis has forgotten it."""
    document = VersionedJson(str(lake), "_manifest", int)
    document.write(0)
    for number in range(100):  # other files in the folder, which take time to list
        (lake / f"_{number:016d}.json").touch()

    def write() -> None:
        for number in range(150):
            document.write(number)

    writer = threading.Thread(target=write)
    writer.start()
    found = []
    while writer.is_alive():
        found.append(document.read())
    assert None not in found
    assert document.read() == 149


def test_many_runs_are_read_with_few_looks_at_their_folder(lake: Path, monkeypatch: pytest.MonkeyPatch):
    """A lake to which something is deferred every hour has thousands of runs after a year."""
    folder = QueueFolder(lake, "jobs")
    assert folder.runs() == []
    for number in range(12):
        folder.put_run(DeferRun(f"run-{number % 6}", number))
    looks: list[str] = []

    def place(path: str) -> tuple[fs.FileSystem, str]:
        if path.endswith("_runs"):
            looks.append(path)
        return fs.LocalFileSystem(), path

    monkeypatch.setattr(object_store, "place", place)
    assert [(run.run, run.created_ms) for run in folder.runs()] == [(f"run-{n}", n + 6) for n in range(6)]
    assert len(looks) <= 2


def test_versions_of_similar_names_are_kept_apart(lake: Path):
    names = ["v1", "v1.2", "v1-2", "_v1"]
    for number, name in enumerate(names):
        VersionedJson(str(lake), name, int).write(number)
        VersionedJson(str(lake), name, int).write(number)
    (lake / "v1@x.json").write_text("9")
    assert [VersionedJson(str(lake), name, int).read() for name in names] == list(range(len(names)))


def test_manifest_without_a_number_is_read_until_a_numbered_one_exists(
    redis_server: RedisServer, lake: Path, clock: Clock
):
    """Earlier versions wrote such manifests."""
    with far_queue(redis_server.url, lake, clock) as queue:
        queue.send("x", delay=DAY)
        clock.later(DAY)
        assert len(load(queue, lake)) == 1
        (hour,) = lake.glob("queue=jobs/hour=*")
        manifest(hour).rename(hour / "_manifest.json")
        assert load(queue, lake) == []
        clock.later(3 * DAY)
        load(queue, lake, keep=0)
        assert manifest(hour).name.startswith("_manifest@1-")
