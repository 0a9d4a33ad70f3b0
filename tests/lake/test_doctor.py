"""The doctor of a lake, and how the command line shows its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from delayq.cli import main

from delayq import Outgoing, Queue
from delayq.lake.doctor import examine
from delayq.lake.layout import DeferRun
from delayq.lake.queue_folder import QueueFolder
from tests.harness.lake.lakes import DAY, HOUR, Clock, delivered, far_queue, files, load, manifest
from tests.harness.servers import RedisServer


@pytest.fixture
def queue(redis_server: RedisServer, lake: Path, clock: Clock) -> Iterator[Queue]:
    """A queue with ten messages in each of the two hours from tomorrow on; the first hour is loaded."""
    with far_queue(redis_server.url, lake, clock) as opened:
        opened.send_many([Outgoing(n, delay=DAY + n * 360, id=f"m{n}") for n in range(20)])
        clock.later(DAY)
        load(opened, lake, until=clock.now)
        opened.cancel("m15")
        yield opened


def kinds(queue: Queue, lake: Path) -> list[str]:
    return [finding.kind for finding in examine(queue, str(lake)).findings]


def test_healthy_lake_never_has_findings(queue: Queue, lake: Path, clock: Clock):
    assert files(lake)
    report = examine(queue, str(lake))
    assert (report.findings, report.messages, report.total) == ([], 20, 20)
    load(queue, lake)
    queue.cancel("m11")
    queue.cancel("m12")
    queue.collect_garbage()
    assert kinds(queue, lake) == []
    clock.later(3 * HOUR)
    assert len(delivered(queue)) == 17
    assert kinds(queue, lake) == []
    clock.later(3 * DAY)
    assert kinds(queue, lake) == []
    load(queue, lake, keep=0)
    assert (files(lake), kinds(queue, lake)) == ([], [])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


WOUNDS: dict[str, tuple[Callable[[list[Path]], Any], str]] = {
    "removed": (lambda paths: paths[0].unlink(), "lake-file-missing"),
    "changed after its load": (lambda paths: flip(paths[0]), "lake-file-changed"),
    "changed before its load": (lambda paths: flip(paths[1]), "lake-file-changed"),
    "manifest": (lambda paths: manifest(paths[0].parent).write_text("{"), "lake-manifest"),
    "renamed": (lambda paths: paths[0].rename(str(paths[0]).replace(".10.", ".9.")), "lake-file-missing"),
}


@pytest.mark.parametrize(("wound", "kind"), WOUNDS.values(), ids=WOUNDS)
def test_altered_file_is_found(queue: Queue, lake: Path, wound: Callable[[list[Path]], Any], kind: str):
    wound(files(lake))
    found = examine(queue, str(lake)).findings
    assert kind in [each.kind for each in found]
    assert all("restore" in each.remedy or "hydrate" in each.remedy for each in found)


def test_missing_file_of_a_run_is_found_before_its_hour_is_loaded(queue: Queue, lake: Path):
    folder = QueueFolder(str(lake), "jobs")
    folder.put_run(DeferRun("r", 0, "written", [f"{path.parent.name[5:]}/{path.name}" for path in files(lake)]))
    assert kinds(queue, lake) == []
    files(lake)[1].unlink()
    assert kinds(queue, lake) == ["lake-file-missing"]


def test_unloaded_hour_is_found_once_one_of_its_messages_is_due(queue: Queue, lake: Path, clock: Clock):
    clock.later(HOUR - 1)
    assert kinds(queue, lake) == []
    clock.later(1)
    (finding,) = examine(queue, str(lake)).findings
    assert (finding.kind, finding.severity) == ("lake-left-behind", "error")
    assert " still holds 1 due message, the first due since " in finding.text


def test_messages_lost_by_redis_are_found_and_can_be_loaded_again(
    queue: Queue, lake: Path, redis_client: Any, clock: Clock
):
    for key in redis_client.keys("delayq:*"):
        redis_client.delete(key)
    queue.send("another", id="m3")
    (finding,) = examine(queue, str(lake)).findings
    assert finding.kind == "lake-lost"
    assert finding.text.startswith("Redis does not have 9 loaded messages of ")
    manifest(files(lake)[0].parent).unlink()
    load(queue, lake, until=clock.now)
    assert kinds(queue, lake) == []


def test_load_interrupted_too_long_ago_is_found(queue: Queue, lake: Path, clock: Clock):
    with pytest.raises(ZeroDivisionError):
        load(queue, lake, load_files=lambda _: 1 / 0)
    assert kinds(queue, lake) == []
    clock.later(3 * DAY)
    assert "lake-broken-off" in kinds(queue, lake)


def test_doctor_prints_what_it_found_in_a_lake_and_exits_with_1(redis_server: RedisServer, lake: Path):
    with Queue("jobs", url=redis_server.url, horizon=0, lake=lake) as queue:
        queue.send("x", delay=DAY)
    words = ["doctor", "--url", redis_server.url, "--lake", str(lake)]
    well = CliRunner().invoke(main, words)
    assert (well.exit_code, well.stdout.splitlines()[0]) == (0, "jobs: healthy, 1 message examined")
    flip(files(lake)[0])
    sick = CliRunner().invoke(main, words)
    assert sick.exit_code == 1
    assert "jobs: NOT healthy" in sick.stdout
    assert "does not match its checksum: restore it from a backup" in sick.stdout


def test_doctor_refuses_a_missing_lake(redis_server: RedisServer, lake: Path):
    result = CliRunner().invoke(main, ["doctor", "--url", redis_server.url, "--lake", str(lake)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"the lake '{lake}' does not exist: " in result.stderr


def test_doctor_notes_that_a_lake_holds_no_messages(redis_server: RedisServer, lake: Path):
    lake.mkdir()
    result = CliRunner().invoke(main, ["doctor", "--url", redis_server.url, "--lake", str(lake)])
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"the lake {lake} holds no messages" in result.stderr
