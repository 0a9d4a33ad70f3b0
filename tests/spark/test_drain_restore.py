"""Whole queues to Parquet and back."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from delayq.cli import main
from pyspark.sql import SparkSession

from delayq import Outgoing, Queue
from delayq.errors import InvalidInput, LakeMismatch, PipelineError, ServerOutOfMemory
from delayq.model.progress import Progress
from delayq.model.units import timestamp_ms
from delayq.operations import backup
from delayq.spark.jobs import drain as draining
from delayq.spark.jobs import manifest
from delayq.spark.jobs.drain import Drained, discard_drained, drain
from delayq.spark.jobs.restore import kept as kept_row
from delayq.spark.jobs.restore import restore
from delayq.spark.redis_options import RedisOptions
from tests.harness.servers import RedisServer
from tests.harness.spark.kept import assert_whole, fill, stored


@pytest.fixture
def server(redis_server: RedisServer) -> RedisOptions:
    return RedisOptions(redis_server.url)


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("emails", url=redis_server.url) as queue:
        yield queue


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "emails")


def files(folder: str) -> list[Path]:
    return sorted(Path(folder, "messages").glob("*.parquet"))


def rows(folder: str) -> list[dict[str, Any]]:
    """What a reader other than Spark finds."""
    return [row for file in files(folder) for row in pq.ParquetFile(file).read().to_pylist()]


def test_restored_queue_is_the_same_with_other_server_shards_and_name(
    spark: SparkSession, server: RedisOptions, redis_server: RedisServer, own_server: RedisServer, folder: str
):
    with Queue("emails", url=redis_server.url, shards=2) as queue:
        fill(queue)
        before = stored(queue)
        report = drain(spark, server, "emails", folder)
        assert stored(queue) == before
    assert report.manifest.rows == {"pending": 25, "ready": 4, "retry": 4, "dead": 7}
    assert (report.manifest.shards, str(report.manifest.server)[:3]) == (2, redis_server.version)
    assert {row["id"] for row in rows(folder)} == set(before)
    done = restore(spark, folder, RedisOptions(own_server.url), "letters", shards=3)
    assert (done.restored, done.existing) == (40, 0)
    with Queue("letters", url=own_server.url, shards=None) as there:
        assert stored(there) == before
        assert len(there._context.shards) == 3
        assert there.stats().paused_since is not None
        assert_whole(there)


def test_drain_with_remove_leaves_nothing_and_restored_messages_are_handled_as_before(
    spark: SparkSession, server: RedisOptions, queue: Queue, folder: str
):
    queue.send({"a": 1}, id="failed", max_retries=1, headers={"h": b"\xff"})
    queue.receive()[0].nack(delay=0, error="broken")
    queue.send(b"\x00raw", id="fresh")
    queue.schedules.add("nightly", "@daily", 1)
    queue.pause()
    report = drain(spark, server, "emails", folder, remove=True)
    assert (report.removed, report.left) == (3, 0)
    assert queue.schedules.list() == []
    assert stored(queue) == {}
    restore(spark, folder, server, resume=True)
    assert [each.name for each in queue.schedules.list()] == ["nightly"]
    taken = {message.id: message for message in queue.receive(10)}
    assert (taken["fresh"].payload, taken["fresh"].attempt) == (b"\x00raw", 1)
    failed = taken["failed"]
    assert (failed.payload, failed.attempt, failed.headers, failed.is_last) == ({"a": 1}, 2, {"h": b"\xff"}, True)
    for message in taken.values():
        message.ack()
    assert (queue.stats().pending, queue.stats().inside) == (1, 1)  # the next occurrence of the schedule
    assert_whole(queue)


def test_schedules_and_limits_are_restored_too(
    spark: SparkSession, redis_server: RedisServer, server: RedisOptions, folder: str
):
    with Queue("emails", url=redis_server.url) as queue:
        queue.configure(rate="100/s", concurrency=5, events=1000, max_retries=0, backoff="fixed:9s")
        for number in range(8):
            queue.schedules.add(f"s{number}", "@daily", {"n": number}, timezone="Europe/Berlin", headers={"h": "x"})
        queue.schedules.pause("s0")
        queue.pause()
        before = queue.schedules.list()
        report = drain(spark, server, "emails", folder)
    assert report.manifest.schedules == 8
    restore(spark, folder, server, "same")
    with Queue("same", url=redis_server.url) as same:
        assert same.configuration() == report.manifest.configuration
        assert same.schedules.list() == [msgspec.structs.replace(each, queue="same") for each in before]
        assert_whole(same)
    with pytest.raises(InvalidInput, match="takes no rate, concurrency or length"):
        restore(spark, folder, server, "spread", shards=3)
    assert restore(spark, folder, server, "spread").schedules == 8


def test_restored_occurrences_have_ids_of_their_new_shards(
    spark: SparkSession, redis_server: RedisServer, server: RedisOptions, folder: str
):
    with Queue("emails", url=redis_server.url) as queue:
        for number in range(8):
            queue.schedules.add(f"s{number}", "@daily", number, headers={"h": "x"})
        queue.pause()
        before = {each.next_id: each.next_at for each in queue.schedules.list()}
        slots = {(each.schedule, each.slot) for each in queue.peek("pending", 100)}
        drain(spark, server, "emails", folder)
    restore(spark, folder, server, "spread", shards=5)
    with Queue("spread", url=redis_server.url, shards=5) as spread:
        after = {each.next_id: each.next_at for each in spread.schedules.list()}
        assert Counter(after.values()) == Counter(before.values())
        assert after.keys() != before.keys()
        assert {each.id for each in spread.peek("pending", 100)} == after.keys()
        assert {(each.schedule, each.slot) for each in spread.peek("pending", 100)} == slots
        assert [each.headers for each in spread.peek("pending", 100)] == [{"h": "x"}] * 8
        assert spread.schedules.remove("s3")
        assert spread.stats().pending == 7
        assert_whole(spread)


def test_interrupted_restore_is_completed_by_the_next(
    spark: SparkSession, server: RedisOptions, queue: Queue, own_server: RedisServer, folder: str
):
    queue.send_many([Outgoing(bytes(6000), id=f"m{n}", delay=3600) for n in range(600)])
    queue.pause()
    drain(spark, server, "emails", folder)
    with own_server.client() as admin, Queue("emails", url=own_server.url, shards=None) as there:
        admin.config_set("maxmemory", admin.info("memory")["used_memory"] + 2_200_000)
        with pytest.raises(ServerOutOfMemory, match=r"; \d+ messages of this task are restored: a second run"):
            restore(spark, folder, RedisOptions(own_server.url))
        assert 0 < there.stats().pending < 600
        admin.config_set("maxmemory", 0)
        done = restore(spark, folder, RedisOptions(own_server.url))
        assert done.existing > 0
        assert done.restored + done.existing == 600
        assert stored(there) == stored(queue)
        assert_whole(there)
        again = restore(spark, folder, RedisOptions(own_server.url), resume=True)
        assert (again.restored, again.existing) == (0, 600)
        assert there.stats().sent == 600
        assert there.stats().paused_since is None


def test_drained_messages_are_removed_unless_they_have_changed(
    spark: SparkSession, server: RedisOptions, queue: Queue, folder: str
):
    fill(queue)
    drain(spark, server, "emails", folder)
    queue.send("new", id="raw-0", delay=3600, on_conflict="replace")
    queue.reschedule("raw-1", delay=60)
    queue.dead.requeue("json-04")
    assert discard_drained(spark, server, "emails", folder) == (37, 3)
    assert set(stored(queue)) == {"raw-0", "raw-1", "json-04"}
    assert queue.stats().purged == 37
    assert_whole(queue)


def test_schedule_edited_since_the_drain_is_kept(queue: Queue):
    queue.schedules.add("s", "@daily", "old")
    (kept,) = queue.execute(backup.schedules)
    queue.schedules.add("s", "@daily", "new")
    assert queue.execute(backup.discard_schedule, kept) is False
    assert [each.payload for each in queue.schedules.list()] == ["new"]


def test_unacked_messages_drained_live_are_restored_as_lost_deliveries(
    spark: SparkSession, server: RedisOptions, queue: Queue, folder: str
):
    queue.send("x", id="a")
    queue.send("y", id="b")
    lease_ends = {message.id: message.lease_until for message in queue.receive(2)}
    queue.cancel("b")
    report = drain(spark, server, "emails", folder, live=True)
    assert (report.manifest.live, report.manifest.rows) == (True, {"unack": 2})
    assert restore(spark, folder, server, "again").restored == 1
    with Queue("again", url=queue_url(queue)) as again:
        (info,) = again.peek("retry")
        assert (info.id, info.attempts) == ("a", 1)
        assert info.due_at is not None
        assert abs((info.due_at - lease_ends["a"]).total_seconds()) < 0.001
        assert_whole(again)


def queue_url(queue: Queue) -> str:
    pool: Any = queue._executor.client
    return f"unix://{pool.connection_pool.connection_kwargs['path']}"


def unpaused(queue: Queue) -> None:
    queue.send("x")


def handed_out(queue: Queue) -> None:
    queue.send("x")
    queue.receive()
    queue.pause()


def holding(queue: Queue) -> None:
    queue.send_group([Outgoing("member", delay=60)], Outgoing("then"))
    queue.pause()


def unknown(queue: Queue) -> None:
    assert queue.stats().inside == 0


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (unpaused, "emails is not paused.*delayq pause emails"),
        (handed_out, "queue emails has 1 running message: .*live"),
        (holding, "has 1 held message, and the files keep no groups"),
        (unknown, "no queue 'emails'"),
    ],
)
def test_queue_that_cannot_be_drained_consistently_is_refused(
    spark: SparkSession, server: RedisOptions, queue: Queue, folder: str, prepare: Callable[[Queue], None], why: str
):
    prepare(queue)
    with pytest.raises(InvalidInput, match=why):
        drain(spark, server, "emails", folder)
    assert not Path(folder).exists()


def test_live_drain_cannot_remove_messages(spark: SparkSession, server: RedisOptions, folder: str):
    with pytest.raises(InvalidInput, match="live and remove"):
        drain(spark, server, "emails", folder, live=True, remove=True)


def drained(spark: SparkSession, server: RedisOptions, queue: Queue, folder: str, count: int = 3) -> Drained:
    queue.send_many([Outgoing(n, id=f"m{n}", delay=3600) for n in range(count)])
    queue.pause()
    return drain(spark, server, "emails", folder)


def test_empty_queue_can_be_drained_and_restored(spark: SparkSession, server: RedisOptions, queue: Queue, folder: str):
    report = drained(spark, server, queue, folder, 0)
    assert (report.manifest.rows, report.manifest.checksum) == ({}, "0")
    assert restore(spark, folder, server, "again").restored == 0


def test_folder_with_foreign_files_is_left_unchanged(
    spark: SparkSession, server: RedisOptions, queue: Queue, folder: str
):
    queue.send("x")
    queue.pause()
    theirs = Path(folder, "messages", "draft.txt")
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    with pytest.raises(InvalidInput, match="holds files of something else"):
        drain(spark, server, "emails", folder)
    assert theirs.read_text() == "mine"


def test_queue_that_changes_while_it_is_read_is_not_drained(
    spark: SparkSession, server: RedisOptions, queue: Queue, folder: str, monkeypatch: pytest.MonkeyPatch
):
    def measured(messages: Any) -> manifest.MessageChecksum:
        queue.send("another", delay=3600)
        return manifest.measure(messages)

    monkeypatch.setattr(draining, "measure", measured)
    with pytest.raises(PipelineError, match="changed each of the 3 times"):
        drained(spark, server, queue, folder)
    assert not manifest.is_written(folder)


def without_one(table: pa.Table) -> pa.Table:
    return table.slice(1)


def an_hour_later(table: pa.Table) -> pa.Table:
    later = pc.add(table["due_at"], dt.timedelta(hours=1))
    return table.set_column(table.column_names.index("due_at"), "due_at", later)


def test_changed_files_are_not_restored(
    spark: SparkSession, server: RedisOptions, queue: Queue, redis_server: RedisServer, folder: str
):
    drained(spark, server, queue, folder)
    first = files(folder)[0]
    table = pq.ParquetFile(first).read()
    for changed, left in ((without_one(table), 2), (an_hour_later(table), 3)):
        pq.write_table(changed, first, use_deprecated_int96_timestamps=True)  # as Spark writes
        first.with_name(f".{first.name}.crc").unlink(missing_ok=True)
        with pytest.raises(LakeMismatch, match=rf"{left} messages.*its manifest says 3"):
            restore(spark, folder, server, "again")
    with redis_server.client() as client:
        assert client.keys("*again*") == []


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        (None, InvalidInput, "holds no drained queue"),
        ('{"version": 2}', InvalidInput, "version 2.*up to 1"),
        ("[]", LakeMismatch, "is not a manifest"),
        ('{"version": 1}', LakeMismatch, "is not a manifest"),
    ],
)
def test_folder_without_a_readable_manifest_is_refused(
    spark: SparkSession, server: RedisOptions, tmp_path: Path, text: str | None, error: type[Exception], why: str
):
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(error, match=why):
        restore(spark, str(tmp_path), server)


def test_queue_that_holds_other_messages_is_left_alone(
    spark: SparkSession, server: RedisOptions, queue: Queue, folder: str
):
    drained(spark, server, queue, folder)
    queue.send("new", id="m1", delay=60, on_conflict="replace")
    queue.resume()
    with pytest.raises(InvalidInput, match="not among the drained ones, such as m1"):
        restore(spark, folder, server)
    assert queue.stats().paused_since is None
    assert queue.stats().inside == 3


def test_checksum_does_not_depend_on_the_order_of_messages(spark: SparkSession):
    schema = "id string, state string, due_at timestamp, lease_until timestamp, died_at timestamp, envelope binary"
    noon, later = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC), dt.datetime(2026, 5, 1, 12, 0, 0, 1000, tzinfo=dt.UTC)
    ab = [
        ("a", "dead", None, None, noon, b"\x00"),
        ("b", "unack", noon, later, None, b"x"),
        ("c", "ready", noon, None, None, None),
    ]
    one, other = (manifest.measure(spark.createDataFrame(some, schema)) for some in (ab, ab[::-1]))
    assert one == other
    assert one.rows == {"dead": 1, "unack": 1, "ready": 1}
    contents = (b"a\0%d\0\0" % timestamp_ms(noon), b"b\0%d\0x" % timestamp_ms(later), b"c\0%d\0" % timestamp_ms(noon))
    assert one.checksum == f"{sum(int(hashlib.sha256(each).hexdigest()[:16], 16) for each in contents):x}"


def test_restore_makes_bounded_calls(queue: Queue):
    row = dict.fromkeys(("due_at", "lease_until", "died_at", "deliveries", "error", "reason"))
    row |= {"created_at": None, "state": "dead", "envelope": bytes(1_500_000)}
    queue.send("x", id="there", delay=60)
    died = queue.get("there").due_at  # type: ignore[union-attr]  # it is there
    messages = [kept_row(row | {"id": f"m{n}", "died_at": died}) for n in range(5)]
    assert queue.execute(backup.restore, messages, Progress("")) == [True] * 5
    assert queue.stats().dead == 5


def test_commands_drain_and_restore(spark: SparkSession, queue: Queue, redis_server: RedisServer, folder: str):
    queue.send("x", delay=60)
    queue.pause()
    invoke = CliRunner(env={"DELAYQ_URL": redis_server.url}).invoke
    done = invoke(main, ["pipeline", "drain", "emails", folder])
    assert (done.exit_code, done.stdout) == (0, f"wrote 1 message and 0 schedules of emails to {folder} (1 pending)\n")
    again = invoke(main, ["pipeline", "drain", "emails", folder])
    assert again.exit_code == 2
    assert "already holds a drained queue" in again.stderr
    done = invoke(main, ["pipeline", "restore", folder, "--queue", "other", "--json"])
    assert json.loads(done.stdout) == {"folder": folder, "queue": "other", "restored": 1, "existing": 0, "schedules": 0}
    assert spark.range(1).count() == 1  # the session is still there
