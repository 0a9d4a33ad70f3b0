"""Loads: each message is sent once, wherever a load is killed, however often, and whatever happened meanwhile."""

from __future__ import annotations

import contextlib
import multiprocessing
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from delayq import InvalidInput, Outgoing, Queue, QueueFull
from delayq.errors import LakeMismatch, ServerOutOfMemory
from delayq.lake import layout
from delayq.lake import load as loading
from delayq.lake.deferred_messages import RESERVE_MS
from delayq.lake.hydrate import hydrate
from delayq.lake.layout import DeferredRow, Loaded
from delayq.lake.load import LoadTask
from delayq.lake.queue_folder import QueueFolder
from delayq.operations.encode import encode_one
from tests.harness.lake import hydrate_and_die
from tests.harness.lake.hydrate_and_die import DIED
from tests.harness.lake.lakes import DAY, HOUR, Clock, counted, delivered, far_queue, files, load
from tests.harness.servers import RedisServer

HOURS, EACH = 3, 10

# Its processes have imported everything already, which takes a second each time.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([hydrate_and_die.__name__])


@pytest.fixture
def queue(redis_server: RedisServer, lake: Path, clock: Clock) -> Iterator[Queue]:
    with far_queue(redis_server.url, lake, clock) as opened:
        yield opened


def fill(queue: Queue) -> set[str]:
    """Put messages into three hours of the next day, two files per hour, and return their ids."""
    sent = []
    for half in range(2):
        messages = [
            Outgoing(number, delay=DAY + hour * HOUR + number, id=f"{hour}-{half}-{number}")
            for hour in range(HOURS)
            for number in range(EACH)
        ]
        sent += queue.send_many(messages)
    return {each.id for each in sent}


def killed(server: RedisServer, lake: Path, clock: Clock, step: str, times: int) -> int | None:
    """Load in a process that dies, and return its exit code."""
    process = FORKS.Process(target=hydrate_and_die.main, args=(server.url, lake, clock.ms, step, times))
    process.start()
    process.join(250)
    return process.exitcode


# Each pair is the step at which the load dies, and how often this step succeeds before.
KILLS = [
    ("list", 0),
    ("know", 1),
    ("write", 0),
    ("write", 1),
    ("read", 0),
    ("send", 0),
    ("send", 1),
    ("look", 2),
    ("send", 10),
    ("write", 3),
    ("know", 4),
    ("write", 5),
    ("remove", 0),
    ("remove", 3),
]


@pytest.mark.full
def test_load_killed_at_each_step_in_turn_sends_each_message_once(
    queue: Queue, redis_server: RedisServer, lake: Path, clock: Clock
):
    """Between two kills, available messages are delivered and acked."""
    ids = fill(queue)
    clock.later(DAY + HOURS * HOUR)
    came: Counter[str] = Counter()
    for step, times in KILLS[:-2]:
        assert killed(redis_server, lake, clock, step, times) == DIED, (step, times)
        came.update(each.id for each in delivered(queue))
        clock.later(60)
    load(queue, lake)
    came.update(each.id for each in delivered(queue))
    assert came == Counter(ids)
    clock.later(DAY)
    for step, times in KILLS[-2:]:
        assert killed(redis_server, lake, clock, step, times) == DIED, (step, times)
    assert load(queue, lake, keep=0) == []
    assert (delivered(queue), files(lake)) == ([], [])
    assert (queue.stats().sent, queue.stats().missing) == (len(ids), 0)


@pytest.mark.parametrize(("step", "times"), [("send", 3), ("write", 4)])
def test_load_after_a_kill_completes_it_and_its_manifest_accounts_for_every_row(
    queue: Queue, redis_server: RedisServer, lake: Path, clock: Clock, step: str, times: int
):
    ids = fill(queue)
    clock.later(DAY + HOURS * HOUR)
    assert killed(redis_server, lake, clock, step, times) == DIED
    there = queue.stats().sent
    done = load(queue, lake)
    assert counted(done, "sent") == (len(ids) - there,)
    folder = QueueFolder(str(lake), "jobs")
    for hour in folder.hours():
        manifest = folder.manifest(hour.name)
        assert manifest is not None
        assert (manifest.state, manifest.loading) == ("loaded", [])
        assert {each.file for each in manifest.loaded} == hour.files.keys()
        assert all(each.rows == each.sent + each.existing for each in manifest.loaded)


def test_hour_is_loaded_when_it_begins_within_the_horizon_and_not_before(queue: Queue, lake: Path, clock: Clock):
    fill(queue)
    clock.later(DAY - 2 * HOUR - 1)
    assert load(queue, lake) == []
    clock.later(1)
    assert counted(load(queue, lake), "rows", "sent") == (2 * EACH, 2 * EACH)
    clock.later(HOUR)
    assert counted(load(queue, lake), "rows", "sent") == (2 * EACH, 2 * EACH)


