"""The commands `delayq pipeline defer` and `hydrate`, as their help shows them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from delayq.cli import main
from delayq.cli.pipeline import spark_session
from pyspark.sql import SparkSession

from delayq.spark.jobs.hydrate import TaskLoader
from delayq.spark.redis_options import RedisOptions
from tests.harness.lake.lakes import files
from tests.harness.servers import RedisServer

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(spark: SparkSession, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a command in this process and its Spark session, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELAYQ_URL", redis_server.url)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)  # the next test uses it too
    monkeypatch.setattr(spark_session, "session", lambda *_: spark)
    return lambda *words: CliRunner().invoke(main, words)


def example(invoke: Invoke, *path: str) -> list[str]:
    """Run all but the last line of a command's example; return the words of the last, with absolute file paths.

    The paths are absolute because Java was started in another folder and stays there.
    """
    shown = invoke(*path, "--help").stdout.partition("Example:\n")[2]
    *before, last = shown.strip().splitlines()
    for line in before:
        subprocess.run(line, shell=True, check=True)
    words = shlex.split(last)[1:]
    return [str(Path(word).resolve()) if Path(word).is_file() else word for word in words]


def test_examples_run_as_printed_and_report_what_they_did(invoke: Invoke, tmp_path: Path):
    deferred = invoke(*example(invoke, "pipeline", "defer"))
    assert deferred.exit_code == 0, deferred.stderr
    assert re.fullmatch(r"deferred 1 message from \S+/reminders.json to 1 hour of lake\n", deferred.stdout)
    assert deferred.stderr.startswith("run ")
    assert len(files(tmp_path / "lake")) == 1
    hydrated = invoke(*example(invoke, "pipeline", "hydrate"))
    assert hydrated.exit_code == 0, hydrated.stderr
    assert hydrated.stdout == "0 messages loaded from 0 files\n"
    result = invoke("pipeline", "hydrate", "--lake", "lake", "--horizon", "366d", "--json")
    document = json.loads(result.stdout)
    assert {name: document[name] for name in ("rows", "sent", "existing")} == {"rows": 1, "sent": 1, "existing": 0}
    (file,) = document["files"]
    assert (file["queue"], file["sent"]) == ("reminders", 1)
    assert invoke("doctor", "--lake", "lake").stdout.startswith("reminders: healthy, 2 messages examined")


def test_exit_code_is_1_if_rows_were_rejected_or_a_file_was_changed(invoke: Invoke, tmp_path: Path):
    rows: list[dict[str, Any]] = [{"text": "x", "in": 60}, {"text": None, "in": 60}]
    (tmp_path / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    path = str(tmp_path / "rows.json")
    words = ["pipeline", "defer", "jobs", path, "--lake", "lake", "--run", "r"]
    columns = ["--map", "payload=text", "--map", "delay=CAST(`in` AS DOUBLE)"]
    result = invoke(*words, *columns, "--rejects", "rejects", "--json")
    assert result.exit_code == 1, result.stderr
    document = json.loads(result.stdout)
    assert document == {
        "queue": "jobs", "table": path, "run": "r", "deferred": 1, "repeated": 0, "rejected": 1, "hours": 1, "files": 1,
    }  # fmt: skip
    assert sum(pq.read_metadata(each).num_rows for each in files(tmp_path / "rejects")) == 1
    files(tmp_path / "lake")[0].write_bytes(b"")
    failed = invoke("pipeline", "hydrate", "jobs", "--lake", "lake", "--horizon", "2h")
    assert failed.exit_code == 1
    assert "restore it from a backup" in failed.stderr


def test_usage_error_exits_with_2_before_spark_starts(invoke: Invoke):
    for words in (["hydrate", "--horizon", "2h"], ["defer", "jobs", "rows.json"], ["hydrate", "--lake", "lake"]):
        assert invoke("pipeline", *words).exit_code == 2


def table(folder: Path, *rows: dict[str, Any]) -> str:
    """Write a table of these rows; return its path."""
    path = folder / "rows.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("nowhere.json", [], "the table 'nowhere.json'"),
        ("rows.json", ["--map", "payload=texd"], "the expression for payload 'texd'.*The table has delay, text"),
        ("rows.json", ["--map", "payload=text +"], r"the expression for payload 'text \+'"),
    ],
)
def test_missing_table_or_column_is_reported_in_one_line(
    invoke: Invoke, tmp_path: Path, name: str, words: list[str], expected: str
):
    table(tmp_path, {"text": "x", "delay": 60})
    result = invoke("pipeline", "defer", "jobs", name, "--lake", "lake", *words)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
    assert re.search(expected, result.stderr)
    assert not (tmp_path / "lake").exists()


def test_refused_row_is_reported_in_one_line(invoke: Invoke, tmp_path: Path):
    path = table(tmp_path, {"payload": "x", "delay": 60}, {"payload": None, "delay": 60})
    result = invoke("pipeline", "defer", "jobs", path, "--lake", "lake")
    run, failure = result.stderr.splitlines()
    assert (result.exit_code, run.startswith("run ")) == (1, True)
    assert failure.startswith("delayq: row ")
    assert "payload is null" in failure
    assert failure.endswith("To put such rows aside: --rejects FOLDER")
    assert "Traceback" not in failure


def test_dry_run_reports_what_would_be_deferred_and_changes_nothing(invoke: Invoke, tmp_path: Path):
    path = table(tmp_path, {"payload": "x"}, {"payload": None})
    result = invoke("pipeline", "defer", "jobs", path, "--delay", "365d", "--lake", "lake", "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("would send 1 message; cannot send 1\n  1 × payload is null\ndue from ")
    assert not (tmp_path / "lake").exists()


def test_redis_unreachable_from_a_task_is_reported_in_one_line(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = table(tmp_path, {"payload": "x", "delay": 60})
    assert invoke("pipeline", "defer", "jobs", path, "--lake", "lake").exit_code == 0
    away = RedisOptions(f"unix://{tmp_path}/nobody", wait_for=0)
    run = TaskLoader.run

    def run_without_redis(self: TaskLoader, *given: Any) -> Any:
        self._server = away
        return run(self, *given)

    monkeypatch.setattr(TaskLoader, "run", run_without_redis)
    result = invoke("pipeline", "hydrate", "--lake", "lake", "--horizon", "2h")
    *_, last = result.stderr.splitlines()
    assert (result.exit_code, last.startswith("delayq: "), f"{tmp_path}/nobody" in last) == (1, True, True), (
        result.output
    )
    assert "Traceback" not in result.stderr


def test_hydrate_until_a_time_needs_no_horizon_and_a_missing_queue_is_reported(invoke: Invoke, tmp_path: Path):
    path = table(tmp_path, {"payload": "x", "delay": 3 * 3600})
    assert invoke("pipeline", "defer", "jobs", path, "--lake", "lake").exit_code == 0
    words = ["pipeline", "hydrate", "--lake", "lake", "--until", "2999-01-01T00:00Z"]
    other = invoke(*words, "jbos")
    assert (other.exit_code, other.stdout) == (0, "0 messages loaded from 0 files\n")
    assert "the lake lake holds nothing of queue jbos; it has jobs" in other.stderr
    assert invoke(*words, "jobs").stdout == "1 message loaded from 1 file\n"
