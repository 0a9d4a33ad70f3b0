"""A `defer` run repeated during a load: the load sends what the run wrote last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql.types import StructType

from delayq import Outgoing, Queue
from delayq.errors import LakeMismatch
from delayq.lake import layout
from delayq.lake import load as loading
from delayq.lake.doctor import examine
from delayq.lake.layout import DeferredRow, DeferRun, Loaded, Manifest
from delayq.lake.load import LoadTask
from delayq.lake.queue_folder import Hour, QueueFolder
from delayq.operations.encode import encode_one
from delayq.spark.jobs.defer import DeferWriter, TaskFiles
from delayq.spark.writing.rows import Rows
from tests.harness.lake.lakes import HOUR, Clock, counted, delivered, far_queue, files, load, manifest
from tests.harness.servers import RedisServer


@pytest.fixture
def queue(redis_server: RedisServer, lake: Path, clock: Clock) -> Iterator[Queue]:
    with far_queue(redis_server.url, lake, clock) as opened:
        yield opened


@pytest.fixture
def defer(queue: Queue, lake: Path, clock: Clock) -> Callable[..., None]:
    """Let run R put messages with these ids into the lake, due in `hours`, in place of those it put there before."""
    folder, created = QueueFolder(str(lake), queue.name), clock.ms
    columns = Rows(StructType().add("payload", "string").add("due_at", "timestamp"))

    def run(*ids: str, hours: float = 1) -> None:
        due = created + round(hours * HOUR) * 1000
        rows = [
            DeferredRow(each, due, created, encode_one(queue._context, Outgoing(each, delay=0), each).envelope)
            for each in ids
        ]
        hour = layout.hour_of(due)
        written = [f"{hour}/{folder.write(hour, 'R-0', rows).name}"] if rows else []
        begun = folder.run("R") or DeferRun("R", created)
        DeferWriter(folder, begun, columns, None, 1000).commit([TaskFiles(written, 0, 0)])

    return run


def meanwhile(patch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Let something happen once, after a load has looked at the lake."""
    waiting, look = [happens], QueueFolder.hours

    def hours(folder: QueueFolder, *names: str) -> list[Hour]:
        found = look(folder, *names)
        while waiting:
            waiting.pop()()
        return found

    patch.setattr(QueueFolder, "hours", hours)