def test_only_rows_added_to_a_loaded_hour_are_loaded(queue: Queue, lake: Path, clock: Clock):
    fill(queue)
    clock.later(DAY)
    load(queue, lake)
    folder = QueueFolder(str(lake), "jobs")
    first = folder.hours()[0]
    file = next(iter(first.files.values()))
    rows = folder.read(first.name, file).slice(0, 3)
    folder.write(first.name, "late", rows.set_column(0, "id", [["l1", "l2", "l3"]]))
    assert counted(load(queue, lake), "rows", "sent") == (3, 3)
    assert load(queue, lake) == []


def test_altered_file_is_reported_and_all_others_are_loaded(queue: Queue, lake: Path, clock: Clock):
    fill(queue)
    clock.later(DAY)
    changed = files(lake)[0]
    data = changed.read_bytes()
    changed.write_bytes(data.replace(b"PAR1", b"PAR2"))
    with pytest.raises(LakeMismatch, match="does not match its checksum: restore it from a backup"):
        load(queue, lake)
    assert queue.stats().sent == 5 * EACH
    changed.write_bytes(data)
    assert counted(load(queue, lake), "rows", "sent") == (EACH, EACH)


def test_file_missing_since_its_load_began_is_reported_by_every_load(queue: Queue, lake: Path, clock: Clock):
    fill(queue)
    clock.later(DAY)
    with pytest.raises(ZeroDivisionError):
        load(queue, lake, load_files=lambda _: 1 / 0)
    gone = files(lake)[0]
    gone.unlink()
    for _ in range(2):
        with pytest.raises(LakeMismatch, match=f"{re.escape(gone.name)} is gone"):
            load(queue, lake)
    assert queue.stats().sent == 5 * EACH


def test_folders_of_other_programs_are_unchanged(queue: Queue, lake: Path, clock: Clock):
    fill(queue)
    for folder in ("hour=__HIVE_DEFAULT_PARTITION__", "hour=2030-01-02T24", "notes"):
        (lake / "queue=jobs" / folder).mkdir()
        (lake / "queue=jobs" / folder / "x.1.y.parquet").write_text("mine")
    clock.later(DAY)
    assert counted(load(queue, lake), "sent") == (6 * EACH,)


def test_load_interrupted_too_long_ago_is_not_repeated(queue: Queue, lake: Path, clock: Clock):
    fill(queue)
    clock.later(DAY)
    with pytest.raises(ZeroDivisionError):
        load(queue, lake, load_files=lambda _: 1 / 0)
    clock.later(3 * DAY)
    with pytest.raises(LakeMismatch, match="broke off so long ago"):
        load(queue, lake)
    assert queue.stats().sent == 0


def begun(queue: Queue, lake: Path) -> None:
    """A load that is interrupted before its manifest says what was loaded."""
    folder = QueueFolder(str(lake), "jobs")

    def load_files(tasks: Sequence[LoadTask]) -> list[Loaded]:
        for task in tasks:
            loading.load(queue, folder, task)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        load(queue, lake, load_files=load_files)


def run_again(queue: Queue, lake: Path, clock: Clock, *ids: str) -> None:
    """Let a run write these messages into the hour that begins two hours from now."""
    due = clock.ms // layout.HOUR_MS * layout.HOUR_MS + 2 * layout.HOUR_MS
    outgoing = [Outgoing(each, delay=0) for each in ids]
    rows = [
        DeferredRow(each.payload, due, 0, encode_one(queue._context, each, each.payload).envelope) for each in outgoing
    ]
    QueueFolder(str(lake), "jobs").write(layout.hour_of(due), f"R-{len(ids)}", rows)


@pytest.mark.parametrize("was_loaded", [True, False], ids=["loaded", "broken off"])
def test_late_rerun_is_reported_and_the_rest_of_the_hour_is_loaded(
    queue: Queue, lake: Path, clock: Clock, was_loaded: bool
):
    start = clock.ms
    run_again(queue, lake, clock, "a", "b")
    clock.later(HOUR)
    if was_loaded:
        load(queue, lake)
    else:
        begun(queue, lake)
    clock.later(HOUR)
    assert len(delivered(queue)) == 2
    clock.ms = start
    run_again(queue, lake, clock, "a", "b", "c")
    queue.send("x", delay=2 * HOUR + 60, id="other")
    clock.later(2 * DAY)
    for _ in range(2):
        with pytest.raises(LakeMismatch, match=r"has new files of runs .*: R-3\.3\."):
            load(queue, lake)
    assert [each.id for each in delivered(queue)] == ["other"]
    (again,) = (each for each in files(lake) if each.name.startswith("R-3"))
    again.rename(again.with_name(again.name.replace("R-3", "S-3")))
    with contextlib.nullcontext() if was_loaded else pytest.raises(LakeMismatch, match="broke off so long ago"):
        load(queue, lake)
    assert sorted(each.id for each in delivered(queue)) == ["a", "b", "c"]


