"""Changes in a lake are looked up by hour, however many there are: an object store lists a thousand per call."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from delayq import Outgoing, Queue
from delayq.lake import load as loading
from delayq.lake import object_store, queue_folder
from tests.harness.lake.lakes import DAY, HOUR, Clock, counted, far_queue, load
from tests.harness.lake.unreplacing import Unreplacing
from tests.harness.servers import RedisServer

FILES, CANCELS = 6, 40


class Counting(Unreplacing):
    """The local files.

    Attributes:
        told: how many changes each look at a folder has returned.
    """

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[int] = []

    def get_file_info_selector(self, selector: fs.FileSelector) -> Any:
        found = super().get_file_info_selector(selector)
        self.listed.append(sum(info.extension == "json" and "_manifest" not in info.path for info in found))
        return found


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    handler = Counting()
    for module in (object_store, queue_folder):
        monkeypatch.setattr(module, "place", lambda path: (fs.PyFileSystem(handler), path))
    return handler


@pytest.fixture
def queue(redis_server: RedisServer, lake: Path, clock: Clock, counting: Counting) -> Iterator[Queue]:
    """A queue with an hour of several files; many of its messages are cancelled."""
    with far_queue(redis_server.url, lake, clock) as queue:
        for part in range(FILES):
            queue.send_many([Outgoing(n, delay=DAY + n, id=f"{part}-{n}") for n in range(10)])
        assert [queue.cancel(f"{n // 10}-{n % 10}") for n in range(CANCELS)] == ["cancelled"] * CANCELS
        counting.listed.clear()
        yield queue


def test_load_looks_for_changes_once_per_hour_of_messages(
    queue: Queue, lake: Path, clock: Clock, counting: Counting, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loading, "SNAPSHOT_SECONDS", math.inf)  # a machine may pause
    clock.later(DAY)
    assert counted(load(queue, lake), "sent", "cancelled") == (FILES * 10 - CANCELS, CANCELS)
    assert [each for each in counting.listed if each] == [CANCELS, CANCELS]  # once for all hours, and once for this one


def test_change_of_a_message_whose_id_has_its_hour_reads_no_other_change(queue: Queue, counting: Counting):
    queue.cancel(queue.send("x", delay=DAY + 60).id)
    assert len(counting.listed) > 0
    assert sum(counting.listed) == 0


def test_cancel_after_the_look_up_is_kept_by_redis_and_reported_by_the_next_load(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    look, waiting = queue_folder.QueueFolder.changes, [f"{part}-9" for part in range(4, FILES)]

    def late(*args: Any) -> Any:
        found = look(*args)
        while waiting:
            assert queue.cancel(waiting.pop()) == "cancelled"
        return found

    monkeypatch.setattr(queue_folder.QueueFolder, "changes", late)
    clock.later(DAY - HOUR)
    load(queue, lake)
    load(queue, lake)
    assert load(queue, lake) == []
    assert queue.stats().sent == FILES * 10 - CANCELS - 2