def test_file_replaced_by_a_rerun_during_a_load_is_not_a_loss_and_the_new_one_is_loaded(
    queue: Queue, lake: Path, clock: Clock, defer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    defer("a", "b")
    (old,) = files(lake)
    meanwhile(monkeypatch, lambda: defer("a", "b", "c"))
    found = load(queue, lake)
    assert counted(found, "rows", "sent") == (3, 3)
    assert old not in files(lake)
    assert '"state":"loaded"' in manifest(old.parent).read_text()
    assert load(queue, lake) == []
    assert examine(queue, str(lake)).findings == []
    clock.later(2 * HOUR)
    assert sorted(each.id for each in delivered(queue)) == ["a", "b", "c"]


def test_hour_emptied_by_a_rerun_during_a_load_has_nothing_to_load(
    queue: Queue, lake: Path, defer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    defer("a", "b")
    (old,) = files(lake)
    meanwhile(monkeypatch, lambda: defer("a", "b", hours=20))
    assert load(queue, lake) == []
    assert '"state":"loaded"' in manifest(old.parent).read_text()
    assert examine(queue, str(lake)).findings == []
    assert queue.stats().sent == 0


def test_rerun_without_any_rows_is_not_a_loss(queue: Queue, lake: Path, clock: Clock, defer: Callable[..., None]):
    queue.send("x", delay=3 * HOUR, id="other")  # makes the load look at this hour
    defer("a", "b", hours=3)
    clock.later(2 * HOUR)
    rerun_behind(queue, lake, break_off_behind_a_send(queue, lake, "R-0"), defer, "R-0")
    assert counted(load(queue, lake), "sent") == (1,)
    assert examine(queue, str(lake)).findings == []
    clock.later(30 * HOUR)
    defer("a", "b", hours=3)
    with pytest.raises(LakeMismatch, match="broke off so long ago that Redis has forgotten"):
        load(queue, lake)


def rerun_behind(
    queue: Queue,
    lake: Path,
    break_off: Callable[[Sequence[LoadTask]], Any],
    rerun: Callable[[], None],
    writer: str = "",
) -> bytes:
    """Load until that is interrupted, let a rerun replace a writer's only file, and return what the load noted.

    The rerun looked at the lake before the load noted it.
    """
    (old,) = (path for path in files(lake) if path.name.startswith(writer))
    with pytest.raises(ZeroDivisionError):
        load(queue, lake, load_files=break_off)
    noted = manifest(old.parent).read_bytes()
    manifest(old.parent).unlink()
    rerun()
    old.with_name("_manifest@1-00000000.json").write_bytes(noted)
    return noted


def break_off_behind_a_send(queue: Queue, lake: Path, writer: str) -> Callable[[Sequence[LoadTask]], list[Loaded]]:
    """Return a load that sends the two messages of a writer's file, and is interrupted before it records that."""

    def break_off(tasks: Sequence[LoadTask]) -> list[Loaded]:
        (task,) = (each for each in tasks if each.file.startswith(writer))
        assert loading.load(queue, QueueFolder(str(lake), queue.name), task).sent == 2
        raise ZeroDivisionError

    return break_off


def test_messages_sent_from_a_replaced_file_are_not_sent_again(
    queue: Queue, lake: Path, clock: Clock, defer: Callable[..., None]
):
    defer("a", "b")
    rerun_behind(queue, lake, break_off_behind_a_send(queue, lake, "R-0"), lambda: defer("a", "b", "c"))
    clock.later(2 * HOUR)
    assert len(delivered(queue)) == 2
    assert counted(load(queue, lake), "sent", "existing") == (1, 2)
    assert [each.id for each in delivered(queue)] == ["c"]


def test_new_file_keeps_the_reservation_time_of_the_one_that_it_replaces(
    queue: Queue, lake: Path, clock: Clock, defer: Callable[..., None]
):
    defer("a", "b")
    (old,) = files(lake)
    noted = rerun_behind(queue, lake, lambda _: 1 / 0, lambda: defer("a", "b", "c"))
    clock.later(3 * HOUR)  # its hour is over: a new load would reserve its messages for longer
    with pytest.raises(ZeroDivisionError):
        load(queue, lake, load_files=lambda _: 1 / 0)
    (new,) = msgspec.json.decode(manifest(old.parent).read_bytes(), type=Manifest).loading
    (before,) = msgspec.json.decode(noted, type=Manifest).loading
    assert (new.file, new.reserved_until_ms) == (files(lake)[0].name, before.reserved_until_ms)


@pytest.mark.parametrize("back", [["a", "b"], ["a", "b", "c"]], ids=["the same rows", "others"])
def test_messages_sent_from_a_removed_file_are_not_sent_again_when_a_later_rerun_restores_it(
    queue: Queue, lake: Path, clock: Clock, defer: Callable[..., None], back: list[str]
):
    queue.send("x", delay=3 * HOUR, id="other")  # makes the load look at this hour
    defer("a", "b", hours=3)
    folder = files(lake)[0].parent
    clock.later(2 * HOUR)
    rerun_behind(queue, lake, break_off_behind_a_send(queue, lake, "R-0"), lambda: defer("c", hours=20), "R-0")
    assert counted(load(queue, lake), "sent") == (1,)
    assert '"state":"loaded"' in manifest(folder).read_text()
    assert examine(queue, str(lake)).findings == []
    clock.later(1 * HOUR)
    assert sorted(each.id for each in delivered(queue)) == ["a", "b", "other"]
    clock.later(30 * HOUR)  # Redis no longer knows what it was sent
    defer(*back, hours=3)
    for _ in range(2):
        with pytest.raises(LakeMismatch, match="broke off so long ago that Redis has forgotten"):
            load(queue, lake)
    assert "a" not in [each.id for each in delivered(queue)]


def test_new_file_that_replaces_a_forgotten_one_is_always_refused(
    queue: Queue, lake: Path, clock: Clock, defer: Callable[..., None]
):
    defer("a", "b")
    (old,) = files(lake)
    rerun_behind(queue, lake, break_off_behind_a_send(queue, lake, "R-0"), lambda: defer("a", "b", "c"))
    clock.later(2 * HOUR)
    assert len(delivered(queue)) == 2
    clock.later(30 * HOUR)
    for _ in range(2):
        with pytest.raises(LakeMismatch, match="broke off so long ago that Redis has forgotten"):
            load(queue, lake)
    (new,) = msgspec.json.decode(manifest(old.parent).read_bytes(), type=Manifest).loading
    assert [new.file] == [path.name for path in files(lake)]  # as the error says to remove it from there
    assert delivered(queue) == []


def test_missing_file_that_its_run_still_names_is_reported(
    queue: Queue, lake: Path, defer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    defer("a", "b")
    (lost,) = files(lake)
    meanwhile(monkeypatch, lost.unlink)
    with pytest.raises(LakeMismatch, match="is gone: restore it from a backup"):
        load(queue, lake)


def test_doctor_does_not_report_a_file_replaced_after_an_interrupted_load(
    queue: Queue, lake: Path, clock: Clock, defer: Callable[..., None]
):
    defer("a", "b")
    # After this, no load looks at the hour:
    rerun_behind(queue, lake, lambda _: 1 / 0, lambda: defer("a", "b", hours=60))
    assert examine(queue, str(lake)).findings == []
    clock.later(50 * HOUR)
    assert examine(queue, str(lake)).findings == []


def test_missing_file_is_reported_even_if_the_record_of_its_run_is_unreadable(
    queue: Queue, lake: Path, defer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    defer("a", "b")
    (lost,) = files(lake)
    (run,) = lake.rglob("_runs/*.json")

    def wound() -> None:
        lost.unlink()
        run.write_text("{")

    meanwhile(monkeypatch, wound)
    with pytest.raises(LakeMismatch, match=r"is gone: restore it from a backup; .* is not a valid run"):
        load(queue, lake)
