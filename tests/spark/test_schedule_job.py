"""Tables become messages."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
import redis
from click.testing import CliRunner
from delayq.cli import main
from pyspark.sql import SparkSession

import delayq.spark
from delayq import Queue
from delayq.errors import InvalidInput, RowRefused
from delayq.spark import session
from delayq.spark.jobs.preview import preview
from delayq.spark.jobs.schedule import schedule
from delayq.spark.jobs.tables import read_table
from delayq.spark.redis_options import RedisOptions
from delayq.spark.writing.sink import Summary
from tests.harness.servers import RedisServer
from tests.harness.spark.kept import assert_whole

DUE = dt.datetime(2030, 1, 1, 12, tzinfo=dt.UTC)
T = int(DUE.timestamp())
MAP = {"payload": "struct(to, n)", "due_at": "timestamp_seconds(t)", "id": "concat('row-', n)"}


@pytest.fixture
def server(redis_server: RedisServer) -> RedisOptions:
    return RedisOptions(redis_server.url)


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("emails", url=redis_server.url, shards=2) as queue:
        queue.pause()
        yield queue


def write(folder: Path, kind: str, rows: list[dict[str, Any]]) -> str:
    """Write a table in one of the formats; return its path."""
    path = folder / f"table.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "csv":
        path.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def people(count: int) -> list[dict[str, Any]]:
    return [{"to": f"u{n}", "n": n, "t": T + 60 * n} for n in range(count)]


@pytest.mark.parametrize(("kind", "options"), [("parquet", {}), ("csv", {"inferSchema": "true"}), ("jsonl", {})])
def test_rows_of_a_file_are_sent_as_mapped(
    spark: SparkSession, server: RedisOptions, queue: Queue, tmp_path: Path, kind: str, options: dict[str, str]
):
    path = write(tmp_path, kind, people(3))
    assert schedule(spark, path, server, "emails", MAP, options=options) == Summary(sent=3)
    found = {info.id: (info.payload, info.due_at) for info in queue.peek("pending", 10)}
    assert found == {f"row-{n}": ({"to": f"u{n}", "n": n}, DUE + dt.timedelta(minutes=n)) for n in range(3)}
    assert schedule(spark, path, server, "emails", MAP, options=options) == Summary(existing=3)
    assert_whole(queue)


def test_session_table_and_dataframe_can_be_sent(spark: SparkSession, server: RedisOptions, queue: Queue):
    table = spark.sql("SELECT 'x' AS payload, 'a' AS id, map('h', '1') AS headers, 5 AS max_retries")
    table.createOrReplaceTempView("greetings")
    assert schedule(spark, "greetings", server, "emails", table_format="table", delay=60).sent == 1
    info = queue.get("a")
    assert info is not None
    assert (info.payload, info.headers, info.max_retries) == ("x", {"h": "1"}, 5)
    assert schedule(spark, table, server, "emails", {"payload": "'y'", "delay": "0.5"}).sent == 1


def test_named_run_sends_rows_without_ids_once(spark: SparkSession, server: RedisOptions, queue: Queue, tmp_path: Path):
    path = write(tmp_path, "jsonl", [{"payload": "same"}] * 20)
    sends = [schedule(spark, path, server, "emails", delay=3600, run=run) for run in ("march", "march", "april")]
    assert sends == [Summary(sent=20), Summary(existing=20), Summary(sent=20)]
    assert queue.stats().pending == 40


def test_unsendable_rows_are_rejected(spark: SparkSession, server: RedisOptions, tmp_path: Path):
    path = write(tmp_path, "jsonl", [*people(4), {"to": "nobody", "n": 9, "t": None}, {"to": "x", "n": None, "t": T}])
    rejects = str(tmp_path / "rejects")
    columns = MAP | {"id": "coalesce(concat('row-', n), '')"}
    assert schedule(spark, path, server, "emails", columns, rejects=rejects) == Summary(sent=4, rejected=2)
    found = {row["id"]: row["reason"] for row in spark.read.parquet(rejects).collect()}
    assert found.keys() == {"row-9", ""}
    assert "due_at" in found["row-9"]
    with pytest.raises(RowRefused, match=r"row \d .*cannot be sent: .*To put such rows aside: rejects=FOLDER$"):
        schedule(spark, path, server, "emails", columns)


def test_preview_counts_and_changes_nothing(
    spark: SparkSession, server: RedisOptions, redis_client: redis.Redis, tmp_path: Path
):
    rows = [
        *people(90),
        *[{"to": "nobody", "n": n, "t": None} for n in range(100, 103)],
        people(1)[0] | {"t": T * 1000},
    ]
    before = redis_client.dbsize()
    report = preview(spark, write(tmp_path, "jsonl", rows), server, "emails", MAP)
    assert (report.sendable, report.refused, list(report.reasons.values())) == (90, 4, [3, 1])
    assert "divide by 1000" in list(report.reasons)[1]
    assert (report.earliest, report.latest) == (DUE, DUE + dt.timedelta(minutes=89))
    assert report.hours == {DUE: 60, DUE + dt.timedelta(hours=1): 30}
    assert redis_client.dbsize() == before


@pytest.mark.parametrize("job", [schedule, preview])
def test_empty_table_is_not_an_error(spark: SparkSession, server: RedisOptions, queue: Queue, job: Any):
    empty = spark.createDataFrame([], "payload string, due_at timestamp")
    report = job(spark, empty, server, "emails")
    assert (getattr(report, "sent", 0), getattr(report, "sendable", 0)) == (0, 0)
    assert queue.stats().sent == 0


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"payload": "struct(too)"}, r"the expression for payload 'struct\(too\)'.*The table has to, at, day, t"),
        ({"payload": "struct(to"}, r"the expression for payload 'struct\(to'"),
        ({"body": "to"}, "a message has no column 'body': map one of payload, due_at"),
        ({"payload": "to"}, "no column due_at or delay"),
        ({"payload": "to", "due_at": "at"}, r"'due_at' is timestamp_ntz, which has no time zone.*concat\(at, "),
        ({"payload": "to", "due_at": "day"}, r"'due_at' is date, which has no time zone"),
        ({"payload": "to", "due_at": "to"}, r"'due_at' is a string.*to_timestamp\(to\)"),
        ({"payload": "to", "due_at": "t"}, r"'due_at' is bigint.*timestamp_seconds\(t\)"),
        ({"payload": "to", "delay": "1", "id": "t"}, "'id' is bigint: make it a string"),
        ({}, "unknown column 'to'; expected one of payload"),
    ],
)
def test_invalid_mapping_is_refused_with_the_remedy(
    spark: SparkSession, server: RedisOptions, queue: Queue, columns: dict[str, str], why: str
):
    table = spark.sql("SELECT 'a' AS to, TIMESTAMP_NTZ '2030-01-01 12:00' AS at, DATE '2030-01-01' AS day, 1L AS t")
    with pytest.raises(InvalidInput, match=why):
        schedule(spark, table, server, "emails", columns)
    assert queue.stats().sent == 0


@pytest.mark.by_lot(3)
@pytest.mark.parametrize(
    ("kind", "value", "due"),
    [
        ("TIMESTAMP_NTZ", "2030-01-01 12:00", "2030-01-01T11:00Z"),
        ("DATE", "2030-01-01", "2030-01-01T08:00Z"),
        ("STRING", "2030-01-01 12:00:00+02:00", "2030-01-01T10:00Z"),
    ],
)
@pytest.mark.parametrize("columns", [{}, {"payload": "payload", "due_at": "due_at"}])
def test_remedy_for_a_time_without_a_zone_works_in_every_session_zone(
    spark: SparkSession, server: RedisOptions, queue: Queue, kind: str, value: str, due: str, columns: dict[str, str]
):
    table = spark.sql(f"SELECT 'x' AS payload, CAST('{value}' AS {kind}) AS due_at")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with pytest.raises(InvalidInput, match="column 'due_at' is") as refusal:
            schedule(spark, table, server, "emails", columns)
        followed = dict(re.findall(r'(\w+)="(.*?)"', str(refusal.value)))
        assert schedule(spark, table, server, "emails", followed).sent == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    (info,) = queue.peek("pending")
    assert info.due_at == dt.datetime.fromisoformat(due)


@pytest.mark.parametrize(
    ("place", "table_format", "why"),
    [
        ("nowhere.parquet", None, r"the table '.*nowhere.parquet'"),
        ("nowhere", "table", "the table 'nowhere'"),
        ("people", None, "the format of table 'people' is not clear from its name"),
        ("people", "xlsx", "the table 'people'"),
    ],
)
def test_missing_table_is_refused(spark: SparkSession, place: str, table_format: str | None, why: str):
    with pytest.raises(InvalidInput, match=why):
        read_table(spark, place, table_format)


def test_two_times_for_a_row_are_refused(spark: SparkSession, server: RedisOptions):
    table = spark.sql("SELECT 'a' AS payload, current_timestamp() AS due_at")
    with pytest.raises(InvalidInput, match="the delay 5 and a column due_at were given"):
        schedule(spark, table, server, "emails", delay=5)


def test_first_line_of_csv_names_the_columns_by_default(spark: SparkSession, tmp_path: Path):
    path = write(tmp_path, "csv", people(2))
    tables = [read_table(spark, path, "csv", options) for options in ({}, {"Header": "false"})]
    assert [(table.columns, table.count()) for table in tables] == [(["to", "n", "t"], 2), (["_c0", "_c1", "_c2"], 3)]


def test_compressed_files_are_recognised_by_name(spark: SparkSession, tmp_path: Path):
    spark.range(3).write.option("compression", "gzip").json(str(tmp_path / "table"))
    (file,) = [path for path in (tmp_path / "table").glob("*.json.gz") if path.stat().st_size > 30]
    assert read_table(spark, str(file)).count() > 0


@pytest.mark.usefixtures("spark")
def test_command_previews_and_sends(queue: Queue, redis_server: RedisServer, tmp_path: Path):
    path = write(tmp_path, "jsonl", [*people(3), {"to": "nobody", "n": 7, "t": None}])
    command = ["pipeline", "schedule", "emails", path]
    for name, expression in MAP.items():
        command += ["--map", f"{name}={expression}"]
    invoke = CliRunner(env={"DELAYQ_URL": redis_server.url, "TZ": "UTC"}).invoke
    tried = invoke(main, [*command, "--dry-run"])
    assert tried.exit_code == 0, tried.output
    first, reason, due, _, hour = tried.stdout.splitlines()
    assert first == "would send 3 messages; cannot send 1"
    assert "1 × due_at is null" in reason
    assert due.startswith("due from 2030-01-01")
    assert hour.split()[:3] == ["2030-01-01", "12:00", "3"]
    assert json.loads(invoke(main, [*command, "--dry-run", "--json"]).stdout)["hours"] == {DUE.isoformat(): 3}
    failed = invoke(main, command)
    assert (failed.exit_code, "cannot be sent" in failed.stderr) == (1, True)
    assert failed.stderr.endswith("To put such rows aside: --rejects FOLDER\n")
    done = invoke(main, [*command, "--rejects", str(tmp_path / "rejects"), "--json"])
    document = json.loads(done.stdout)
    assert (done.exit_code, document["sent"] + document["existing"], document["rejected"]) == (1, 3, 1)
    assert queue.stats().pending == 3
    wrong = invoke(main, ["pipeline", "schedule", "emails", path, "--map", "payload=nothing"])
    assert (wrong.exit_code, "The table has n, t, to" in wrong.stderr) == (2, True)


def test_another_thread_gets_the_existing_session_with_its_settings(
    spark: SparkSession, queue: Queue, redis_server: RedisServer, tmp_path: Path
):
    path = write(tmp_path, "jsonl", people(1))
    found: list[Any] = []

    def elsewhere() -> None:
        found.append(session().conf.get("spark.sql.session.timeZone"))
        options = ["--url", redis_server.url, "--map", "payload=to", "--delay", "60"]
        found.append(CliRunner().invoke(main, ["pipeline", "schedule", "emails", path, *options]).exit_code)

    zone, partitions = (str(spark.conf.get(f"spark.sql.{name}")) for name in ("session.timeZone", "shuffle.partitions"))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert found == ["Asia/Tokyo", 0]
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert spark.conf.get("spark.sql.shuffle.partitions") == partitions
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert spark.range(1).count() == 1
    assert queue.stats().pending == 1


def test_older_spark_is_refused_with_its_version(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pyspark, "__version__", "3.5.1")
    with pytest.raises(ImportError, match=r"needs PySpark 4\.0 or newer, but this is PySpark 3\.5\.1: pip install"):
        importlib.reload(delayq.spark)