def test_rerun_in_time_brings_only_new_messages(queue: Queue, lake: Path, clock: Clock):
    start = clock.ms
    run_again(queue, lake, clock, "a", "b")
    clock.later(HOUR)
    load(queue, lake)
    clock.later(HOUR)
    assert len(delivered(queue)) == 2
    clock.ms = start
    run_again(queue, lake, clock, "a", "b", "c")
    clock.later(DAY)
    assert counted(load(queue, lake), "sent", "existing") == (1, 2)
    assert [each.id for each in delivered(queue)] == ["c"]


def test_rerun_that_redis_forgets_during_a_load_is_not_sent(queue: Queue, lake: Path, clock: Clock):
    start = clock.ms
    run_again(queue, lake, clock, "a", "b")
    clock.later(HOUR)
    load(queue, lake)
    clock.later(HOUR)
    assert len(delivered(queue)) == 2
    ends = clock.ms + layout.HOUR_MS + RESERVE_MS
    clock.ms = start
    run_again(queue, lake, clock, "a", "b", "c")
    clock.ms = ends - loading.LEAST_RESERVE_MS

    def load_late(tasks: Sequence[LoadTask]) -> list[Loaded]:
        clock.ms = ends + 1
        return [loading.load(queue, QueueFolder(str(lake), "jobs"), task) for task in tasks]

    with pytest.raises(LakeMismatch, match="is so late"):
        load(queue, lake, load_files=load_late)
    assert delivered(queue) == []
    with pytest.raises(LakeMismatch, match="has new files of runs"):
        load(queue, lake)


def test_load_resumed_too_close_to_its_deadline_sends_nothing(queue: Queue, lake: Path, clock: Clock):
    """It might end only after Redis has forgotten what was sent before the interruption."""
    run_again(queue, lake, clock, "a")
    clock.later(HOUR)
    begun(queue, lake)
    clock.later(HOUR)
    assert len(delivered(queue)) == 1
    ends = clock.ms + layout.HOUR_MS + RESERVE_MS
    clock.ms = ends - loading.LEAST_RESERVE_MS + 1
    with pytest.raises(LakeMismatch, match=r"is so late .*: run it again in 10 minutes to see what can be done"):
        load(queue, lake)
    clock.ms = ends
    with pytest.raises(LakeMismatch, match="broke off so long ago"):
        load(queue, lake)
    assert delivered(queue) == []
    clock.ms = ends - loading.LEAST_RESERVE_MS
    assert counted(load(queue, lake), "sent", "existing") == (0, 1)


def test_files_are_kept_for_the_configured_time(queue: Queue, lake: Path, clock: Clock):
    fill(queue)
    clock.later(DAY + HOURS * HOUR)
    load(queue, lake, keep=2 * HOUR)
    assert len(files(lake)) == 4
    load(queue, lake, keep=None)
    assert len(files(lake)) == 4


def test_empty_or_missing_lake_has_nothing_to_load(queue: Queue, lake: Path):
    assert load(queue, lake) == []
    lake.mkdir()
    assert load(queue, lake) == []


def test_clock_that_differs_from_the_scripts_is_refused(redis_server: RedisServer, lake: Path, clock: Clock):
    with Queue("jobs", url=redis_server.url) as queue, pytest.raises(InvalidInput, match="clock"):
        hydrate(queue, str(lake), HOUR, now=clock.now)


def test_load_that_fills_the_memory_says_how_many_messages_are_stored(
    own_server: RedisServer, lake: Path, clock: Clock
):
    with far_queue(own_server.url, lake, clock) as queue, own_server.client() as client:
        queue.send_many([Outgoing("x" * 1000, delay=DAY) for _ in range(5000)])
        clock.later(DAY)
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 2_000_000)
        with pytest.raises(ServerOutOfMemory) as refused:
            load(queue, lake)
        found = re.search(
            r"; ([\d,]+) of 5,000 messages of jobs, .* are stored: the next run loads", str(refused.value)
        )
        assert found is not None, refused.value
        client.config_set("maxmemory", 0)
        assert 0 < int(found[1].replace(",", "")) == queue.stats().inside < 5000
        load(queue, lake)
        assert queue.stats().sent == 5000


def test_load_into_a_full_queue_says_so_and_the_next_run_loads_the_others(queue: Queue, lake: Path, clock: Clock):
    ids = fill(queue)
    queue.configure(max_length=7)
    clock.later(DAY + HOURS * HOUR)
    with pytest.raises(QueueFull, match=r"queue jobs is full, with max_length 7: .*: the next run loads the others"):
        load(queue, lake)
    came = Counter(each.id for each in delivered(queue))
    assert sum(came.values()) == 7
    queue.configure(max_length=None)
    load(queue, lake)
    came.update(each.id for each in delivered(queue))
    assert came == Counter(ids)
    assert (queue.stats().sent, queue.stats().missing) == (len(ids), 0)
