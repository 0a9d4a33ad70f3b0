"""A file that is damaged, empty or gone concerns only the messages in it, and errors name it and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from delayq.cli import main

from delayq import Outgoing, Queue
from delayq.errors import LakeMismatch
from delayq.lake import doctor
from tests.harness.lake.lakes import DAY, HOUR, Clock, far_queue, files, load
from tests.harness.servers import RedisServer


def flipped(path: Path) -> None:
    """Change the data, and neither the footer nor the length."""
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(each ^ 0xFF for each in data[4:200])
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "flipped": flipped,
    "another file": lambda path: path.write_bytes(b"nothing of delayq" * 99),
    "another table": lambda path: pq.write_table(pa.table({"id": ["bad-1", "new"], "n": [1, 2]}), path),
}

CALLS: dict[str, Callable[[Queue, str], Any]] = {
    "get": lambda queue, name: queue.get(name) is not None,
    "why": lambda queue, name: "is due at" in queue.why(name),
    "reschedule": lambda queue, name: queue.reschedule(name, delay=3 * DAY) == "rescheduled",
    "send": lambda queue, name: not queue.send("again", id=name, delay=DAY).created,
    "replace": lambda queue, name: not queue.send("again", id=name, delay=DAY, on_conflict="replace").created,
    "now": lambda queue, name: queue.now(name) == {name: "rescheduled"},
    "cancel": lambda queue, name: queue.cancel(name) == "cancelled",
}


@pytest.fixture
def queue(redis_server: RedisServer, lake: Path, clock: Clock) -> Iterator[Queue]:
    """A queue with a message in Redis, and files in two hours: one that will be damaged, and one that will not."""
    with far_queue(redis_server.url, lake, clock) as queue:
        queue.send("near", id="near", delay=60)
        queue.send_many(Outgoing(n, id=f"bad-{n}", delay=DAY) for n in range(50))
        queue.send_many(Outgoing(n, id=f"good-{n}", delay=DAY + HOUR) for n in range(50))
        yield queue


def bad(lake: Path) -> Path:
    (found,) = (path for path in files(lake) if "T12" in path.parent.name)
    return found


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_stops_only_what_needs_it(queue: Queue, lake: Path, clock: Clock, damage: str):
    path = bad(lake)
    DAMAGES[damage](path)
    named = rf"{re.escape(str(path))} (is|does not).*: restore it from a backup, or move it aside with delayq lake"
    for number, (name, call) in enumerate(CALLS.items()):
        assert call(queue, f"good-{number}"), name
        with pytest.raises(LakeMismatch, match=named):
            call(queue, "bad-1")
    assert queue.get("near")
    assert queue.send("near", id="nearer", delay=60).created
    assert queue.send("no id", delay=DAY + HOUR).created
    (finding,) = doctor.examine(queue, lake).findings
    assert (finding.kind, "lake repair" in finding.remedy) == ("lake-file-changed", True)
    clock.later(2 * DAY)
    with pytest.raises(LakeMismatch, match=named):
        load(queue, lake)
    assert queue.stats().pending > 40

    words = ["lake", "repair", "jobs", "--lake", str(lake)]
    assert CliRunner().invoke(main, words).stdout == f"moved 2030-01-02T12/{path.name} aside, which held 50 messages\n"
    assert CliRunner().invoke(main, words).stdout == "no file of jobs is damaged\n"
    assert queue.get("bad-1") is None
    assert queue.send("new", id="bad-1", delay=DAY).created


def test_file_that_is_gone_stops_nothing_and_the_doctor_does_not_invent_one(queue: Queue, lake: Path, clock: Clock):
    bad(lake).unlink()
    for number, (name, call) in enumerate(CALLS.items()):
        assert call(queue, f"good-{number}"), name
    assert queue.get("bad-1") is None
    assert queue.cancel("bad-2") == "unknown"
    assert queue.reschedule("bad-2", delay=DAY) == "unknown"
    assert queue.send("new", id="bad-3", delay=DAY).created
    clock.later(3 * DAY)
    load(queue, lake)


def test_folder_in_the_place_of_a_file_is_ignored(queue: Queue, lake: Path):
    path = bad(lake)
    path.unlink()
    path.mkdir()
    assert queue.get("good-1")
